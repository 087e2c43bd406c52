"""Read a run's record: what an engine that has not worked on the run must know of it.

The other way to a `RunState` than having taken its calls along the route; both must come to the same. Starts nothing, decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from callgate._pipeline.again import Known, Origin, RunState, Uncertain
from callgate._pipeline.approvals import Question
from callgate._pipeline.record import Reason, Started, Verdict, decode_reason, decode_result
from callgate.calls import ToolResult
from callgate.events import TERMINAL, Event

__all__ = ["Reading"]

_started = msgspec.json.Decoder(Started).decode
_verdict = msgspec.json.Decoder(Verdict).decode
_USED = TERMINAL | {"call.started", "call.claimed"}


def _uses(event: Event) -> bool:
    """Whether this shows that a call has used the approval it got."""
    return event.kind in _USED and not (event.kind == "call.started" and _started(event.body).claims)


class Reading:
    """A run's record on its way to the state that it implies: taken in order, in pieces of any size. Starts nothing."""

    def __init__(self, run: str, *, remember: int) -> None:
        self._state = RunState(run, remember=remember)
        self._open: dict[str, Started] = {}
        self._workers: dict[str, str] = {}
        """The worker processes that took calls on, by the calls' uids."""
        self._unclaimed: dict[str, Started] = {}
        """Intents that no runner has claimed: nothing of them has happened."""
        self._approved: dict[str, str] = {}
        self._answered_by_fact: dict[str, tuple[str, Known]] = {}
        """Calls that never started, because a settled fact is their answer, by uid: their key, and what is known of them."""
        self.questions: dict[str, Question] = {}
        """What humans were asked in this run and no call has used up, by approval."""

    def take(self, events: Iterable[Event]) -> None:
        state = self._state
        for event in events:
            state.position = event.position
            if self._approved and event.call in self._approved and _uses(event):
                self.questions.pop(self._approved.pop(event.call), None)
            match event.kind:
                case "call.received":
                    state.counter = max(state.counter, int(event.call.rpartition("/")[2]) + 1)
                case "call.started":
                    self._intended(event)
                case "call.claimed" if event.call in self._unclaimed:
                    self._workers[event.call] = str((decode_reason(event.body).details or {}).get("worker", ""))
                    self._begun(event.call, self._unclaimed.pop(event.call))
                case "call.completed" if event.call in self._open:
                    self._finished(self._open.pop(event.call), decode_result(event.body))
                case "call.completed" if event.call in self._answered_by_fact:
                    key, known = self._answered_by_fact.pop(event.call)
                    known.result = decode_result(event.body)
                    state.known[key] = known
                case "call.verdict" if b'"approval"' in event.body:
                    self._approved[event.call] = _verdict(event.body).approval
                case "call.suspended":
                    self._asked(event)
                case "approval.answered":
                    self._answered(decode_reason(event.body))
                case "fact.settled":
                    self._settled(event.call, decode_reason(event.body))

    def _intended(self, event: Event) -> None:
        started = _started(event.body)
        if started.claims:
            self._unclaimed[event.call] = started
        else:
            self._begun(event.call, started)

    def _begun(self, uid: str, started: Started) -> None:
        if started.tick and uid not in self._open:
            dangerous = self._state.dangerous
            dangerous[started.tick] = dangerous.get(started.tick, 0) + 1
        self._open[uid] = started
        self._state.known[started.key] = Known(tool=started.tool, arguments=started.asked_hash, uid=uid)

    def _asked(self, event: Event) -> None:
        details = decode_reason(event.body).details or {}
        approval_id, bound_to, expires_at = (details.get(key) for key in ("approval", "binding", "expires_at"))
        if isinstance(approval_id, str) and isinstance(bound_to, str) and isinstance(expires_at, int):
            question = Question(approval_id=approval_id, run=event.run, binding=bound_to, expires_at=expires_at)
            self.questions.setdefault(approval_id, question)

    def _answered(self, answer: Reason) -> None:
        question = self.questions.get(str((answer.details or {}).get("approval")))
        if question is not None:
            question.allowed, question.by = answer.status == "allowed", answer.reason

    def _settled(self, uid: str, fact: Reason) -> None:
        self._state.settle(uid, happened=fact.status == "happened")
        answers = (fact.details or {}).get("answers")
        if isinstance(answers, dict):
            key, tool, arguments, call = (str(answers.get(name)) for name in ("key", "tool", "arguments", "call"))
            self._answered_by_fact[call] = key, Known(tool=tool, arguments=arguments, uid=call)

    def _finished(self, started: Started, result: ToolResult) -> None:
        if result.code == "not_done":
            self._state.known.pop(started.key, None)
            return
        self._state.known[started.key].result = result
        if result.status == "unknown":
            self._leave_doubt(result.uid, started)

    def state(self) -> RunState:
        """What it came to; calls with an effect that have no end are in doubt."""
        for uid, started in self._open.items():
            if started.effect != "none":
                self._leave_doubt(uid, started)
        return self._state

    def _leave_doubt(self, uid: str, started: Started) -> None:
        origin = Origin(writer=started.writer, runner=started.runner, worker=self._workers.get(uid, ""))
        self._state.uncertain[started.tool, started.arguments_hash] = Uncertain(uid=uid, key=started.key, origin=origin)
