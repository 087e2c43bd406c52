"""`CallgateToolNode`: a drop-in for LangGraph's `ToolNode` whose calls take the engine's route.

Needs LangGraph only. Agents of `create_agent` use the middleware in `callgate.integrations.langchain`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from callgate.errors import UsageError

try:
    from langchain_core.runnables import RunnableConfig
    from langchain_core.tools import BaseTool
    from langgraph.errors import GraphInterrupt
    from langgraph.prebuilt.tool_node import ToolCallRequest, ToolNode
except ModuleNotFoundError as error:
    raise UsageError("callgate.integrations.langgraph needs LangGraph 1.2 or later: pip install 'langgraph>=1.2'.") from error

from callgate._option_checks import refuse_unknown
from callgate._run_in_thread import in_thread
from callgate.calls import Scope
from callgate.engine import Engine
from callgate.integrations._langchain_tools import describe
from callgate.integrations._langgraph_calls import BlockingEngine, GraphCalls, ScopeOf, without_loop
from callgate.integrations._langgraph_execution import new_execution, running
from callgate.integrations._langgraph_order import MESSAGES, MessageOrder, calls_of_input, malformed_calls_of_input
from callgate.integrations._langgraph_questions import ask_about
from callgate.tools import Tool

__all__ = ["CallgateToolNode"]

_NOBODY = Scope()
_WRAPPERS = ("wrap_tool_call", "awrap_tool_call")
"""The options of `ToolNode` by which the calls reach the engine."""
_OPTIONS = ("scope", "wait_for_run_s", *(one for one in inspect.signature(ToolNode).parameters if one not in ("tools", *_WRAPPERS)))


class CallgateToolNode(ToolNode):
    """Runs the tool calls of a message along the engine's route.

    Works as `ToolNode`, and as `CallgateMiddleware` does for each call. All calls of a message run in one task of the
    graph, so all that a human has to decide about are asked in one interrupt, whose value has `action_requests` and
    `review_configs`; resume with `{"decisions": [...]}`, in their order or each with
    its `tool_call_id`. A decision alone counts only if one call was asked about.

    Args:
        tools: The tools, as for `ToolNode`.
        engine: The engine, made with `Engine(import_tools(tools, effects={...}))`. Tools that it does not have are
            registered with the effect `once`.
        scope: For whom the calls run, or a function of the request that returns it.
        wait_for_run_s: How many seconds a call waits for another process that works on its thread, instead of ending as `run_held`. A call
            that the other process has made then gets its result.
        options: `name`, `tags` and `messages_key` of `ToolNode`.
    """

    def __init__(
        self,
        tools: Sequence[BaseTool | Callable[..., Any]],
        engine: Engine,
        *,
        scope: ScopeOf = _NOBODY,
        wait_for_run_s: float = 0,
        **options: Any,
    ) -> None:
        _check_tools(tools, options)
        self._calls = calls = GraphCalls("CallgateToolNode", engine, scope, wait_for_run_s, options.get("messages_key", MESSAGES))
        self._engine = engine

        def wrap(request: ToolCallRequest, execute: Callable[[ToolCallRequest], Any]) -> Any:
            execution = running.get()
            with execution.order.turn(request.tool_call["id"]):
                try:
                    output = calls.make_sync(request, execute, execution.answers, None)
                except GraphInterrupt as pause:
                    output = pause
            return execution.take_output(request, output)

        async def awrap(request: ToolCallRequest, execute: Callable[[ToolCallRequest], Any]) -> Any:
            execution = running.get()
            try:
                output = await calls.make(request, execute, execution.answers, None)
            except GraphInterrupt as pause:
                output = pause
            return execution.take_output(request, output)

        super().__init__(tools, wrap_tool_call=wrap, awrap_tool_call=awrap, **options)
        for name, one in self.tools_by_name.items():
            calls.tools.add_once(name, one, describe)

    def _parse_input(self, input: Any) -> Any:
        """Add the calls with malformed arguments to those of a message, which `ToolNode` would leave without an answer."""
        calls, kind = super()._parse_input(input)
        return ([*calls, *malformed_calls_of_input(input, self._messages_key)], kind)

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        with new_execution(self._engine, self._calls) as execution:
            calls = calls_of_input(input, self._messages_key)
            execution.answers.in_task = [call["id"] for call in calls]
            while True:
                execution.order = MessageOrder(calls, self._is_read_only)
                output = super().invoke(input, config, **kwargs)
                if not execution.must_ask:
                    return output
                execution.raise_interrupt_of_a_tool()
                without_loop(ask_about(BlockingEngine(self._engine), execution.take_questions(), execution.answers))

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        with new_execution(self._engine, self._calls) as execution:
            execution.answers.in_task = [call["id"] for call in calls_of_input(input, self._messages_key)]
            while True:
                output = await super().ainvoke(input, config, **kwargs)
                if not execution.must_ask:
                    return output
                await in_thread(execution.raise_interrupt_of_a_tool)
                await ask_about(self._engine, execution.take_questions(), execution.answers)

    def _is_read_only(self, name: str) -> bool:
        tool = self._engine.tools.get(name)
        return tool is not None and tool.effect == "none"


def _check_tools(tools: object, options: dict[str, Any]) -> None:
    """Raise `UsageError` if a node is given another node or the engine's tools as its tools, or an option that it does not have."""
    if isinstance(tools, ToolNode) or not isinstance(tools, Iterable):
        raise UsageError(
            f"CallgateToolNode was given {tools!r:.80}; it replaces ToolNode, so give it a list of tools: CallgateToolNode([pay], engine)."
        )
    for one in tools if isinstance(tools, Sequence) else ():
        if isinstance(one, Tool):
            raise UsageError(
                f"CallgateToolNode was given {one.name} as a tool of the engine. Give it the framework's own tools, as ToolNode takes them,"
                f" and those of import_tools to the engine: CallgateToolNode([{one.name}], Engine(import_tools([{one.name}])))."
            )
    for word in sorted({"effects", "options"} & options.keys()):
        raise UsageError(
            f"CallgateToolNode takes no {word}; give them where the engine is made: Engine(import_tools(tools, {word}={{...}}))."
        )
    for word in sorted(options.keys() & _WRAPPERS):
        raise UsageError(f"CallgateToolNode takes no {word}, because its calls reach the engine by it. Give the engine hooks instead.")
    refuse_unknown("CallgateToolNode", options, _OPTIONS)
