"""The state of one run, as one engine knows it: its call counter, its calls with a key, and its calls with an unknown outcome.

`run_recovery` restores it from the run's events, so that a new engine on an old journal knows the calls of the previous engine; the route
updates it while calls run, and `unknown_outcomes` settles unknown outcomes. Writes no events.
"""

from __future__ import annotations

from collections import deque

from callgate._json import canonical
from callgate._run_state.calls_in_doubt import CallsInDoubt, Doubt, UncertainCall
from callgate._run_state.event_bodies import arguments_hash
from callgate._run_state.idempotency import KeyedCall, call_key
from callgate._run_state.settlements import EARLIER, Settlement, advice_to_settle, happened_result
from callgate.calls import ToolResult
from callgate.errors import IdempotencyConflict, OutcomeUnknown
from callgate.stage_types import ValidatedCall

__all__ = ["RunState"]


class RunState:
    """The state of one run, as one engine knows it."""

    def __init__(self, run: str, *, remember: int) -> None:
        self.run = run
        self.counter = 0
        self.dangerous: dict[str, int] = {}
        """The number of dangerous calls started, by tick (`Scope.tick`)."""
        self.in_doubt = CallsInDoubt()
        self.settled: dict[str, Settlement] = {}
        """The statements of operators about calls, by uid, until the call itself is resumed."""
        self.keyed_calls: dict[str, KeyedCall] = {}
        """The calls with a key, by key."""
        self.keeps_reads = False
        """Whether a human has allowed or denied a read, so that `keyed_calls` has reads, too."""
        self._with_results: deque[KeyedCall] = deque()
        """The ended calls whose results are in memory, the oldest first."""
        self._remember = remember
        self.under_way = 0
        """The number of the run's calls that are in the second half of the route in this engine."""
        self.position = 0
        """The position of the run's last event when this state was made. It is the cause of the run's first call in this engine."""

    def next_uid(self, iteration: int) -> str:
        uid = f"{self.run}/{iteration}/{self.counter}"
        self.counter += 1
        return uid

    def find(self, call: ValidatedCall, key: str, asked_hash: str) -> KeyedCall | None:
        """Return the call that was handed in before with this key, or None.

        Raises:
            IdempotencyConflict: The key belongs to another tool or other arguments.
            OutcomeUnknown: That call was started and has no result, because its engine or its caller ended before.
        """
        keyed = self.keyed_calls.get(key)
        if keyed is None:
            return None
        if keyed.tool != call.tool.name or (keyed.arguments and keyed.arguments != asked_hash):
            if keyed.denied:  # another call with a caller's key whose call was never run
                return None
            raise IdempotencyConflict(
                f"The idempotency key of this call was used for another call ({keyed.tool}, {keyed.uid}) in this run."
                " Nothing was run. Use a new key for a new call."
            )
        if keyed.result is None and not keyed.running and not keyed.only_in_journal:
            if call.tool.effect == "none":
                del self.keyed_calls[key]
                return None
            raise OutcomeUnknown(_unknown_text(call.tool.name, keyed.uid), details={EARLIER: keyed.uid})
        return keyed

    def has_ended(self, call: ValidatedCall) -> bool:
        """Return whether the same call, with an effect, was handed in before and has ended otherwise than by a human's denial."""
        asked = arguments_hash(canonical(call.arguments))
        keyed = self.keyed_calls.get(call_key(call, asked))
        if keyed is None or keyed.running or keyed.denied or call.tool.effect == "none":
            return False
        return keyed.tool == call.tool.name and keyed.arguments in ("", asked)

    def add(self, call: ValidatedCall, key: str, asked_hash: str) -> KeyedCall:
        """Remember a call that is being run."""
        keyed = KeyedCall(tool=call.tool.name, arguments=asked_hash, uid=call.uid, running=True)
        self.keyed_calls[key] = keyed
        return keyed

    def end(self, keyed: KeyedCall, key: str, *, started: bool) -> None:
        """Remember the end of a call. A call that never started may be handed in again."""
        keyed.running = False
        has_answer = keyed.result is not None and (keyed.result.status == "ok" or keyed.denied or keyed.has_others_failure)
        keyed.entered = started or has_answer
        if keyed.ended is not None:
            keyed.ended.set_result(None)
        if not keyed.entered:
            self.keyed_calls.pop(key, None)
        elif keyed.result is not None:
            self._with_results.append(keyed)
            if len(self._with_results) > self._remember:
                self._drop_old_results()

    def deny(self, keyed: KeyedCall, denial: ToolResult) -> None:
        """Remember that a human has denied a call, so that it gets the same denial when it is handed in again."""
        keyed.result = denial
        self.keeps_reads = keyed.denied = True

    def _drop_old_results(self) -> None:
        """Drop all but the latest results from memory. Calls are never forgotten; older results are read from the journal."""
        while len(self._with_results) > self._remember:
            oldest = self._with_results.popleft()
            oldest.only_in_journal, oldest.result = True, None

    @property
    def idle(self) -> bool:
        """Whether no call runs and no outcome is unknown."""
        return not (self.under_way or self.in_doubt)

    def add_doubt(self, call: ValidatedCall, encoded: bytes, key: str, tool_key: str, *, gone: bool) -> None:
        """Remember that this call's outcome is unknown. Ignored for a call without an effect.

        Args:
            encoded: The call's final arguments.
            key: The key that identifies the call in its run.
            tool_key: The idempotency key that the tool got.
            gone: Whether its code has ended, as far as its runner knows.
        """
        if call.tool.effect != "none":
            doubt = UncertainCall(uid=call.uid, key=key, tool_key=tool_key, gone=gone)
            self.in_doubt.add((call.tool.name, arguments_hash(encoded)), doubt)

    def reopen(self, uid: str) -> Doubt | None:
        """Allow a call without a recorded end to start again. Return its unknown outcome, or None if there was none."""
        found = self.in_doubt.remove(uid)
        if found is not None:
            self.keyed_calls.pop(found[1].key, None)
        return found

    def can_settle(self, uid: str, *, happened: bool) -> bool:
        """Return whether an operator can settle a call: its outcome is unknown, or it ended with a failure that keeps the key of its
        effect and did not happen.
        """
        return uid in self.in_doubt or (not happened and self._key_of_failure(uid) is not None)

    def can_free(self, uid: str) -> bool:
        """Return whether a call ended with a success that holds the key of its effect, which an operator can free: it did not happen."""
        return self._key_of_success(uid) is not None

    def _key_of_success(self, uid: str) -> str | None:
        """Return the key in `keyed_calls` of a call that ended with a success that holds the key of its effect."""
        return next((key for key, keyed in self.keyed_calls.items() if keyed.shares_success and keyed.uid == uid), None)

    def _key_of_failure(self, uid: str) -> str | None:
        """Return the key in `keyed_calls` of a call that ended with a failure that keeps the key of its effect."""
        return next((key for key, keyed in self.keyed_calls.items() if keyed.keeps_effect_key and keyed.uid == uid), None)

    def settle(self, uid: str, *, happened: bool, by: str = "") -> None:
        """Forget that a call's outcome was unknown, or that it failed. A call that did not take effect may be submitted again.

        Args:
            by: The operator who settled it; only an operator can say that a success did not happen. If the call happened, its result and
                that of the next identical call name the operator.
        """
        found = self.in_doubt.confirm(uid, by) if happened and by else self.in_doubt.remove(uid)
        if found is None:
            ended = None if happened else self._key_of_failure(uid) or (self._key_of_success(uid) if by else None)
            if ended is not None:
                del self.keyed_calls[ended]
            return
        fact, doubt = found
        if by:
            self.settled[uid] = Settlement(happened=happened, by=by)
        if not happened:
            self.keyed_calls.pop(doubt.key, None)
        elif by:
            self.keyed_calls[doubt.key] = self._confirmed_call(doubt, fact[0], by)

    def _confirmed_call(self, doubt: UncertainCall, tool: str, by: str) -> KeyedCall:
        asked = self.keyed_calls[doubt.key].arguments if doubt.key in self.keyed_calls else ""
        return KeyedCall(tool=tool, arguments=asked, uid=doubt.uid, result=happened_result(tool, doubt.uid, by))


def _unknown_text(tool: str, uid: str) -> str:
    return (
        f"{tool} was started before as {uid} and its outcome is not known, because its engine or its caller ended before it answered. It"
        f" may have taken effect. It was not run again. {advice_to_settle(uid)}"
    )
