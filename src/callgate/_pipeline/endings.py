"""Where typed errors become data: the one place that turns what the stages raise into a call's outcome, and records it.

Each call ends here exactly once. Decides nothing: what the error says is what happens.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress

from msgspec.structs import replace

from callgate._abort_signals import FAILURES
from callgate._limits import RECORD_S
from callgate._pipeline.approvals import Question
from callgate._pipeline.doubts import told_as_unknown
from callgate._pipeline.flight import Flight
from callgate._pipeline.ground import Ground
from callgate._pipeline.host_code import HostAnswer
from callgate._pipeline.record import MOST_NAME, Reason, conversation_run, decode_current, with_id
from callgate.calls import Aborted, Answered, CurrentToolCall, Outcome, RawCall, Restarted, Scope, Suspended, Text, ToolResult
from callgate.errors import (
    ApprovalNeeded,
    CallAborted,
    CallDenied,
    CallFailed,
    CallgateError,
    CallRepeated,
    OutcomeUnknown,
    RecordFailed,
    RunHeld,
)
from callgate.protocols import RestartHandler
from callgate.route import ApprovedCall

__all__ = ["Endings"]


class Endings:
    """How the calls of one engine end."""

    def __init__(self, ground: Ground, restart: RestartHandler | None, timeout_s: float) -> None:
        self._journal = ground.journal
        self._survives = ground.journal.strength != "memory"
        self._writer = ground.writer
        self._bus = ground.bus
        self._control = ground.control
        self._clock = ground.clock
        self._normaliser = ground.normaliser
        self._approvals = ground.approvals
        self._restart = restart
        self._timeout_s = timeout_s
        self._restart_timeout_s = ground.limits.hook_timeout_s
        self._host_code = ground.host_code

    async def answered(self, flight: Flight, result: ToolResult) -> Outcome:
        """The call has a result: recorded, and durable before it is returned."""
        success = result.status == "ok"
        self._log_duration(flight, result.name)
        flight.tell_result(result)
        if self._restart is not None and success and await self._restarts(result):
            flight.end("call.restarted", Reason(reason="the result enriched the context"))
            self._control.count(flight.scope.conversation, success=True)
            return Restarted(flight.uid)
        body = self._normaliser.recorded(result)
        position = flight.end("call.completed", body)
        if self._survives:
            await self._keep(flight, position, success=success)
        self._control.count(flight.scope.conversation, success=success)
        if success and flight.scope.conversation:
            flight.remember(body)
        if self._bus.busy:
            self._bus.publish("tool.completed", result)
        return Answered(result)

    def _log_duration(self, flight: Flight, name: str) -> None:
        self._writer.log.info("Function call completed: %s (%dms)", name, (self._clock.monotonic() - flight.began) * 1000)

    async def told(self, ends: Sequence[tuple[Flight, Outcome]]) -> list[Outcome]:
        """These outcomes once they are on disk, where the record survives; one that cannot be kept says so."""
        outcomes = [outcome for _, outcome in ends]
        if self._survives and ends:
            within_s = max(self._left_s(flight) for flight, _ in ends)
            until = self._clock.monotonic() + within_s
            try:
                await self._writer.durable(max(flight.last for flight, _ in ends), within_s)
            except RecordFailed:  # of some of them, at least
                outcomes = [await self._told(flight, outcome, until) for flight, outcome in ends]
        return outcomes

    async def _keep(self, flight: Flight, position: int, *, success: bool) -> None:
        """Wait until a result is on disk. That a call was not run is told in any case; `told` marks it."""
        try:
            await flight.durable(position, self._left_s(flight))
        except RecordFailed:
            if flight.started or success:
                raise

    def _left_s(self, flight: Flight) -> float:
        """How long the end of a call may wait for the record."""
        return max(min(flight.deadline, flight.began + self._timeout_s) - self._clock.monotonic(), RECORD_S)

    async def _told(self, flight: Flight, outcome: Outcome, until: float) -> Outcome:
        try:
            await self._writer.durable(flight.last, until - self._clock.monotonic())
        except RecordFailed as error:
            self._writer.log.error("The end of the call %s is not on record: %s", flight.uid, error)
            return self._unrecorded_end(flight, outcome, error)
        return outcome

    def _unrecorded_end(self, flight: Flight, outcome: Outcome, error: RecordFailed) -> Outcome:
        """What to tell in place of an outcome that is not on record."""
        match outcome:
            case Suspended():
                self._approvals.withdraw(flight.uid)
                why = f"a human has to decide first ({outcome.question}), and the question could not be recorded"
                failed = RecordFailed(f"It was not run: {why}: {error}", code=error.code)
                return Answered(_marked(self.result_of(flight, failed, self._writer.cut(flight.raw.name or ""), None)))
            case Aborted():
                return replace(outcome, reason=_with(outcome.reason, error), recorded=False)
            case Restarted():
                return replace(outcome, recorded=False)
            case Answered(result=result) if result.metadata.recorded:
                return Answered(_marked(result, error))
            case Answered():
                return outcome

    def latest(self, conversation: str) -> CurrentToolCall | None:
        """The conversation's `current_tool_call`."""
        for event in self._journal.read(run=conversation_run(conversation), limit=1, newest_first=True):
            return decode_current(event.body)
        return None

    def ended(self, flight: Flight, error: BaseException, name: str, *, harmless: bool = False) -> Outcome:
        """The outcome of a call that a stage refused, or that ran into a fault of ours.

        Args:
            harmless: The call has no effect, so that nothing is in doubt whatever became of it.
        """
        if flight.doubtful and isinstance(error, (ApprovalNeeded, CallFailed)):
            error = told_as_unknown(flight, error if isinstance(error, CallFailed) else CallFailed(f"a human has to decide first: {error}"))
        match error:
            case ApprovalNeeded():
                return self._suspended(flight, error, name)
            case CallAborted():
                return self._aborted(flight, error, name)
            case CallFailed() if not flight.started:
                return self._refused(flight, error, name)
            case _:
                return self._fault(flight, error, name, harmless=harmless)

    def unrecorded(self, raw: RawCall, error: RunHeld | RecordFailed) -> Answered:
        """The outcome of a call whose run cannot be written to: it never came onto the record, and nothing happened."""
        self._writer.log.error("The call %s was not run: %s", self._writer.cut(raw.name), error)
        raw = with_id(raw, self._clock)
        told = RecordFailed(f"It was not run: {error}", code=error.code)
        return Answered(_marked(self._normaliser.refusal(raw, "", self._writer.cut(raw.name or ""), told)))

    def unrouted(self, raw: RawCall, scope: Scope, error: CallFailed) -> Answered:
        """The outcome of a call that gets no place in its run: it is recorded by whoever refuses it."""
        self._control.count(scope.conversation, success=False)
        raw = with_id(replace(raw, id=self._writer.cut(raw.id)), self._clock)
        result = self._normaliser.refusal(raw, "", self._writer.cut(raw.name or "", MOST_NAME), error)
        if self._bus.busy:
            self._bus.publish("tool.completed", result)
        return Answered(result)

    def cancelled(self, flight: Flight, why: str) -> None:
        """Nobody will take the outcome, but the record has the end."""
        status = "unknown" if flight.started else "not_started"
        with suppress(RecordFailed):
            flight.end("call.aborted", Reason(reason=why, status=status))

    def left(self, flight: Flight, error: BaseException) -> None:
        """What ends more than this call goes past it: a cancel of the caller, an interrupt, a loop that is torn down."""
        is_cancel = isinstance(error, asyncio.CancelledError)
        self.cancelled(flight, "the caller was cancelled" if is_cancel else f"the caller was ended by {type(error).__name__}")

    def result_of(self, flight: Flight, error: CallFailed, name: str, approved: ApprovedCall | None) -> ToolResult:
        """The result that says why there is no other."""
        error = told_as_unknown(flight, error)
        notes = approved.call.notes if approved else ()
        return self._normaliser.refusal(flight.raw, flight.uid, name, error, notes, approved.rule if approved else "")

    def _fault(self, flight: Flight, error: BaseException, name: str, *, harmless: bool) -> Answered:
        """Something broke that is not the tool's: the call ends all the same, and one that ran is not told as if it had not."""
        self._writer.log.error("The call %s of %s ran into a fault", flight.uid, name, error=error)
        code = error.code if isinstance(error, CallgateError) else "internal_error"
        if not flight.started:
            return self._refused(
                flight, CallFailed(f"{name} was not run: {type(error).__name__} in the engine. Tell the operator.", code=code), name
            )
        why = f" ({error})" if isinstance(error, RecordFailed) else ""
        if harmless:
            told = f"{name} ran and changed nothing, but what it gave was lost{why}. It may be sent again; tell the operator."
            return self._refused(flight, (RecordFailed if why else CallFailed)(told, code=code), name, recorded=not why)
        unknown = OutcomeUnknown(
            f"{name} ran, but what came of it could not be kept{why}. Do not repeat the call; tell the operator.", code=code
        )
        return self._refused(flight, unknown, name, recorded=not why)

    def _refused(self, flight: Flight, error: CallFailed, name: str, *, recorded: bool = True) -> Answered:
        """The call ends without a result of its own.

        Args:
            recorded: False where the record has failed already, and `error` says so.
        """
        result = self.result_of(flight, error, name, None)
        result = result if recorded else _marked(result)
        flight.tell_result(result)
        try:
            if isinstance(error, CallDenied):
                by = error.details or {}
                flight.verdict(
                    "deny", name, rule=str(by.get("rule", "")), reason=str(error), hook=str(by.get("hook", "")), judgments=error.judgments
                )
            flight.end("call.completed", self._normaliser.recorded(result))
        except RecordFailed as unwritable:  # the caller must hear of it all the same
            self._writer.log.error("%s", unwritable)
            if not flight.started:
                result = _marked(self.result_of(flight, unwritable, name, None))
            elif recorded:
                result = _marked(result, unwritable)
        if not (isinstance(error, CallRepeated) and error.of_data):
            self._control.count(flight.scope.conversation, success=False)
        self._writer.log.info("Function call refused: %s (%s)", name, result.code)
        if self._bus.busy:
            self._bus.publish("tool.completed", result)
        return Answered(result)

    def _suspended(self, flight: Flight, question: ApprovalNeeded, name: str) -> Suspended | Answered:
        asked = self._approvals.ask(flight.uid, flight.scope.run, question.binding)
        try:
            self._asked(flight, asked, question, name)
        except RecordFailed as unwritable:  # a question that is not on record does not outlive this engine
            return self._refused(flight, unwritable, name)
        return Suspended(asked.approval_id, asked.expires_at, self._writer.told(question.question), flight.uid)

    @staticmethod
    def _asked(flight: Flight, asked: Question, question: ApprovalNeeded, name: str) -> None:
        flight.verdict("ask", name, rule=question.rule, reason=question.question, judgments=question.judgments)
        details = {"approval": asked.approval_id, "binding": asked.binding, "expires_at": asked.expires_at}
        flight.end("call.suspended", Reason(reason=question.question, details=details))

    def _aborted(self, flight: Flight, end: CallAborted, name: str) -> Aborted:
        reason = self._writer.cut(str(end))
        if flight.started:
            self._log_duration(flight, name)
        self._writer.log.warning("Tool call aborted: %s", reason)
        try:
            flight.end("call.aborted", Reason(reason=reason, status=end.status, details=end.details))
        except RecordFailed as unwritable:  # the message ends all the same
            self._writer.log.error("%s", unwritable)
            return Aborted(end.status, self._writer.told(_with(reason, unwritable)), recorded=False)
        return Aborted(end.status, self._writer.told(reason))

    async def _restarts(self, result: ToolResult) -> bool:
        """Whether the host consumed the result. Its handler's error and its silence leave the result where it is: nothing is lost."""
        data = result.data
        kind = data.get("type") if isinstance(data, Mapping) else None
        if not isinstance(kind, str) or not kind.startswith("context_restart_") or self._restart is None:
            return False
        try:
            handled = self._restart(data)
        except FAILURES as error:
            found = HostAnswer(error=error)
        else:
            found = await self._host_code.ask(handled, self._restart_timeout_s, "restart handler")
        if found.error is not None:
            self._writer.log.error("The restart handler failed on %s; its result goes to the model", result.uid, error=found.error)
        return found.value is True


def _marked(result: ToolResult, error: RecordFailed | None = None) -> ToolResult:
    """A result that is not on record; `error` says why, where the result itself does not."""
    metadata = replace(result.metadata, recorded=False)
    if error is None:
        return replace(result, metadata=metadata)
    said = None if result.error is None else _with(result.error, error)
    return replace(result, content=(*result.content, Text(text=f"This is not on record: {error}")), error=said, metadata=metadata)


def _with(reason: str, error: RecordFailed) -> str:
    return f"{reason} (not on record: {error})"
