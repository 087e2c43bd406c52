"""`CallgateToolNode`: a drop-in for LangGraph's `ToolNode` whose calls take the engine's route.

Needs LangGraph only. Agents of `create_agent` use the middleware in `callgate.integrations.langchain`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any

from msgspec import Struct

from callgate.errors import UsageError

try:
    from langchain_core.messages import ToolMessage
    from langchain_core.runnables import RunnableConfig
    from langchain_core.tools import BaseTool
    from langgraph.prebuilt.tool_node import ToolCallRequest, ToolNode
    from langgraph.types import interrupt
except ModuleNotFoundError as error:
    raise UsageError("callgate.integrations.langgraph needs LangGraph 1.2 or later: pip install 'langgraph>=1.2'.") from error

from callgate.calls import Scope, Suspended
from callgate.engine import Engine
from callgate.integrations._langchain_tools import describe
from callgate.integrations._langgraph_calls import (
    DECISIONS,
    BlockingEngine,
    GraphCalls,
    ScopeOf,
    decision_of,
    place_of,
    question_about,
    without_loop,
)
from callgate.integrations.framework_call import CallsEngine, HumanDecision, answer
from callgate.integrations.import_tools import register_missing

__all__ = ["CallgateToolNode"]

_NOBODY = Scope()


class _AskedCall(Struct, frozen=True):
    """A call of the node that a human has to decide about."""

    position: int
    """The position of the call in its message."""
    call: dict[str, Any]
    suspended: Suspended


_waiting: ContextVar[list[_AskedCall]] = ContextVar("callgate calls of a tool node that wait for a human")


class CallgateToolNode(ToolNode):
    """Runs the tool calls of a message along the engine's route.

    Works as `ToolNode`, and as `CallgateMiddleware` does for each call. All calls of a message run in one task of the
    graph, so all that a human has to decide about are asked in one interrupt, whose value has `action_requests` and
    `review_configs`; resume with `{"decisions": [...]}`, in their order or each with
    its `tool_call_id`.

    Args:
        tools: The tools, as for `ToolNode`.
        engine: The engine, made with `Engine(import_tools(tools, effects={...}))`. Tools that it does not have are
            registered with the effect `once`.
        scope: For whom the calls run, or a function of the request that returns it.
        options: `name`, `tags` and `messages_key` of `ToolNode`.
    """

    def __init__(self, tools: Sequence[BaseTool | Callable[..., Any]], engine: Engine, *, scope: ScopeOf = _NOBODY, **options: Any) -> None:
        calls = GraphCalls(engine, scope)
        self._engine = engine

        def wrap(request: ToolCallRequest, execute: Callable[[ToolCallRequest], Any]) -> Any:
            return _noted(request, calls.make_sync(request, execute, None))

        async def awrap(request: ToolCallRequest, execute: Callable[[ToolCallRequest], Any]) -> Any:
            return _noted(request, await calls.make(request, execute, None))

        super().__init__(tools, wrap_tool_call=wrap, awrap_tool_call=awrap, **options)
        register_missing(engine, [one for tool in self.tools_by_name.values() for one in describe(tool) or ()])

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        while True:
            waiting: list[_AskedCall] = []
            token = _waiting.set(waiting)
            try:
                output = super().invoke(input, config, **kwargs)
            finally:
                _waiting.reset(token)
            if not waiting:
                return output
            without_loop(_ask(BlockingEngine(self._engine), waiting))

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        while True:
            waiting: list[_AskedCall] = []
            token = _waiting.set(waiting)
            try:
                output = await super().ainvoke(input, config, **kwargs)
            finally:
                _waiting.reset(token)
            if not waiting:
                return output
            await _ask(self._engine, waiting)


def _noted(request: ToolCallRequest, output: Any) -> Any:
    """Return a call's output; note it if it waits for a human, and return a placeholder."""
    if not isinstance(output, Suspended):
        return output
    _waiting.get().append(_AskedCall(place_of(request)[1], dict(request.tool_call), output))
    return ToolMessage(content="", tool_call_id=request.tool_call["id"])


async def _ask(engine: CallsEngine, waiting: list[_AskedCall]) -> None:
    """Ask a human about all waiting calls of the node in one interrupt, and answer the engine's questions.

    Decisions that cannot be used are asked for again, with the reason, by the next interrupt.
    """
    waiting.sort(key=lambda one: (one.position, str(one.call["id"])))
    problems = dict.fromkeys((one.suspended.approval_id for one in waiting), "")
    while waiting:
        asked = [question_about(one.call, one.suspended, problems[one.suspended.approval_id]) for one in waiting]
        configs = [{"action_name": one.call["name"], "allowed_decisions": list(DECISIONS)} for one in waiting]
        given = interrupt({"action_requests": asked, "review_configs": configs})
        for one, decision in zip(waiting, _decisions(given, waiting), strict=True):
            unusable = decision if isinstance(decision, str) else await answer(engine, one.suspended, decision)
            problems[one.suspended.approval_id] = unusable
        waiting = [one for one in waiting if problems[one.suspended.approval_id]]


def _decisions(given: Any, waiting: list[_AskedCall]) -> list[HumanDecision | str]:
    """Return the decision for each call: by its `tool_call_id`, if all have one, else by their order. A text is why it cannot be used."""
    made = given.get("decisions") if isinstance(given, dict) else None
    if isinstance(made, list) and all(isinstance(one, dict) and "tool_call_id" in one for one in made):
        by_id = {str(one["tool_call_id"]): one for one in made}
        made = [by_id[one.call["id"]] for one in waiting if one.call["id"] in by_id]
    if not isinstance(made, list) or len(made) != len(waiting):
        names = ", ".join(str(one.call["name"]) for one in waiting)
        problem = f"The node was resumed with {given!r:.200}; it needs {{'decisions': [...]}} with one for each of: {names}."
        return [problem for _ in waiting]
    return [decision_of(one, asked.call) for one, asked in zip(made, waiting, strict=True)]
