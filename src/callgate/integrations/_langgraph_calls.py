"""Tool calls of LangGraph along the engine's route, for the middleware and the tool node.

Decides which ids identify a call, so that a graph that resumes or retries a step gets stored results. The thread is the
run and the conversation; the message that made the call, or else the graph's task, is the message. A call
keeps its principal when another user resumes the graph.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from langchain_core.messages import ToolMessage
from langgraph import errors as graph_errors
from langgraph.errors import GraphBubbleUp
from langgraph.prebuilt.tool_node import ToolCallRequest
from msgspec.structs import replace

from callgate._option_checks import Pause, check
from callgate._run_in_thread import in_thread
from callgate.argument_checks import possible_names
from callgate.calls import Approval, Outcome, RawCall, Scope, Suspended, ToolResult
from callgate.engine import Engine
from callgate.errors import CallgateError, PausedByTool, UsageError
from callgate.integrations._langchain_tools import describe, encode, is_async, is_sync, restore, with_notes
from callgate.integrations._langgraph_decisions import ResumedDecision
from callgate.integrations._langgraph_order import MESSAGES, is_cut, message_of, place_of, turn_of
from callgate.integrations._langgraph_questions import USER, TaskAnswers
from callgate.integrations._langgraph_warnings import GraphWarnings
from callgate.integrations.framework_call import (
    CallsEngine,
    Decide,
    Framework,
    FrameworkCall,
    HumanDecision,
    no_because,
    run_call,
    until_ended,
    whole_value,
)
from callgate.integrations.journaled_calls import read_journal, recorded_call_id, recorded_principal
from callgate.integrations.wrapped_tools import WrappedTools
from callgate.integrations.wrapper_scopes import check_scope, in_turn, scope_of

__all__ = [
    "BlockingEngine",
    "GraphCalls",
    "ScopeOf",
    "without_loop",
]

T = TypeVar("T")
ScopeOf = Scope | Callable[[ToolCallRequest], Scope]
"""The scope of an agent's calls, or a function of the request that returns it. The run, the conversation and the message are added."""
_LANGGRAPH = Framework(name="langgraph", encode=encode, pauses=(GraphBubbleUp,), decides_again=True)
Handler = Callable[[ToolCallRequest], Any]
_RESUMING = "__pregel_resuming"
"""The key that is set while a resumed graph repeats steps that had not ended. LangGraph has no public name for it."""
_is_invalid_resume: Callable[[BaseException], bool] = getattr(graph_errors, "is_invalid_resume", lambda error: False)
"""Whether a human's answer to an interrupt had another form than it asked for; LangGraph 1.2 has this since one of its later versions."""


class BlockingEngine:
    """An engine for code without an event loop. Its methods never suspend; see `without_loop`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.blobs, self.journal = engine.blobs, engine.journal

    async def call(self, raw: RawCall, scope: Scope) -> Outcome:
        return self._engine.call_sync(raw, scope)

    async def approve(self, approval_id: str, *, by: str, reason: str, arguments: Mapping[str, object] | None) -> None:
        self._engine.approve_sync(approval_id, by=by, reason=reason, arguments=arguments)

    async def deny(self, approval_id: str, *, by: str, reason: str) -> None:
        self._engine.deny_sync(approval_id, by=by, reason=reason)

    async def wait_for_answer(self, approval_id: str, *, timeout_s: float) -> Approval | None:
        return self._engine.wait_for_answer_sync(approval_id, timeout_s=timeout_s)

    async def wait_for_run(self, scope: Scope, *, timeout_s: float) -> bool:
        return self._engine.wait_for_run_sync(scope, timeout_s=timeout_s)


def without_loop(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never suspends, and return its result."""
    try:
        work.send(None)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    work.close()
    raise AssertionError("the coroutine was suspended")


class GraphCalls:
    """Makes the calls of one middleware or tool node.

    Args:
        wrapper: The name of the middleware or node, for messages.
        engine: The engine. Tools that it does not have are registered with the effect `once`.
        scope: For whom the calls run.
        wait_for_run_s: How many seconds a call waits for another process that works on its run.
        messages_key: The key of the messages in the state.
    """

    def __init__(self, wrapper: str, engine: Engine, scope: ScopeOf, wait_for_run_s: float, messages_key: str = MESSAGES) -> None:
        self.tools = WrappedTools(wrapper, engine)
        check_scope(scope)
        check(wrapper, "wait_for_run_s", wait_for_run_s, Pause)
        self._wait_for_run_s = wait_for_run_s
        self.messages_key = messages_key
        self._engine = engine
        self._scope = scope
        self._blocking = BlockingEngine(engine)
        self._warnings = GraphWarnings(engine, messages_key)

    def make_sync(self, request: ToolCallRequest, handler: Handler, answers: TaskAnswers, decide: Decide | None) -> Any:
        """Make a call from a thread without an event loop, as `make` does.

        Raises:
            UsageError: The tool has only async code.
        """
        if request.tool is not None and is_async(request.tool):
            raise UsageError(
                f"{request.tool.name} has only async code, and the graph runs with invoke. Run it with ainvoke, or give the tool a plain"
                " function."
            )

        def run(changed: ToolCallRequest) -> Awaitable[Any]:
            return until_ended(in_thread(partial(handler, changed)))

        return without_loop(self._make(self._blocking, request, run, answers, decide))

    async def make(self, request: ToolCallRequest, handler: Handler, answers: TaskAnswers, decide: Decide | None) -> Any:
        """Make a call. Return LangGraph's own result, or `Suspended`.

        Args:
            handler: Runs the tool in LangGraph's own way.
            answers: Those of the task that the call runs in.
            decide: Asks a human in the graph. Without it, a call that waits for one is `Suspended`.
        """

        def run(changed: ToolCallRequest) -> Awaitable[Any]:
            return until_ended(handler(changed)) if changed.tool is not None and is_sync(changed.tool) else handler(changed)

        return await self._make(self._engine, request, run, answers, decide)

    async def _make(self, engine: CallsEngine, request: ToolCallRequest, run: Handler, answers: TaskAnswers, decide: Decide | None) -> Any:
        scope = self.scope_of_request(request)
        if request.tool is None:
            request, scope = self._resolve_tool(request, scope)
        if self._wait_for_run_s:
            with suppress(CallgateError):  # the call itself reports it
                await engine.wait_for_run(scope, timeout_s=self._wait_for_run_s)
        scope = await self._with_recorded_principal(request, scope)
        call, resumed = request.tool_call, None
        if message_of(request, self.messages_key)[1].count(call["id"]) > 1:
            decide = _refuse_same_ids
        elif self._engine.may_ask or answers.taken or answers.waiting:
            resumed = ResumedDecision(self._engine, engine, self.tools, request, scope, answers)
        if request.tool is not None:
            self.tools.add_once(call["name"], request.tool, describe)
        self._warnings.warn(request)
        if resumed is not None:
            await resumed.record_early()
            undecided = await resumed.find_undecided()
            if undecided is not None:
                if decide is not None:
                    decide(undecided, "")
                return undecided
        made = _framework_call(request, scope, run, resumed)
        made.is_cut = is_cut(request, self.messages_key)
        result = await run_call(engine, made, decide)
        return result if isinstance(result, Suspended) else _output(engine, made, result, call)

    async def _with_recorded_principal(self, request: ToolCallRequest, scope: Scope) -> Scope:
        """Return the scope of a call, with the principal that the journal has for it if a resumed graph makes the call again."""
        if not _configurable(request).get(_RESUMING):
            return scope
        call, journal, redactor = request.tool_call, self._engine.journal, self._engine.redactor
        raw = RawCall(name=call["name"], arguments=call["args"], id=recorded_call_id(call["id"] or ""))
        return replace(scope, principal=await read_journal(journal, lambda: recorded_principal(journal, raw, scope, redactor)))

    def _resolve_tool(self, request: ToolCallRequest, scope: Scope) -> tuple[ToolCallRequest, Scope]:
        """Return the request with the tool that its name means, if it is almost the name of one of the agent's tools.

        Else the call ends with an error. If the engine has other tools than the agent, its scope blocks those.
        """
        tools = {tool.name: tool for tool in request.runtime.tools or ()}
        meant = possible_names(request.tool_call["name"], tools)
        if len(meant) == 1:
            return request.override(tool=tools[meant[0]], tool_call={**request.tool_call, "name": meant[0]}), scope
        if tools.keys() >= set(self._engine.tools.names()):
            return request, scope
        return request, replace(scope, deliberate=True, allowed_tools=frozenset(tools))

    def may_repeat(self, request: ToolCallRequest) -> bool:
        """Return whether the tool's code may start several times in one call."""
        tool = self._engine.tools.get(request.tool_call["name"])
        return tool is not None and tool.effect != "once"

    def final_arguments(self, request: ToolCallRequest) -> Mapping[str, Any]:
        """Return the arguments with which a call would run if no policy, hook or human changed them."""
        return self.tools.final(request.tool_call["name"], request.tool_call["args"])

    def scope_of_request(self, request: ToolCallRequest) -> Scope:
        """Return the scope of a call, with what identifies its run and its message."""
        scope = scope_of(self._scope, request)
        info = request.runtime.execution_info
        configurable = _configurable(request)
        thread = str(configurable.get("thread_id") or "")
        message = place_of(request, self.messages_key)[0] or (info.task_id if info is not None else "")
        scope = replace(
            scope,
            run=scope.run or thread,
            conversation=scope.conversation or thread or message,
            message_id=scope.message_id or message,
            principal=scope.principal or str(configurable.get(USER) or ""),
        )
        return in_turn(scope, turn_of(request, self.messages_key) or message)


def _framework_call(request: ToolCallRequest, scope: Scope, run: Handler, resumed: ResumedDecision | None) -> FrameworkCall:
    """Return a call as the engine's wrapper makes it.

    Args:
        run: Runs the tool in LangGraph's own way.
        resumed: The decision with which the graph was resumed, so that the tool does not read it; None if there can be none.
    """
    call = request.tool_call

    async def run_tool(arguments: dict[str, Any]) -> Any:
        refusal = resumed.drop(arguments) if resumed is not None else None
        if refusal is not None:
            raise refusal
        try:
            return await run(_with_arguments(request, arguments))
        except ValueError as error:
            if not _is_invalid_resume(error):
                raise
            made.ended_by = error  # the graph asks again
            raise PausedByTool(f"{call['name']} got an answer of another form than it asked for") from error

    made = FrameworkCall(
        framework=_LANGGRAPH,
        name=call["name"],
        arguments=call["args"],
        id=call["id"] or "",
        scope=scope,
        run=run_tool,
    )
    return made


def _configurable(request: ToolCallRequest) -> Mapping[str, Any]:
    return (request.runtime.config or {}).get("configurable", {})


def _refuse_same_ids(suspended: Suspended, problem: str) -> HumanDecision:
    return no_because("Several calls of the message have the same id, so that decisions about them cannot be told apart.")


def _with_arguments(request: ToolCallRequest, arguments: dict[str, Any]) -> ToolCallRequest:
    if arguments == request.tool_call["args"]:
        return request
    return request.override(tool_call={**request.tool_call, "args": arguments})


def _output(engine: CallsEngine, made: FrameworkCall, result: ToolResult, call: Mapping[str, Any]) -> Any:
    """Return LangGraph's own result: that of the tool if nothing has changed it, else one from the record."""
    unchanged = made.unchanged(result)
    if result.status == "ok":
        has_notes = result.metadata.truncated or len(result.content) > 1
        if unchanged and not (has_notes and isinstance(made.native, ToolMessage)):
            return with_notes(made.native, result, call) if has_notes else made.native
        restored = restore(whole_value(engine, result), result, call)
        if unchanged and isinstance(restored, ToolMessage):
            restored.artifact = made.native.artifact
        return restored
    if made.native is not None and result.failure_class == "tool_declared" and result.error == made.native.text:
        return made.native
    return ToolMessage(content=result.text or result.error or "", tool_call_id=call["id"], name=call["name"], status="error")
