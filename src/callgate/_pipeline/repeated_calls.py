"""Answer a call that was handed in before from what is known of the first one, so that no call with an effect runs twice.

Before the gate, and again when the gate wants a human to decide, because nobody is asked about a call that will not run. A call that was
not handed in before is remembered with its key, and gets its result, a denial or a doubt when it ends. `callgate._run_state.run_state`
keeps them; `effect_claims` and `recorded_effects` know the keys of effects. Starts no tool.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from msgspec.structs import replace

from callgate._json import canonical
from callgate._pipeline.call_events import record_event, record_verdict
from callgate._pipeline.call_hooks import hook_result
from callgate._pipeline.call_locks import caller_of
from callgate._pipeline.call_state import CallState
from callgate._pipeline.engine_context import EngineContext
from callgate._pipeline.recorded_effects import RecordedEffects
from callgate._pipeline.result_notes import note_texts
from callgate._pipeline.running_calls import RunningCalls
from callgate._pipeline.tool_plan import ToolPlan
from callgate._pipeline.unknown_outcomes import UnknownOutcomes
from callgate._pipeline.wait_graph import WaitGraph
from callgate._run_state.event_bodies import Reason, arguments_hash
from callgate._run_state.idempotency import (
    REPEATED_IN_MESSAGE,
    KeyedCall,
    call_key,
    earlier_result,
    is_others_failure,
    keeps_effect_key,
    possibly_another,
)
from callgate._run_state.recorder import off_loop
from callgate._run_state.settlements import call_in_doubt, is_settled
from callgate.calls import ToolResult
from callgate.errors import ApprovalNeeded, CallNotStarted, OutcomeUnknown, ResultRejected
from callgate.stage_types import ApprovedCall, Checked, ValidatedCall

__all__ = ["RepeatedCalls"]

log = logging.getLogger("callgate")


class RepeatedCalls:
    """Knows which calls of an engine's runs were handed in before.

    Args:
        running: The calls that are under way.
        plans: How the calls of each tool are handled, by the tool's identity.
    """

    def __init__(
        self,
        context: EngineContext,
        running: RunningCalls,
        plans: Mapping[str, ToolPlan],
        recorded_effects: RecordedEffects,
        unknown: UnknownOutcomes,
        waits: WaitGraph,
    ) -> None:
        self._control = context.control
        self._host = context.host
        self._journal = context.journal
        self._normaliser = context.normaliser
        self._running = running
        self._plans = plans
        self._recorded_effects = recorded_effects
        self._unknown = unknown
        self._waits = waits
        self._timeout_s = context.timeout_s
        self._has_warned = False

    # Before the gate

    async def answer_or_remember(self, state: CallState, call: ValidatedCall) -> ToolResult | None:
        """Return the result of the same call, if it was handed in before; wait for it if it is still running.

        The key identifies the same call. If there is none, remember this call and return None: it has to run.
        """
        state.encoded = canonical(call.arguments)
        if state.first is not None:
            return await self._replay(state, KeyedCall(tool=call.tool.name, arguments="", uid=state.first.uid, result=state.first))
        asked = arguments_hash(state.encoded)
        if state.identical is not None:
            state.occurrence = state.identical.take(call.tool.name, asked)
        state.key = call_key(call, asked, state.occurrence)
        if state.doubtful and state.unfinished is not None and state.unfinished.started is not None:
            state.key = state.unfinished.started.key
            checked = await self._unknown.rule_out_second_start(state, call)
            if checked is not None:
                result = await self.verified_result(state, call, checked)
                state.run_state.keyed_calls[state.key] = KeyedCall(tool=call.tool.name, arguments=asked, uid=call.uid, result=result)
                return result
        while (keyed := state.run_state.find(call, state.key, asked)) is not None:
            if keyed.has_others_failure and await self._was_settled(keyed.uid):
                if state.run_state.keyed_calls.get(state.key) is keyed:  # the same call may have been handed in again meanwhile
                    del state.run_state.keyed_calls[state.key]
            elif (earlier := await self._replay(state, keyed)) is not None:
                return earlier
        state.keyed_call = state.run_state.add(call, state.key, asked)
        state.asked_hash = asked
        return None

    async def answer_read(self, state: CallState, call: ValidatedCall) -> ToolResult | None:
        """Return the result of the same read, if a human has allowed or denied it. Other reads are not remembered."""
        keyed = state.run_state.find(call, *_identity(state, call))
        return None if keyed is None else await self._replay(state, keyed)

    async def answer_stopped(self, state: CallState, call: ValidatedCall) -> ToolResult | None:
        """Return the result of the same call, if it has an effect, was handed in before and has ended. Waits for no call."""
        if state.first is not None or not state.has_ended_before(call):
            return None
        key, asked = _identity(state, call)
        try:
            keyed = state.run_state.find(call, key, asked)
        except OutcomeUnknown as unknown:
            state.stopped_late = state.stop_reason(self._control) or ""
            return self._normaliser.refusal(state.raw, state.uid, call.tool.name, unknown, call.notes)
        return None if keyed is None else await self._replay(state, keyed)

    async def _replay(self, state: CallState, keyed: KeyedCall) -> ToolResult | None:
        """Return the stored result of the same call, or wait for it if the call is still running.

        Never starts a second call. None if the first one ended without a start, so that this one has to go its own way.

        Raises:
            CallNotStarted: The call would wait for itself.
        """
        harmless = state.judged is not None and state.judged.tool.effect == "none"
        first = self._running.by_uid.get(keyed.uid) if keyed.running else None
        if first is None:
            earlier = await earlier_result(keyed, state, self._journal, self._timeout_s, harmless=harmless)
        else:
            state.caller = caller_of(state)
            if self._waits.would_deadlock(state, first):
                raise CallNotStarted(
                    f"{state.raw.name} was not started: it is the same call as {first.uid}, which waits for this one. Nothing happened.",
                    code="waits_for_itself",
                )
            with self._waits.waiting(state, first):
                earlier = await earlier_result(keyed, state, self._journal, self._timeout_s, harmless=harmless, first=first)
        if earlier is None or harmless:
            state.check_stop(self._control)
        if earlier is None:
            return None
        state.stopped_late = state.stop_reason(self._control) or ""
        result, why = earlier
        self._warn_once(state, keyed, result, harmless=harmless)
        if state.duplicate and not harmless and result.status == "ok":  # without the note, the model reads of two effects
            result = replace(result, content=(*result.content, *note_texts((REPEATED_IN_MESSAGE,))))
        record_event(state, "call.replayed", Reason(reason=why, details={"uid": keyed.uid}))
        return result

    def _warn_once(self, state: CallState, keyed: KeyedCall, result: ToolResult, *, harmless: bool) -> None:
        """Log that an effect may be missing: nothing tells the messages of the host's model apart."""
        if self._has_warned or harmless or (note := possibly_another(keyed.uid)) not in result.metadata.notes:
            return
        self._has_warned = True
        log.warning("%s (%s) was not run: %s This is said once for each engine.", state.uid, state.raw.name, note.text)

    async def _was_settled(self, uid: str) -> bool:
        """Return whether somebody has settled the call whose failure the call `uid` got."""

        def read() -> bool:
            return is_settled(self._journal.read(call=call_in_doubt(self._journal.read(call=uid), uid)))

        return await off_loop(self._journal, read)

    # Instead of a human's decision

    async def answer_instead_of_human(self, state: CallState, call: ValidatedCall, asks: ApprovalNeeded) -> ToolResult | None:
        """Return the stored result of a call about which a human would be asked, if an earlier call had its effect."""
        checked = None if state.doubtful else await self._unknown.answer_instead_of_human(state, call, asks)
        if checked is not None:
            record_verdict(state, "ask", call.tool.name, rule=asks.rule, reason=asks.question, judgments=asks.judgments)
            result: ToolResult | None = await self.verified_result(state, call, checked)
        else:
            result = await self._recorded_effects.replay(state, call, asks)
        if result is not None:
            state.check_stop(self._control)
            if state.keyed_call is not None:
                state.keyed_call.result = result
        return result

    async def verified_result(self, state: CallState, call: ValidatedCall, checked: Checked) -> ToolResult:
        """Return the result of a call that an earlier engine started, as the tool's `verify` gave it, after its hooks have run."""
        hooks = self._plans[call.tool.identity].hooks.after
        try:
            return self._normaliser.result(call, "", await hook_result(call, checked, hooks, self._host))
        except ResultRejected as error:
            return self._normaliser.refusal(state.raw, state.uid, call.tool.name, error, call.notes)

    # What is kept of a call that was not handed in before

    @staticmethod
    def keep_allowed_read(state: CallState, call: ValidatedCall, approved: ApprovedCall) -> ApprovedCall:
        """Remember a read that a human has allowed, so that it gets its result, and nobody is asked, when it is handed in again."""
        state.key, state.asked_hash = _identity(state, call)
        state.keyed_call = state.run_state.add(call, state.key, state.asked_hash)
        state.run_state.keeps_reads = True
        return replace(approved, key=state.key)

    @staticmethod
    def identify(state: CallState, call: ValidatedCall) -> None:
        """Set the key of a call that a human denied, if it is a read, which has none so far."""
        if state.keyed_call is None:
            state.key, state.asked_hash = _identity(state, call)

    @staticmethod
    def keep_denial(state: CallState, call: ValidatedCall, denial: ToolResult) -> None:
        """Remember a human's denial, for when the same call is handed in again."""
        state.keyed_call = state.keyed_call or state.run_state.add(call, state.key, state.asked_hash)
        state.run_state.deny(state.keyed_call, denial)

    @staticmethod
    def keep_end(state: CallState, keyed: KeyedCall, result: ToolResult, effect: str) -> None:
        """Remember whether the result of a call that has a key of its effect, or was edited, is that of other calls, too."""
        has_effect_key = state.claim is not None and state.started
        keyed.keeps_effect_key = has_effect_key and keeps_effect_key(result, effect)
        keyed.shares_success = has_effect_key and result.status == "ok"
        keyed.has_others_failure = state.edited and not state.started and is_others_failure(result)

    @staticmethod
    def keep_doubt(state: CallState, call: ValidatedCall) -> None:
        """Remember, after a failure, that the outcome of a call is unknown if its tool's code may have been entered."""
        if state.keyed_call is not None and state.started:
            tool_key = state.key if state.claim is None else state.claim.tool_key
            state.run_state.add_doubt(call, state.encoded, state.key, tool_key, gone=False)


def _identity(state: CallState, call: ValidatedCall) -> tuple[str, str]:
    """Return the key that identifies a call, and the hash of its arguments."""
    asked = arguments_hash(canonical(call.arguments))
    return call_key(call, asked, state.occurrence), asked
