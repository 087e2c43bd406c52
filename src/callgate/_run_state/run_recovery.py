"""Read the state of a run from its events, and find the calls that have no recorded end.

`RunReader` builds from the events the same `RunState` that running the calls builds. `unfinished_calls` is used when a
run is resumed; opening a journal does not call it. `unknown_outcomes` decides whether such a call may start again.
Starts nothing, decides nothing, and knows neither models nor messages.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec import Struct

from callgate._json import canonical, decode
from callgate._run_state.approvals import Answer, Question
from callgate._run_state.calls_in_doubt import Origin, UncertainCall
from callgate._run_state.event_bodies import Reason, Started, Verdict, arguments_hash, decode_reason, decode_result, utc_text, verdict_of
from callgate._run_state.idempotency import KeyedCall, is_others_failure, keeps_effect_key
from callgate._run_state.run_state import RunState
from callgate._run_state.settlements import advice_to_settle, used_result
from callgate.calls import ToolResult
from callgate.errors import OutcomeUnknown
from callgate.events import TERMINAL, Event

__all__ = ["RunReader", "UnfinishedCall", "unfinished_calls", "why_unknown"]

_started = msgspec.json.Decoder(Started).decode


class UnfinishedCall(Struct, frozen=True, kw_only=True):
    """A call without a recorded end."""

    uid: str
    position: int
    """The position of its latest event."""
    name: str = ""
    started: Started | None = None
    """The body of its start, None if there is none. The start also counts as the claim, unless its field `claims` is
    set.
    """
    taken: bool = False
    """Whether a runner outside of the process has claimed it."""
    origin: Origin | None = None
    """Where its latest attempt ran; None if it never started."""
    started_ns: int = 0
    """When its latest attempt started, in UTC nanoseconds."""
    attempts: int = 0
    arguments: bytes = b""
    """The final arguments; empty if they are not recorded unchanged."""

    @property
    def claimed(self) -> bool:
        """Whether the call may have taken effect."""
        return not self.unstarted and self.started is not None and self.started.effect != "none"

    @property
    def unstarted(self) -> bool:
        """Whether the tool's code was certainly not entered."""
        return self.started is None or (self.started.claims and not self.taken)


def unfinished_calls(events: Iterable[Event]) -> dict[str, UnfinishedCall]:
    """Return the calls of these events that have no end, by uid, in the order of their arrival."""
    found: dict[str, UnfinishedCall] = {}
    verdicts: dict[str, bytes] = {}
    for event in events:
        if not event.call or not event.kind.startswith("call."):
            continue
        if event.kind in TERMINAL:
            found.pop(event.call, None)
            continue
        call = found.get(event.call)
        if event.kind == "call.received":
            call = UnfinishedCall(uid=event.call, position=event.position)
        if call is None:  # it has ended before
            continue
        call = msgspec.structs.replace(call, position=event.position)
        verdict = verdict_of(event)
        if verdict is not None:
            verdicts[event.call] = bytes(verdict.arguments)
        if event.kind == "call.claimed":
            call = _as_claimed(call, str((decode_reason(event.body).details or {}).get("worker", "")))
        elif event.kind == "call.started":
            call = _as_begun(call, event, verdicts.get(event.call, b""))
        found[event.call] = call
    return found


def _as_begun(call: UnfinishedCall, event: Event, final: bytes) -> UnfinishedCall:
    started = _started(event.body)
    kept = final if started.arguments_hash and arguments_hash(canonical(decode(final or b"null"))) == started.arguments_hash else b""
    return msgspec.structs.replace(
        call,
        name=started.tool,
        started=call.started if call.claimed else started,
        origin=Origin(writer=started.writer, runner=started.runner, worker=call.origin.worker if call.origin else ""),
        started_ns=event.at_ns,
        attempts=max(call.attempts, event.attempt),
        arguments=kept,
    )


def _as_claimed(call: UnfinishedCall, worker: str) -> UnfinishedCall:
    origin = call.origin and msgspec.structs.replace(call.origin, worker=worker)
    return msgspec.structs.replace(call, taken=True, origin=origin)


def why_unknown(unfinished: UnfinishedCall, because: str = "") -> OutcomeUnknown:
    """Return the error for a call with an unknown outcome, with all that is known of the call."""
    started = unfinished.started
    at = utc_text(unfinished.started_ns)
    details: dict[str, object] = {"may_have_executed": True, "started_at": at, "attempt": unfinished.attempts, "retry_safe": False}
    if started is not None:
        details["idempotency_key"] = started.tool_key
    return OutcomeUnknown(
        f"{unfinished.name} was started at {at} ({unfinished.uid}), and the process that ran it ended before it answered. It may have taken"
        f" effect. It was not run again.{' ' + because if because else ''} {advice_to_settle(unfinished.uid)}",
        details=details,
    )


_USED = TERMINAL | {"call.started", "call.claimed"}


def _uses_approval(event: Event) -> bool:
    """Return whether the event shows that its call has used its approval."""
    return event.kind in _USED and not (event.kind == "call.started" and _started(event.body).claims)


class RunReader:
    """Builds the state of a run from its events, which are taken in order and in pieces of any size. Starts nothing."""

    def __init__(self, run: str, *, remember: int) -> None:
        self._state = RunState(run, remember=remember)
        self._open: dict[str, Started] = {}
        self._workers: dict[str, str] = {}
        """The worker processes that have claimed calls, by the calls' uids."""
        self._unclaimed: dict[str, Started] = {}
        """Starts that no runner has claimed, so that the calls have had no effect."""
        self._settled_open: set[str] = set()
        """Calls without an end that were settled and have not been started again since."""
        self._approved: dict[str, str] = {}
        self._answered_by_fact: dict[str, tuple[str, KeyedCall]] = {}
        """Calls that never started because the settled outcome of another call answers them, by uid: their key, and
        their entry in `keyed_calls`.
        """
        self._denied: dict[str, Verdict] = {}
        """Calls that a human has denied and whose denial has not been returned yet, by uid."""
        self._decided: dict[str, Verdict] = {}
        """Calls that a human has allowed, or changed if they have effects, and that have neither started nor ended yet, by uid: the first
        verdict, so that a change is known."""
        self.questions: dict[str, Question] = {}
        """The questions of this run whose answers no call has used up, by approval."""
        self.resumed: set[str] = set()
        """The calls that an engine took up again, which may be another one than the engine that started them."""

    def take(self, events: Iterable[Event]) -> None:
        state = self._state
        for event in events:
            state.position = event.position
            if b'"approval"' in event.body and (verdict := verdict_of(event)) is not None and verdict.approval:
                self._approved[event.call] = verdict.approval
                if verdict.key:
                    (self._denied if verdict.verdict == "deny" else self._decided).setdefault(event.call, verdict)
            if self._approved and event.call in self._approved and _uses_approval(event):
                self.questions.pop(self._approved.pop(event.call), None)
            match event.kind:
                case "call.received":
                    state.counter = max(state.counter, int(event.call.rpartition("/")[2]) + 1)
                case "call.resumed":
                    self.resumed.add(event.call)
                case "call.started":
                    self._apply_intended(event)
                case "call.claimed" if event.call in self._unclaimed:
                    self._workers[event.call] = str((decode_reason(event.body).details or {}).get("worker", ""))
                    self._apply_start(event.call, self._unclaimed.pop(event.call))
                case "call.completed" if event.call in self._open:
                    self._apply_result(self._open.pop(event.call), decode_result(event.body))
                case "call.restarted" if event.call in self._open:
                    self._apply_restart(event.call, self._open.pop(event.call))
                case "call.completed" if event.call in self._answered_by_fact:
                    key, keyed = self._answered_by_fact.pop(event.call)
                    keyed.result = decode_result(event.body)
                    state.keyed_calls[key] = keyed
                case "call.completed" if event.call in self._denied:
                    self._restore_denial(event.call, self._denied.pop(event.call), decode_result(event.body))
                case "call.completed" if event.call in self._decided:
                    self._restore_answered(event.call, self._decided.pop(event.call), decode_result(event.body))
                case "call.suspended":
                    self._apply_question(event)
                case "approval.answered":
                    self._apply_answer(decode_reason(event.body))
                case "approval.closed":
                    self.questions.pop(event.call, None)
                case "inbox.refused":
                    self._apply_refusal(decode_reason(event.body))
                case "fact.settled":
                    self._apply_settlement(event.call, decode_reason(event.body))

    def _apply_intended(self, event: Event) -> None:
        started = _started(event.body)
        if started.claims:
            self._unclaimed[event.call] = started
        else:
            self._apply_start(event.call, started)

    def _apply_start(self, uid: str, started: Started) -> None:
        self._settled_open.discard(uid)
        self._decided.pop(uid, None)
        if started.tick and uid not in self._open:
            dangerous = self._state.dangerous
            dangerous[started.tick] = dangerous.get(started.tick, 0) + 1
        self._open[uid] = started
        self._state.keyed_calls[started.key] = KeyedCall(tool=started.tool, arguments=started.asked_hash, uid=uid)
        self._state.keeps_reads |= started.effect == "none" and bool(started.asked_hash)

    def _restore_denial(self, uid: str, verdict: Verdict, result: ToolResult) -> None:
        keyed = KeyedCall(tool=verdict.tool, arguments=verdict.asked_hash, uid=uid)
        self._state.keyed_calls[verdict.key] = keyed
        self._state.deny(keyed, result)

    def _restore_answered(self, uid: str, verdict: Verdict, result: ToolResult) -> None:
        """Restore a call that a human decided about and that never started, because an earlier call answered it.

        That call had the effect that the human's arguments describe, or its result was in the cache, or it was an equal read that ran at
        the same time. Without the note, a human would be asked again when the call is handed in again.
        """
        failed = verdict.verdict == "modify" and is_others_failure(result)
        if result.status == "ok" or failed:
            keyed = KeyedCall(tool=verdict.tool, arguments=verdict.asked_hash, uid=uid, result=result, has_others_failure=failed)
            self._state.keyed_calls[verdict.key] = keyed
            self._state.keeps_reads = True

    def _apply_question(self, event: Event) -> None:
        details = decode_reason(event.body).details or {}
        approval_id, bound_to, expires_at = (details.get(key) for key in ("approval", "binding", "expires_at"))
        if isinstance(approval_id, str) and isinstance(bound_to, str) and isinstance(expires_at, int):
            asked = Question(approval_id=approval_id, run=event.run, binding=bound_to, expires_at=expires_at, restored=True)
            asked.same_call = str(details.get("call", ""))  # older engines did not record it
            asked.message, asked.doubt = str(details.get("message", "")), str(details.get("doubt", ""))
            self.questions.setdefault(approval_id, asked).move_to(asked)

    def _apply_answer(self, answer: Reason) -> None:
        details = answer.details or {}
        question = self.questions.get(str(details.get("approval")))
        if question is None:
            return
        edited = canonical(details["arguments"]) if "arguments" in details else b""
        if edited and arguments_hash(edited) != details.get("arguments_hash"):  # the record does not have them as they were given
            question.allowed = None
            return
        reason, told = str(details.get("reason", "")), details.get("told") is True
        question.take(Answer(allow=answer.status == "allowed", by=answer.reason, reason=reason, arguments=edited, told=told))

    def _apply_refusal(self, refusal: Reason) -> None:
        details = refusal.details or {}
        question = self.questions.get(str(details.get("approval")))
        if question is not None:
            question.take_refusal(str(details.get("by", "")), refusal.reason)

    def _apply_settlement(self, uid: str, fact: Reason) -> None:
        started = self._open.get(uid)
        if started is not None and started.effect != "none":
            self._leave_doubt(uid, started)
            self._settled_open.add(uid)
        details = fact.details or {}
        self._state.settle(uid, happened=fact.status == "happened", by=str(details.get("by", "")))
        answers = details.get("answers")
        if isinstance(answers, dict):
            self._state.in_doubt.forget_confirmed(uid)
            key, tool, arguments, call = (str(answers.get(name)) for name in ("key", "tool", "arguments", "call"))
            self._answered_by_fact[call] = key, KeyedCall(tool=tool, arguments=arguments, uid=call)

    def _apply_result(self, started: Started, result: ToolResult) -> None:
        if result.code == "not_done":
            self._state.keyed_calls.pop(started.key, None)
            return
        keyed = self._state.keyed_calls[started.key]
        keyed.result = result
        keyed.keeps_effect_key = bool(started.effect_key) and keeps_effect_key(result, started.effect)
        keyed.shares_success = bool(started.effect_key) and result.status == "ok"
        if result.status == "unknown":
            self._leave_doubt(result.uid, started)

    def _apply_restart(self, uid: str, started: Started) -> None:
        """Apply a restart: the call succeeded, and its result went into the context instead of the history."""
        if started.effect != "none":  # a read may run again to give its result again
            self._state.keyed_calls[started.key].result = used_result(started.tool, uid)

    def state(self) -> RunState:
        """Return the state of the run. The outcome of calls with an effect and without an end is unknown."""
        for uid, started in self._open.items():
            if started.effect != "none" and uid not in self._settled_open:
                self._leave_doubt(uid, started)
        return self._state

    def _leave_doubt(self, uid: str, started: Started) -> None:
        origin = Origin(writer=started.writer, runner=started.runner, worker=self._workers.get(uid, ""))
        doubt = UncertainCall(uid=uid, key=started.key, tool_key=started.tool_key, origin=origin)
        self._state.in_doubt.add((started.tool, started.arguments_hash), doubt)
