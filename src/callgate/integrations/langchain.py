"""`CallgateMiddleware`: the tool calls of a LangChain agent along the engine's route.

The agent's own handler runs inside the route, so state, store, runtime and tool call ids are injected as always, and
other middleware keeps working. Put it last in the agent's list: what is listed before it wraps the call as a whole, and
what is listed after it becomes part of the tool, which it cannot start again if its effect is `once`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from callgate.errors import UsageError

try:
    from langchain.agents.middleware import AgentMiddleware
    from langchain.agents.middleware.types import ToolCallRequest
except ModuleNotFoundError as error:
    raise UsageError("callgate.integrations.langchain needs LangChain 1.4 or later: pip install 'langchain>=1.4'.") from error

from callgate.calls import Scope, Suspended
from callgate.engine import Engine
from callgate.integrations._langchain_starts import OneStart
from callgate.integrations._langgraph_calls import GraphCalls, ScopeOf
from callgate.integrations._langgraph_questions import TaskAnswers, decision_of, question_about
from callgate.integrations.framework_call import Decide, HumanDecision
from callgate.integrations.langgraph import CallgateToolNode

__all__ = ["CallgateMiddleware", "CallgateToolNode"]

_NOBODY = Scope()


class CallgateMiddleware(AgentMiddleware[Any, Any, Any]):
    """Runs the tool calls of `create_agent` on the engine.

    A call that fails becomes a `ToolMessage` with the status `error` that says what to do next. A call that a human has
    to decide about interrupts the graph with a `tool_approval`, as LangChain's own human-in-the-loop middleware does;
    resume with a decision of the type `approve`, `edit` or `reject`. A call that the graph makes again, because it
    resumes or retries a step, gets the stored result.

    Args:
        engine: The engine, made with `Engine(import_tools(tools, effects={...}))`. Tools that it does not have are
            registered with the effect `once`. `ainvoke` uses it on the caller's event loop, `invoke` through
            `call_sync`; one engine cannot be used for both.
        scope: For whom the calls run, or a function of the request that returns it. Thread, message and call ids are
            LangGraph's own.
        wait_for_run_s: How many seconds a call waits for another process that works on its thread, instead of ending as `run_held`. A call
            that the other process has made then gets its result.
    """

    def __init__(self, engine: Engine, *, scope: ScopeOf = _NOBODY, wait_for_run_s: float = 0) -> None:
        super().__init__()
        self._calls = GraphCalls("CallgateMiddleware", engine, scope, wait_for_run_s)

    def wrap_tool_call(self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Any]) -> Any:
        def run(changed: ToolCallRequest) -> Any:
            if self._calls.may_repeat(changed):
                return handler(changed)
            start = OneStart(changed)
            return start.checked(handler(start.request))

        answers = TaskAnswers()
        return self._calls.make_sync(request, run, answers, self._ask_by_interrupt(request, answers))

    async def awrap_tool_call(self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[Any]]) -> Any:
        async def run(changed: ToolCallRequest) -> Any:
            if self._calls.may_repeat(changed):
                return await handler(changed)
            start = OneStart(changed)
            return start.checked(await handler(start.request))

        answers = TaskAnswers()
        return await self._calls.make(request, run, answers, self._ask_by_interrupt(request, answers))

    def _ask_by_interrupt(self, request: ToolCallRequest, answers: TaskAnswers) -> Decide:
        """Return what asks a human about a call: an interrupt of the graph.

        A decision that cannot be used interrupts again. An exception would leave it in the checkpoint, where each later resume would find
        it.
        """
        call = request.tool_call

        def decide(suspended: Suspended, problem: str) -> HumanDecision:
            while isinstance(made := ask(suspended, problem), str):
                problem = made
            return made

        def ask(suspended: Suspended, problem: str) -> HumanDecision | str:
            given = answers.ask({"type": "tool_approval", **question_about(call, self._calls.final_arguments(request), suspended, problem)})
            if not (answers.in_order or answers.is_asked(call["id"])):
                return "The graph was resumed before anybody was asked about this call, so the answer was not used."
            return decision_of(given, call, suspended.approval_id)

        return decide
