"""A call that another framework makes: taken along the engine's route, with the framework's own code as the tool's code.

A framework gives its tools more than the arguments: a run context, a graph's state, a call id. So its wrapper hands
over, with each call, how the framework itself runs the tool. That travels in a context variable, which every runner
copies, and only the call it was made for can use it. Must not know any framework.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from typing import Any, Protocol, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from callgate._json import decode, to_jsonable
from callgate._option_checks import without_check
from callgate._run_state.approvals import BY_ENGINE
from callgate._runners.started_tasks import exclude_from_started_tasks
from callgate.calls import Aborted, Answered, Approval, Effect, Outcome, RawCall, Restarted, Scope, Suspended, ToolResult
from callgate.errors import NotDone, PausedByTool, ResultNotSerializable, RunHeld, UsageError
from callgate.integrations.abandonable_threads import in_abandonable_threads
from callgate.integrations.journaled_calls import recorded_call_id
from callgate.integrations.outdated_answers import EARLIER_QUESTION, why_outdated
from callgate.integrations.wrapper_scopes import two_scopes
from callgate.protocols import BlobStore, Execution, Journal
from callgate.tools import ToolContext

__all__ = [
    "A_HUMAN",
    "CallsEngine",
    "Decide",
    "Framework",
    "FrameworkCall",
    "HumanDecision",
    "StartedElsewhere",
    "answer",
    "human_named",
    "is_on_route",
    "is_told_by_wrapper",
    "is_validated",
    "no_because",
    "record_decision",
    "run_call",
    "started_by",
    "until_ended",
    "whole_value",
]

T = TypeVar("T")
_UNANSWERED = frozenset({-32000, -32001, 408})
"""The codes with which MCP's SDK reports that the connection was closed, or that no answer arrived in time (408 before version 2)."""
_CLOSED_STREAMS = frozenset({"BrokenResourceError", "ClosedResourceError", "EndOfStream"})
"""The names of anyio's exceptions that say the same."""
A_HUMAN = "a human"
"""The name for a human whom the framework does not name."""
_raw_call = without_check(RawCall, RawCall(name=""))
_call_of: ContextVar[FrameworkCall | None] = ContextVar("callgate framework call", default=None)


def human_named(name: str) -> str:
    """Return who has decided: a human, with the name or id by which the framework knows them, if it does."""
    return f"{A_HUMAN} ({name})" if name else A_HUMAN


def is_told_by_wrapper(by: str) -> bool:
    """Return whether the decision of `by` came through a wrapper, not from an operator."""
    return by in (A_HUMAN, BY_ENGINE) or by.startswith(f"{A_HUMAN} (")


class StartedElsewhere(Exception):
    """Raised for a tool whose code has started its work outside of the framework's run: the outcome is unknown until it is settled."""


class CallsEngine(Protocol):
    """The part of an engine that a wrapper uses."""

    @property
    def blobs(self) -> BlobStore: ...
    @property
    def journal(self) -> Journal: ...
    async def call(self, raw: RawCall, scope: Scope) -> Outcome: ...
    async def approve(self, approval_id: str, *, by: str, reason: str, arguments: Mapping[str, object] | None) -> None: ...
    async def deny(self, approval_id: str, *, by: str, reason: str) -> None: ...
    async def wait_for_answer(self, approval_id: str, *, timeout_s: float) -> Approval | None: ...
    async def wait_for_run(self, scope: Scope, *, timeout_s: float) -> bool: ...


class HumanDecision(Struct, frozen=True, kw_only=True):
    """A human's decision about a call, as the framework received it."""

    allow: bool
    by: str = A_HUMAN
    reason: str = ""
    arguments: Mapping[str, object] | None = None
    """The arguments to run with instead of the call's own; None for its own."""


class Framework(Struct, frozen=True, kw_only=True, eq=False):
    """The properties of all calls of one framework."""

    name: str
    """The name of the framework, for the journal."""
    encode: Callable[[Any], object]
    """Turns the framework's own result into JSON data, or into other values that the engine can write as JSON."""
    pauses: tuple[type[BaseException], ...] = ()
    """Exceptions by which a tool's code tells the framework to pause or to continue elsewhere. They are raised again."""
    is_started_elsewhere: Callable[[BaseException], bool] = lambda _: False
    """Returns whether such an exception says that the work was started elsewhere, so that the same call would start it again."""
    escapes: tuple[type[BaseException], ...] = ()
    """Exceptions that end the framework's run. They are raised again; what the tool has done until then is not known."""
    failures: tuple[type[Exception], ...] = ()
    """Exceptions with which a tool's code answers the model, so that they do not leave the outcome unknown, unless a framework's MCP client
    raises them for a server's answer that has never come."""
    validates: bool = False
    """Whether the framework has read the arguments of a call itself, so that its validators must not run again."""
    asks_again: bool = False
    """Whether the framework can ask the human again. Else a yes to an outdated question is recorded as a no, which the model reads."""
    decides_again: bool = False
    """Whether `decide` itself asks the human again if a decision could not be used."""


class FrameworkCall(Struct, kw_only=True, eq=False):
    """One call of one tool, as a framework makes it."""

    framework: Framework
    name: str
    arguments: Mapping[str, object] | str
    """The arguments as JSON data, or the model's own text."""
    id: str
    """The model's id of the call."""
    scope: Scope
    run: Callable[[dict[str, Any]], Awaitable[Any]]
    """Runs the tool in the framework's own way with the final arguments, and returns the framework's own result."""
    is_cut: bool = False
    """Whether the message ended before the call was complete, see `cut_calls`. The engine refuses it."""
    place: tuple[str, ...] = ()
    """The framework's own run and message of the call, independent of the scope."""
    engine: CallsEngine | None = None
    """The engine that runs the call."""
    sent_id: str = ""
    """The id that was sent to the engine."""
    native: Any = None
    """The framework's own result, if the tool ran in this call; else None."""
    encoded: object = None
    failed_with: Exception | None = None
    """The exception with which the tool's code answered the model in this call."""
    ended_by: BaseException | None = None
    """The exception with which the tool's code has paused or ended the framework's run in this call."""
    mistake: UsageError | None = None
    """The developer's mistake that a second wrapper of this call has found; the tool has not run."""

    async def start(self, arguments: dict[str, Any], effect: Effect) -> object:
        """Run the tool as its code in the route; called by `ExternalTool`."""
        try:
            native = await self.run(arguments)
        except BaseException as error:
            return self._answer_to(error, effect)
        self.native, self.encoded = native, self.framework.encode(native)
        return Execution(status="returned", value=self.encoded, is_only_data=True)

    def _answer_to(self, error: BaseException, effect: Effect) -> object:
        """Return the result of a tool that has answered the model with an exception; raise any other one, as the engine has to see it."""
        framework = self.framework
        if self.mistake is not None and isinstance(error, Exception):
            self.ended_by = self.mistake
            raise NotDone(f"{self.name} has two wrappers with different scopes") from error
        if isinstance(error, framework.pauses):
            self.ended_by = error
            if effect == "once" and framework.is_started_elsewhere(error):
                raise StartedElsewhere("its work was started elsewhere, and its result has not been handed in") from error
            raise PausedByTool(
                f"{self.name} has paused the run ({type(error).__name__}); the same call is made again after that"
            ) from error
        if isinstance(error, framework.escapes):
            self.ended_by = error
        elif isinstance(error, framework.failures) and not _is_unanswered(error.__cause__):
            self.failed_with = error
            return {"success": False, "error": str(error) or type(error).__name__}
        raise error

    def unchanged(self, result: ToolResult) -> bool:
        """Return whether the tool ran in this call and its result is as the tool returned it.

        False if a hook or the redactor has changed it, if it is very large, or if it is the stored result of an earlier
        call. Then the framework's result has to be made from `ToolResult`. An unchanged result may still be too long
        for the model; see `metadata.truncated`.
        """
        if self.native is None or result.metadata.replayed or result.status == "unknown":
            return False
        try:
            return self.encoded is result.structured or to_jsonable(self.encoded)[0] == result.structured
        except ResultNotSerializable:
            return False


def started_by(context: ToolContext) -> FrameworkCall | None:
    """Return the framework's call that a tool is started for; None for another call, such as one that its code makes."""
    call = _call_of.get()
    return call if call is not None and call.name == context.tool and call.sent_id == context.call_id else None


def is_validated(tool: str) -> bool:
    """Return whether a framework that makes a call of this tool now has validated its arguments."""
    call = _call_of.get()
    return call is not None and call.name == tool and call.framework.validates


def is_on_route(engine: CallsEngine, call: FrameworkCall) -> bool:
    """Return whether this very call is on the engine's route already, because it has two wrappers. Then the inner one only runs the tool.

    An identical call that the tool's code makes has another `place`.

    Raises:
        UsageError: The two have different scopes. It ends the framework's run, whatever the framework makes of it.
    """
    outer = _call_of.get()
    if outer is None or outer.engine is not engine or (outer.name, outer.id, outer.place) != (call.name, call.id, call.place):
        return False
    if outer.scope == call.scope:
        return True
    outer.mistake = two_scopes(call.name, outer.scope, call.scope)
    raise outer.mistake


Decide = Callable[[Suspended, str], HumanDecision | None]
"""Returns the human's decision about a call if the framework knows it, else None. Gets the reason why the last decision could not be used;
empty at first. May raise the framework's own exception for a pause."""


async def run_call(engine: CallsEngine, call: FrameworkCall, decide: Decide | None = None, answers: str = "") -> ToolResult | Suspended:
    """Run a framework's call on the engine. Return its result, or the question that a human has to decide.

    A yes of the framework counts only for the question that the human has seen, see `outdated_answers`, and for one question.
    A call that was made before with the same ids gets the stored result. If the tool's code paused the run, the same
    call runs again when the framework makes it again.

    Args:
        answers: The id of the question that the framework's yes answers; empty if the framework does not know it.

    Raises:
        UsageError: The engine is closed, or belongs to another event loop.
        BaseException: What the tool's code raised to pause or end the framework's run.
    """
    outcome = await _outcome(engine, call)
    problem, question = "", answers or (outcome.approval_id if isinstance(outcome, Suspended) else "")
    while isinstance(outcome, Suspended) and decide is not None and (decision := decide(outcome, problem)) is not None:
        outdated = await _why_outdated(engine, call, outcome, question) if decision.allow else ""
        if outdated and call.framework.asks_again:
            return replace(outcome, question=f"{outdated} {outcome.question}")
        if outdated and call.framework.decides_again:
            problem, question = outdated, outcome.approval_id
            continue
        problem = await answer(engine, outcome, no_because(outdated) if outdated else decision)
        again = await _outcome(engine, call)
        if not (isinstance(again, Suspended) and again.approval_id == outcome.approval_id):  # the answer may be used elsewhere meanwhile
            outcome, problem = again, ""
    if call.ended_by is not None:
        raise call.ended_by
    match outcome:
        case Answered(result=result) | Aborted(kept_result=ToolResult() as result):
            return result
        case Suspended():
            return outcome
        case Aborted(reason=reason):
            return _no_result(call, reason or "its message was ended.")
        case Restarted():
            return _no_result(call, "its result went into the context.")


def no_because(reason: str) -> HumanDecision:
    """Return the decision about a call whose yes does not count. It was not denied, so the model may make the call again."""
    return HumanDecision(allow=False, by=BY_ENGINE, reason=f"{reason} Make the call again, as a new one, to ask a human again")


async def record_decision(engine: CallsEngine, approval_id: str, decision: HumanDecision) -> None:
    """Answer a question of the engine with a human's decision.

    Raises:
        UsageError: The question is used up, has expired or is not known; or its run is held.
    """
    by, reason = decision.by, decision.reason
    if decision.allow:
        await engine.approve(approval_id, by=by, reason=reason, arguments=decision.arguments)
    else:
        await engine.deny(approval_id, by=by, reason=reason)


async def answer(engine: CallsEngine, suspended: Suspended, decision: HumanDecision) -> str:
    """Answer the engine's question with a human's decision. Return why it cannot be used; empty if it was."""
    try:
        await record_decision(engine, suspended.approval_id, decision)
    except RunHeld:
        raise
    except UsageError as error:
        return str(error)
    return ""


def whole_value(engine: CallsEngine, result: ToolResult) -> Any:
    """Return the whole value of a successful result, from the blob store if it is large; None if it is lost."""
    if result.structured is not None or result.metadata.blob is None:
        return result.structured
    stored = engine.blobs.get(result.metadata.blob)
    if stored is None:
        return None
    return stored.decode() if result.metadata.mime.startswith("text/") else decode(stored)


async def until_ended(work: Awaitable[T]) -> T:
    """Await work that a cancellation cannot stop, such as code in a thread, until it has ended.

    If cancelled, continue to wait, and still return the result. So the engine, which gives up waiting after its
    grace period, knows that the code still runs, and records its late answer. It passes the cancellation on itself. A
    second cancellation, when the engine or the event loop is closed, ends the wait. The thread does not delay the end of the program.
    """
    task, cancelled = in_abandonable_threads(_await(work)), False
    exclude_from_started_tasks(task)
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            if cancelled:
                task.cancel()
            cancelled = True
        except BaseException:
            break
    return task.result()


async def _await(work: Awaitable[T]) -> T:
    return await work


async def _why_outdated(engine: CallsEngine, call: FrameworkCall, asked: Suspended, answered: str) -> str:
    """Return why a yes to the question `answered` does not count for the one that the engine asks now; empty if it does."""
    if asked.approval_id != answered:
        return EARLIER_QUESTION
    return await why_outdated(engine.journal, call.name, call.sent_id, call.scope, asked)


async def _outcome(engine: CallsEngine, call: FrameworkCall) -> Outcome:
    call.native = call.ended_by = call.failed_with = call.mistake = None
    if not call.id:
        raise UsageError("The framework gave a tool call without an id, by which a repeated call is recognised. Give each call an id.")
    call.engine, call.sent_id = engine, recorded_call_id(call.id)
    raw = _raw_call(
        name=call.name, arguments=call.arguments, id=call.sent_id, origin=call.framework.name, closed="cut" if call.is_cut else "sealed"
    )
    token = _call_of.set(call)
    try:
        return await engine.call(raw, call.scope)
    finally:
        _call_of.reset(token)


def _is_unanswered(cause: BaseException | None) -> bool:
    """Return whether a tool has failed because an MCP server has not answered. It may have done what it was asked for."""
    if isinstance(cause, BaseExceptionGroup):
        return any(map(_is_unanswered, cause.exceptions))
    return type(cause).__name__ in _CLOSED_STREAMS or getattr(getattr(cause, "error", None), "code", None) in _UNANSWERED


def _no_result(call: FrameworkCall, reason: str) -> ToolResult:
    text = f"{call.name} gave no result: {reason}"
    return ToolResult(id=call.id, uid="", name=call.name, status="error", error=text, code="not_started", failure_class="not_started")
