"""Turn what the stages raise and return into outcomes, and record the end of each call exactly once.

Decides nothing: the error determines the outcome, and `Normaliser.refusal` makes a result of it. `UnstartedCalls` ends the calls of a
message that never take the route or do not complete it.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import assert_never

from msgspec.structs import replace

from callgate._abort_signals import FAILURES
from callgate._engine_limits import RECORD_S
from callgate._option_checks import without_check
from callgate._pipeline.call_events import judged_arguments, record_denial, record_end, record_verdict
from callgate._pipeline.call_state import CallState
from callgate._pipeline.engine_context import EngineContext
from callgate._pipeline.host_code import HostAnswer
from callgate._pipeline.unknown_outcomes import as_unknown_if_doubtful
from callgate._pipeline.unrecorded_outcomes import (
    add_record_failure,
    mark_new_result,
    mark_unrecorded,
    unrecorded_abort,
    unrecorded_question,
    unrecorded_refusal,
)
from callgate._run_state.approvals import Question
from callgate._run_state.event_bodies import MOST_NAME, Reason, with_id
from callgate._run_state.settlements import EARLIER, STILL_RUNS
from callgate.calls import Aborted, Answered, Outcome, RawCall, Restarted, Scope, Suspended, ToolResult
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
    ToolRaised,
)
from callgate.protocols import OnDisk, RestartHandler
from callgate.stage_types import ApprovedCall

__all__ = ["Outcomes"]

_MAY_HAVE_RUN_BEFORE = "It may have run before, if it was sent before. Do not send it again; tell the operator."
_CHECK_OTHER_ENGINE = "If it was sent there, too, it may have run there: check that before you say that nothing was done."
_CHECK_BEFORE_REPEAT = "may have taken effect: check that before the call is made again."
_answered = without_check(Answered, Answered(ToolResult(id="", uid="", name="", status="ok")))


class Outcomes:
    """Ends the calls of one engine."""

    def __init__(self, context: EngineContext, restart: RestartHandler | None) -> None:
        self._survives = context.survives
        file = f" --journal {shlex.quote(context.journal.files[0])}" if isinstance(context.journal, OnDisk) else " --journal ADDRESS"
        commands = f"`callgate settle {{uid}} --happened{file}`, `callgate settle {{uid}} --not-happened{file}` or "
        self._settle_with = f"{commands if self._survives else ''}engine.settle"
        """How an operator records what has happened: a command cannot read a journal in memory."""
        self._recorder = context.recorder
        self._redactor = context.redactor
        self._bus = context.bus
        self._control = context.control
        self._clock = context.clock
        self._normaliser = context.normaliser
        self._approvals = context.approvals
        self._restart = restart
        self._timeout_s = context.timeout_s
        self._restart_timeout_s = context.limits.hook_timeout_s
        self._host = context.host

    async def end_with_result(self, state: CallState, result: ToolResult, on_recorded: Callable[[], bool] | None = None) -> Outcome:
        """Record the result of a call, and return it once it is durable.

        Args:
            on_recorded: Called when the result is recorded, before it is durable, and returns whether calls waited for this
                one. They may start then: they record their start after this end, so it is durable only if this end is.
        """
        success = result.status == "ok"
        if state.logs:
            self._log_duration(state, result.name)
        if state.on_result is not None:
            state.tell_result(result)
        if result.status == "unknown":
            self._warn_of_unknown(result)
        if self._restart is not None and success and await self._restarts(result):
            return self._end_restarted(state)
        position = record_end(state, "call.completed", self._normaliser.encode_for_record(result))
        if on_recorded is not None and on_recorded():
            for _ in range(2):  # a call that waited records its start meanwhile, so that one commit has this end and that start
                await asyncio.sleep(0)
        if self._survives:
            await self._keep(state, position, success=success and not (result.metadata.replayed or result.metadata.joined))
        self._control.count(state.scope.conversation, success=success)
        if self._bus.busy:
            self._bus.publish("tool.completed", result)
        return _answered(result=result)

    def abort_with_result(self, state: CallState, outcome: Outcome) -> Outcome:
        """Return the outcome of a call that has a result and whose message was stopped: the message ends, the result is kept."""
        if not isinstance(outcome, Answered):
            return outcome
        why, result = self._recorder.cut(state.stopped_late), outcome.result
        how = "ran to its end" if state.started else "was made before"
        self._recorder.log.warning("The message of %s was stopped: %s. The call %s, and its result is kept", state.uid, why, how)
        text = f"{why}. {result.name} ({state.uid}) {how}; its result is kept"
        return Aborted("stopped_by_user", self._recorder.redacted(text), kept_result=result)

    def _end_restarted(self, state: CallState) -> Restarted:
        self._control.count(state.scope.conversation, success=True)
        try:
            record_end(state, "call.restarted", Reason(reason="the result enriched the context"))
        except RecordFailed as unwritable:  # the host has the result all the same
            self._recorder.log.error("The end of the call %s is not on record: %s", state.uid, unwritable)
            return Restarted(state.uid, recorded=False)
        return Restarted(state.uid)

    def _warn_of_unknown(self, result: ToolResult) -> None:
        """Tell the host's log about a call that somebody has to settle, unless its first result did, or it still runs."""
        details = result.structured if isinstance(result.structured, dict) else {}
        if result.metadata.replayed or result.metadata.joined or STILL_RUNS in details:
            return
        self._warn_in_doubt(str(details.get(EARLIER, result.uid)), result.name)

    def _warn_in_doubt(self, uid: str, name: str) -> None:
        text = "%s (%s) may have taken effect; its outcome is unknown. Check, then record what you found with %s"
        self._recorder.log.warning(text, uid, name, self._settle_with.replace("{uid}", uid))

    def _log_duration(self, state: CallState, name: str) -> None:
        self._recorder.log.info("Function call completed: %s (%dms)", name, (self._clock.monotonic() - state.began) * 1000)

    async def durable(self, ends: Sequence[tuple[CallState, Outcome]]) -> list[Outcome]:
        """Return these outcomes once they are on disk, if the journal keeps a record there. One that could not be recorded says so."""
        outcomes = [outcome for _, outcome in ends]
        if self._survives and any(state.last > state.durable for state, _ in ends):
            within_s = max(self._remaining_s(state) for state, _ in ends)
            until = self._clock.monotonic() + within_s
            try:
                await self._recorder.durable(max(state.last for state, _ in ends), within_s)
            except RecordFailed:  # for at least one of them
                outcomes = [await self._wait_until_durable(state, outcome, until) for state, outcome in ends]
        return outcomes

    async def _keep(self, state: CallState, position: int, *, success: bool) -> None:
        """Wait until a result is on disk. A refusal or a stored result is returned in any case; `durable` marks one that is not on record.

        Args:
            success: Whether the call itself has succeeded.
        """
        try:
            await self._recorder.durable(position, self._remaining_s(state))
            state.durable = position
        except RecordFailed:
            if state.started or success:
                raise

    def _remaining_s(self, state: CallState) -> float:
        """Return how many seconds the end of a call may wait for the record."""
        return max(min(state.deadline, state.began + self._timeout_s) - self._clock.monotonic(), RECORD_S)

    async def _wait_until_durable(self, state: CallState, outcome: Outcome, until: float) -> Outcome:
        try:
            await self._recorder.durable(state.last, until - self._clock.monotonic())
        except RecordFailed as error:
            self._recorder.log.error("The end of the call %s is not on record: %s", state.uid, error)
            return self._unrecorded_end(state, outcome, error)
        return outcome

    def _unrecorded_end(self, state: CallState, outcome: Outcome, error: RecordFailed) -> Outcome:
        """Return what replaces an outcome that is not on record."""
        match outcome:
            case Suspended():
                self._approvals.drop(state.uid)
                failed = unrecorded_question(outcome.question, error)
                refusal = self.result_of_error(state, failed, self._recorder.cut(state.raw.name or ""), None)
                return Answered(mark_unrecorded(refusal, error, self._redactor))
            case Aborted():
                return unrecorded_abort(outcome, error, self._redactor)
            case Restarted():
                return replace(outcome, recorded=False)
            case Answered(result=result) if result.metadata.recorded:
                return Answered(mark_new_result(result, error, self._redactor))
            case Answered():
                return outcome
            case unknown:
                assert_never(unknown)

    def end_with_error(self, state: CallState, error: BaseException, name: str, *, harmless: bool = False) -> Outcome:
        """Return the outcome of a call that a stage refused, or in which the engine itself failed.

        Args:
            harmless: Whether the call has no effect, so that its outcome is never unknown.
        """
        if state.doubtful and isinstance(error, (ApprovalNeeded, CallFailed)):
            refusal = error if isinstance(error, CallFailed) else CallFailed(f"a human has to decide first: {error}")
            error = as_unknown_if_doubtful(state, refusal)
        match error:
            case ApprovalNeeded():
                return self._suspend(state, error, name)
            case CallAborted():
                return self._abort(state, error, name)
            case CallFailed() if not state.started:
                return self._refuse(state, error, name)
            case _:
                return self._fault(state, error, name, harmless=harmless)

    def refuse_unopened(self, raw: RawCall, error: RunHeld | RecordFailed, *, log: bool) -> Answered:
        """Return the outcome of a call whose run cannot be opened. The call is not on record, and was not run now.

        If the record of the run cannot be read, the same call may have run before.
        """
        name = self._recorder.cut(raw.name)
        if isinstance(error, RunHeld):
            text = f"It was not run here: {error} {_CHECK_OTHER_ENGINE}"
            tell, wait = self._recorder.log.warning, " To wait for the run: await engine.wait_for_run(scope, timeout_s=60)."
        else:
            text = f"It was not run now: {error.told} {_MAY_HAVE_RUN_BEFORE}"
            tell, wait = self._recorder.log.error, ""
        if log:
            tell("The call %s was not run: %s%s", name, error, wait)
        raw = with_id(raw, self._clock)
        refusal = self._normaliser.refusal(raw, "", self._recorder.cut(raw.name or ""), RecordFailed(text, code=error.code))
        return Answered(mark_unrecorded(refusal, error, self._redactor))

    def refuse_unrouted(self, raw: RawCall, scope: Scope, error: CallFailed) -> Answered:
        """Return the outcome of a call that is refused before it has a state in its run; the caller records the refusal."""
        self._control.count(scope.conversation, success=False)
        raw = with_id(replace(raw, id=self._recorder.cut(raw.id)), self._clock)
        result = self._normaliser.refusal(raw, "", self._recorder.cut(raw.name or "", MOST_NAME), error)
        if self._bus.busy:
            self._bus.publish("tool.completed", result)
        return Answered(result)

    def end_cancelled(self, state: CallState, why: str) -> None:
        """Record the end of a call that no caller waits for."""
        status = "unknown" if state.started else "not_started"
        with suppress(RecordFailed):
            record_end(state, "call.aborted", Reason(reason=why, status=status))

    def end_with_caller(self, state: CallState, error: BaseException) -> None:
        """Record the end of a call that ended together with its caller: by a cancellation, an interrupt, or a closed event loop.

        The message of a cancellation, if it has one, is recorded with it. Nobody gets a result that says that the call may have taken
        effect, so the log does.
        """
        if state.started and state.judged is not None and state.judged.tool.effect != "none":
            self._warn_in_doubt(state.uid, state.judged.tool.name)
        if not isinstance(error, asyncio.CancelledError):
            self.end_cancelled(state, f"the caller was ended by {type(error).__name__}")
            return
        message = self._recorder.cut(error.args[0]) if error.args and error.args[0] else ""
        self.end_cancelled(state, f"the caller was cancelled{': ' if message else ''}{message}")

    def result_of_error(self, state: CallState, error: CallFailed, name: str, approved: ApprovedCall | None) -> ToolResult:
        """Return a result that says why the call has no result of its own."""
        error = as_unknown_if_doubtful(state, error)
        notes = approved.call.notes if approved else ()
        return self._normaliser.refusal(state.raw, state.uid, name, error, notes, approved.rule if approved else "")

    def _fault(self, state: CallState, error: BaseException, name: str, *, harmless: bool) -> Answered:
        """End a call in which the engine failed. If the call ran, its result says so."""
        if isinstance(error, CallgateError):
            self._recorder.log.error("The call %s of %s could not go on: %s", state.uid, name, error)
        else:
            self._recorder.log.error("The call %s of %s ran into a fault", state.uid, name, error=error)
        code = error.code if isinstance(error, CallgateError) else "internal_error"
        if not state.started:
            return self._refuse(
                state, CallFailed(f"{name} was not run: {type(error).__name__} in the engine. Tell the operator.", code=code), name
            )
        unwritable = error if isinstance(error, RecordFailed) else None
        why = "" if unwritable is None else f" ({unwritable.told})"
        if harmless:
            text = f"{name} ran and changed nothing, but what it gave was lost{why}. It may be sent again; tell the operator."
            return self._refuse(state, (RecordFailed if why else CallFailed)(text, code=code), name, unwritable)
        unknown = OutcomeUnknown(
            f"{name} ran, but what came of it could not be kept{why}. Do not repeat the call; tell the operator.", code=code
        )
        return self._refuse(state, unknown, name, unwritable)

    def _refuse(self, state: CallState, error: CallFailed, name: str, failure: RecordFailed | None = None) -> Answered:
        """End a call without a result of its own.

        Args:
            failure: Why recording has failed already; `error` says that it has.
        """
        if isinstance(error, ToolRaised) and error.__cause__ is not None:  # for the tool's author; the model is not told its type
            self._recorder.log.debug("The call %s of %s was refused: %s", state.uid, name, error, error=error.__cause__)
        result = self.result_of_error(state, error, name, None)
        if failure is not None:
            result = mark_unrecorded(result, failure, self._redactor)
        elif isinstance(error, RecordFailed):  # its end may be recorded all the same
            result = add_record_failure(result, error, self._redactor)
        state.tell_result(result)
        if result.status == "unknown":
            self._warn_of_unknown(result)
        try:
            if isinstance(error, CallDenied):
                record_denial(state, error, name)
                self._approvals.drop(error.approval)
            record_end(state, "call.completed", self._normaliser.encode_for_record(result))
        except RecordFailed as unwritable:  # the caller must still be told
            self._recorder.log.error("%s", unwritable)
            if failure is None and not state.started:
                refusal = self.result_of_error(state, unrecorded_refusal(unwritable), name, None)
                result = mark_unrecorded(refusal, unwritable, self._redactor)
            elif failure is None:
                result = mark_new_result(result, unwritable, self._redactor)
        if not (isinstance(error, CallRepeated) and error.of_data):
            self._control.count(state.scope.conversation, success=False)
        self._recorder.log.info("Function call refused: %s (%s)", name, result.code)
        if self._bus.busy:
            self._bus.publish("tool.completed", result)
        return _answered(result=result)

    def _suspend(self, state: CallState, question: ApprovalNeeded, name: str) -> Suspended | Answered:
        asked = self._approvals.ask(state.uid, state.scope.run, question, state.scope.message_id)
        text = _question_text(question, asked, self._approvals.of_other_versions(asked))
        try:
            self._record_question(state, asked, question, text, name)
        except RecordFailed as unwritable:  # without a record, the question would end with this engine
            self._approvals.drop(asked.approval_id)
            return self._refuse(state, unrecorded_question(self._recorder.redacted(text), unwritable), name, unwritable)
        redacted, arguments = self._recorder.redacted, judged_arguments(state).decode()
        return Suspended(
            asked.approval_id,
            asked.expires_at,
            redacted(text),
            state.uid,
            name,
            redacted(arguments),
            redacted(question.rule),
            "" if state.judged is None else state.judged.tool.server,
        )

    @staticmethod
    def _record_question(state: CallState, asked: Question, question: ApprovalNeeded, text: str, name: str) -> None:
        record_verdict(state, "ask", name, rule=question.rule, reason=question.question, judgments=question.judgments)
        details = {"approval": asked.approval_id, "binding": asked.binding, "expires_at": asked.expires_at, "call": asked.same_call}
        if asked.message:
            details["message"] = asked.message
        if asked.doubt:
            details["doubt"] = asked.doubt
        record_end(state, "call.suspended", Reason(reason=text, details=details))

    def _abort(self, state: CallState, end: CallAborted, name: str) -> Aborted:
        reason = self._recorder.cut(str(end))
        if state.started:
            self._log_duration(state, name)
        in_doubt = _may_have_acted(state, end)
        text = f"{reason}. {name} ({state.uid}) had started and {_CHECK_BEFORE_REPEAT}" if in_doubt else reason
        self._recorder.log.warning("Tool call aborted: %s", reason)
        result = None
        if in_doubt:
            self._warn_in_doubt(state.uid, name)
            result = replace(self.result_of_error(state, OutcomeUnknown(text, code="killed"), name, None), failure_class="killed")
        aborted = Aborted(end.status, self._recorder.redacted(text), kept_result=result)
        try:
            record_end(state, "call.aborted", Reason(reason=reason, status=end.status, details=end.details))
        except RecordFailed as unwritable:  # the message ends nevertheless
            self._recorder.log.error("%s", unwritable)
            return unrecorded_abort(aborted, unwritable, self._redactor)
        return aborted

    async def _restarts(self, result: ToolResult) -> bool:
        """Return whether the host's restart handler used the result. If it fails or times out, the result goes to the model."""
        data = result.data
        kind = data.get("type") if isinstance(data, Mapping) else None
        if not isinstance(kind, str) or not kind.startswith("context_restart_") or self._restart is None:
            return False
        try:
            handled = self._restart(data)
        except FAILURES as error:
            found = HostAnswer(error=error)
        else:
            found = await self._host.ask(handled, self._restart_timeout_s, "restart handler")
        if found.error is not None:
            self._recorder.log.error("The restart handler failed on %s; its result goes to the model", result.uid, error=found.error)
        return found.value is True


def _question_text(asks: ApprovalNeeded, asked: Question, others: Sequence[Question]) -> str:
    """Return the question with what the human has to know before they answer."""
    known = [asked.refused] if asked.refused else []
    known += [
        f"the yes of {one.by or 'somebody'} does not count, because the tool has changed since it was asked about"
        for one in others
        if one.allowed
    ]
    if asked.doubt:
        known.append(f"an identical call, {asked.doubt}, started before and its outcome is not known: it may have taken effect")
    return f"{asks.question} ({'; '.join(f'{one[0].upper()}{one[1:]}' for one in known)})" if known else asks.question


def _may_have_acted(state: CallState, end: CallAborted) -> bool:
    """Return whether an aborted call may have taken effect. What a tool returns after its kill is only recorded."""
    status = (end.details or {}).get("status")
    return status == "unknown" or (status == "ok" and state.judged is not None and state.judged.tool.effect != "none")
