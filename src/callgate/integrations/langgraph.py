"""`CallgateToolNode`: a drop-in for LangGraph's `ToolNode` whose calls take the engine's route.

Needs LangGraph only. Agents of `create_agent` use the middleware in `callgate.integrations.langchain`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from msgspec import Struct

from callgate.errors import UsageError

try:
    from langchain_core.messages import ToolMessage
    from langchain_core.runnables import RunnableConfig
    from langchain_core.tools import BaseTool
    from langgraph.errors import GraphInterrupt
    from langgraph.prebuilt.tool_node import ToolCallRequest, ToolNode
except ModuleNotFoundError as error:
    raise UsageError("callgate.integrations.langgraph needs LangGraph 1.2 or later: pip install 'langgraph>=1.2'.") from error

from callgate._run_in_thread import in_thread
from callgate.calls import Scope, Suspended
from callgate.engine import Engine
from callgate.integrations._langchain_tools import describe
from callgate.integrations._langgraph_calls import (
    DECISIONS,
    BlockingEngine,
    GraphCalls,
    ScopeOf,
    TaskAnswers,
    decision_of,
    place_of,
    question_about,
    without_loop,
)
from callgate.integrations._langgraph_order import MessageOrder, calls_of_input
from callgate.integrations.framework_call import CallsEngine, HumanDecision, answer, no_because
from callgate.integrations.open_questions import paused_or_asked
from callgate.integrations.outdated_answers import why_outdated

__all__ = ["CallgateToolNode"]

_NOBODY = Scope()


class _AskedCall(Struct, frozen=True):
    """A call of the node that a human has to decide about."""

    position: int
    """The position of the call in its message."""
    call: dict[str, Any]
    suspended: Suspended
    scope: Scope


class _Execution:
    """One execution of the node, which is one task of the graph."""

    def __init__(self) -> None:
        self.answers = TaskAnswers()
        self.order = MessageOrder((), lambda name: False)
        self.forget_calls()

    def forget_calls(self) -> None:
        """Forget the calls, which are made again."""
        self.requests: dict[str, ToolCallRequest] = {}
        self.waiting: list[_AskedCall] = []
        self.paused: dict[str, GraphInterrupt] = {}
        """The interrupts by which tools have paused the graph, by the ids of their calls."""

    def noted(self, request: ToolCallRequest, output: Any, calls: GraphCalls) -> Any:
        """Return a call's output; note it if it waits for a human, and return a placeholder."""
        call: dict[str, Any] = dict(request.tool_call)
        self.requests[call["id"]] = request
        if isinstance(output, Suspended):
            self.waiting.append(_AskedCall(place_of(request)[1], call, output, calls.placed(request)))
        elif isinstance(output, GraphInterrupt):
            self.paused[call["id"]] = output
        else:
            return output
        return ToolMessage(content="", tool_call_id=call["id"])


_execution: ContextVar[_Execution] = ContextVar("callgate execution of a tool node")


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
        _check_tools(tools, options)
        self._calls = calls = GraphCalls("CallgateToolNode", engine, scope)
        self._engine = engine

        def wrap(request: ToolCallRequest, execute: Callable[[ToolCallRequest], Any]) -> Any:
            execution = _execution.get()
            with execution.order.turn(request.tool_call["id"]):
                try:
                    output = calls.make_sync(request, execute, execution.answers, None)
                except GraphInterrupt as pause:
                    output = pause
            return execution.noted(request, output, calls)

        async def awrap(request: ToolCallRequest, execute: Callable[[ToolCallRequest], Any]) -> Any:
            execution = _execution.get()
            try:
                output = await calls.make(request, execute, execution.answers, None)
            except GraphInterrupt as pause:
                output = pause
            return execution.noted(request, output, calls)

        super().__init__(tools, wrap_tool_call=wrap, awrap_tool_call=awrap, **options)
        for name, one in self.tools_by_name.items():
            calls.tools.add_once(name, one, describe)

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        with _new_execution() as execution:
            while True:
                execution.order = MessageOrder(calls_of_input(input, self._messages_key), self._only_reads)
                output = super().invoke(input, config, **kwargs)
                if not (execution.waiting or execution.paused):
                    return output
                self._interrupt_of_a_tool(execution)
                without_loop(_ask(BlockingEngine(self._engine), execution))

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        with _new_execution() as execution:
            while True:
                output = await super().ainvoke(input, config, **kwargs)
                if not (execution.waiting or execution.paused):
                    return output
                await in_thread(lambda: self._interrupt_of_a_tool(execution))
                await _ask(self._engine, execution)

    def _only_reads(self, name: str) -> bool:
        tool = self._engine.tools.get(name)
        return tool is not None and tool.effect == "none"

    def _interrupt_of_a_tool(self, execution: _Execution) -> None:
        """Raise the interrupt with which a tool has paused the graph, if one has.

        LangGraph hands the answers of a task out in order, and a call with a stored result does not ask for its answer again. So only one
        call of a message can have interrupts of its own, and only if no other call asks a human.

        Raises:
            UsageError: Another call of the message has such interrupts, too, or asks a human, now or in an earlier execution.
        """
        if len(execution.requests) > 1:
            request = next(iter(execution.requests.values()))
            paused, asked = paused_or_asked(self._engine.journal, self._calls.placed(request))
            paused |= execution.paused.keys()
            involved = paused | asked.keys() | {one.call["id"] for one in execution.waiting}
            if paused and len(involved) > 1:
                calls = [one.tool_call for one in sorted(execution.requests.values(), key=place_of) if one.tool_call["id"] in involved]
                raise UsageError(_MIXED % ", ".join(f"{one['name']} ({one['id']})" for one in calls))
        for pause in execution.paused.values():
            raise pause


_MIXED = (
    "These calls of one message ask for answers in one task of the graph, and a tool of theirs calls interrupt(): %s. LangGraph hands out"
    " the answers of a task in order, so a call would read the answer to another one. Run each call in a task of its own: with an edge that"
    " returns [Send(node, [call]) for call in message.tool_calls], or with create_agent and CallgateMiddleware."
)


def _check_tools(tools: object, options: dict[str, Any]) -> None:
    """Raise `UsageError` if a node is given another node as its tools, or what is an option of the engine's tools."""
    if isinstance(tools, ToolNode) or not isinstance(tools, Iterable):
        raise UsageError(
            f"CallgateToolNode was given {tools!r:.80}; it replaces ToolNode, so give it a list of tools: CallgateToolNode([pay], engine)."
        )
    for word in sorted({"effects", "options"} & options.keys()):
        raise UsageError(
            f"CallgateToolNode takes no {word}; give them where the engine is made: Engine(import_tools(tools, {word}={{...}}))."
        )


@contextmanager
def _new_execution() -> Iterator[_Execution]:
    execution = _Execution()
    token = _execution.set(execution)
    try:
        yield execution
    finally:
        _execution.reset(token)


async def _ask(engine: CallsEngine, execution: _Execution) -> None:
    """Ask a human about all waiting calls of the node in one interrupt, and answer the engine's questions.

    Decisions that cannot be used are asked for again, with the reason, by the next interrupt.
    """
    waiting = sorted(execution.waiting, key=lambda one: (one.position, str(one.call["id"])))
    execution.forget_calls()
    problems = dict.fromkeys((one.suspended.approval_id for one in waiting), "")
    while waiting:
        asked = [question_about(one.call, one.suspended, problems[one.suspended.approval_id]) for one in waiting]
        configs = [{"action_name": one.call["name"], "allowed_decisions": list(DECISIONS)} for one in waiting]
        given = execution.answers.ask({"action_requests": asked, "review_configs": configs})
        for one, decision in zip(waiting, _decisions(given, waiting), strict=True):
            unusable = decision if isinstance(decision, str) else await _answer(engine, one, decision)
            problems[one.suspended.approval_id] = unusable
        waiting = [one for one in waiting if problems[one.suspended.approval_id]]


async def _answer(engine: CallsEngine, asked: _AskedCall, decision: HumanDecision) -> str:
    """Answer the engine's question. Return why the decision cannot be used; empty if it was."""
    name, call_id = asked.call["name"], asked.call["id"] or ""
    outdated = await why_outdated(engine.journal, name, call_id, asked.scope, asked.suspended) if decision.allow else ""
    return await answer(engine, asked.suspended, no_because(outdated) if outdated else decision)


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
