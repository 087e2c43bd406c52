"""End the calls of a message that never started, because it was stopped, discarded or its engine closed.

Their tools were not entered, so the model may send them again.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from callgate._pipeline.approval_answers import close_question
from callgate._pipeline.call_events import record_received
from callgate._pipeline.call_state import CallState
from callgate._pipeline.engine_lifecycle import Lifecycle
from callgate._pipeline.outcomes import Outcomes
from callgate._run_state.approvals import Approvals
from callgate._run_state.event_bodies import Reason
from callgate._run_state.recorder import Recorder
from callgate.calls import Outcome, RawCall, Scope
from callgate.errors import CallNotStarted, RecordFailed
from callgate.events import Draft
from callgate.stage_types import ValidatedCall

__all__ = ["UnstartedCalls"]

_REFUSED_AT_ONCE = 64
"""The number of calls to refuse before other tasks of the event loop may run."""
_ENDED_BEFORE = "The same call was made before and has ended. Hand in its message again for its result; do not repeat it in another one."


class UnstartedCalls:
    """Ends calls of one engine that are not run."""

    def __init__(self, recorder: Recorder, approvals: Approvals, outcomes: Outcomes, lifecycle: Lifecycle) -> None:
        self._recorder = recorder
        self._approvals = approvals
        self._outcomes = outcomes
        self._lifecycle = lifecycle

    def end(self, state: CallState, why: str, call: ValidatedCall | None = None) -> Outcome:
        """End a call that had not started when its message was ended.

        Args:
            call: The call, if its arguments are valid. If it was handed in before and has ended, it is not offered to be sent again.
        """
        if not state.on_record:
            with suppress(RecordFailed):  # recording the end fails in the same way and reports it
                record_received(state)
        ended_before = call is not None and state.has_ended_before(call)
        error = CallNotStarted(f"It was not started again: {why}. {_ENDED_BEFORE}") if ended_before else CallNotStarted.because(why)
        return self._outcomes.end_with_error(state, error, state.raw.name)

    def withdraw_question(self, state: CallState, approval_id: str, why: str) -> None:
        """Close the open question about a call whose message was discarded. An answer is kept: it is for the next such call of the run."""
        question = self._approvals.find(approval_id)
        if question is not None and question.allowed is None and state.judged is not None:
            close_question(self._recorder, self._approvals, state.judged, f"its message was discarded: {why}", cause=state.last)

    async def refuse_surplus(self, raws: list[RawCall], scope: Scope, most: int) -> list[Outcome]:
        """Refuse the calls of a message above the limit, and record that with one event for all of them."""
        why = f"Its message has {most + len(raws)} calls; {most} is the limit"
        error = CallNotStarted(
            f"It was not started: {why}, and it is one of those above. Nothing happened; send it again in a later message.",
            code="too_many_calls",
        )
        outcomes: list[Outcome] = []
        for number, raw in enumerate(raws, 1):
            outcomes.append(self._outcomes.refuse_unrouted(raw, scope, error))
            if number % _REFUSED_AT_ONCE == 0:
                await asyncio.sleep(0)
        self._recorder.log.warning("%s. The %d above it were refused", why, len(raws))
        self._record(scope.run, "emission.limited", Reason(reason=why, details={"limit": most, "refused": len(raws)}))
        return outcomes

    def end_forgotten(self, states: list[CallState], why: str) -> None:
        """End the calls of a message that is no longer referenced, in the next iteration of the event loop. Thread-safe."""
        if self._lifecycle.loop is not None:
            with suppress(RuntimeError):  # the loop is closed, so nothing can be written
                self._lifecycle.loop.call_soon_threadsafe(self._end_now, states, why)

    def _end_now(self, states: list[CallState], why: str) -> None:
        left = [state for state in states if not state.ended]
        if self._lifecycle.closed and not left:  # they were ended when the engine was closed
            return
        for state in left:
            self.end(state, why)
        self.record("emission.discarded", [state.uid for state in states], why)

    def record(self, kind: str, uids: list[str], reason: str) -> None:
        """Record an event that concerns a message as a whole."""
        self._record(uids[0].rsplit("/", 2)[0], kind, Reason(reason=reason, details={"calls": uids}))

    def _record(self, run: str, kind: str, body: Reason) -> None:
        try:
            self._recorder.write(Draft(kind=kind, run=run, body=body))
        except RecordFailed as error:  # each call fails in the same way and reports it
            self._recorder.log.error("%s", error)
