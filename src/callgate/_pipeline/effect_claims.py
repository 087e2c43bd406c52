"""Let only one call at a time hold the key of an effect, and give its result to the other calls with the same key.

For tools with `key=`. A call claims its key after its approval and before its tool starts, whatever run, agent or
process it belongs to. The claim is an event in a run that belongs to the key, so the journal's leases exclude other
engines; calls of this engine wait for each other here, unless one would wait for itself. A call that finds an earlier one gets
its stored result, or `unknown`. It starts only if the earlier one had no effect, which `recorded_effects` reads from the
journal. The claim is durable before the call may start. A call without a recorded end counts as unknown, so that an engine that was only
paused cannot start a call a second time.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final

from msgspec.structs import replace

from callgate._abort_signals import settled
from callgate._pipeline.call_state import CallState
from callgate._pipeline.engine_context import EngineContext
from callgate._pipeline.recorded_effects import RecordedEffects, unusable
from callgate._pipeline.run_states import RunStates
from callgate._pipeline.unknown_outcomes import PossibleRepeat, UnknownOutcomes
from callgate._pipeline.wait_graph import WaitGraph, callers
from callgate._run_state.calls_in_doubt import UncertainCall
from callgate._run_state.earlier_effect import EarlierEffect, EffectClaim, effect_run
from callgate._run_state.event_bodies import Reason
from callgate._run_state.recorder import too_late
from callgate._run_state.settlements import advice_to_settle
from callgate.calls import ToolResult
from callgate.errors import CallNotStarted, OutcomeUnknown, RunHeld
from callgate.events import Draft
from callgate.stage_types import ApprovedCall, Checked

__all__ = ["EffectClaims", "EffectKnown"]

_FIRST_WAIT_S: Final = 0.02
_LONGEST_WAIT_S: Final = 0.5
"""The longest time in seconds between two attempts to claim a key that another process holds."""
_NESTED_SHARE: Final = 0.9
"""How much of its caller's time a nested call waits for a key, so that the caller still learns why it was not started."""


class EffectKnown(Exception):
    """Raised if an earlier call with the same key had the effect, so that this call does not start.

    Args:
        result: The stored result of the earlier call, as the result of this call; None if there is none.
        checked: The result according to the tool's `verify`, if there is no stored result.
    """

    def __init__(self, result: ToolResult | None, checked: Checked) -> None:
        super().__init__("an earlier call had the effect")
        self.result = result
        self.checked = checked


class EffectClaims:
    """The keys that calls of one engine hold.

    Args:
        recorded: Makes keys, and finds earlier calls with them.
        run_states: The states of runs, which have this engine's own unknown outcomes.
        unknown: Asks the tool's `verify` about an earlier call.
        waits: Which calls of the engine wait for which others.
    """

    def __init__(
        self,
        context: EngineContext,
        recorded: RecordedEffects,
        run_states: RunStates,
        unknown: UnknownOutcomes,
        waits: WaitGraph,
    ) -> None:
        self._journal = context.journal
        self._recorder = context.recorder
        self._clock = context.clock
        self._recorded = recorded
        self._run_states = run_states
        self._unknown = unknown
        self._waits = waits
        self._timeout_s = context.timeout_s
        self._held: dict[str, tuple[CallState, EffectClaim]] = {}
        """The calls of this engine that hold a key, by the run of the key."""

    async def claim(self, state: CallState, approved: ApprovedCall) -> ApprovedCall:
        """Claim the key of a call's effect, waiting for another call that holds it.

        Call `release` when this call has ended.

        Returns:
            The call with its key, which may start.

        Raises:
            EffectKnown: An earlier call with the same key had the effect.
            ArgumentsInvalid, ToolRaised: The key of the call cannot be made.
            CallNotStarted: The call was killed, the other call did not end in time, or the call would wait for itself.
            OutcomeUnknown: It is not known whether an earlier call took effect.
            RecordFailed: The claim could not be recorded.
        """
        until = self._until(state)
        key = await self._recorded.key_of(approved.call, state.kill, until - self._clock.monotonic())
        tool, text = approved.call.tool.name, self._recorded.key_text(key)
        run = effect_run(key.tool, key.digest)
        joined = await self._wait_here(state, run, text, until)
        ended = asyncio.get_running_loop().create_future()
        claim = state.claim = EffectClaim(key=text, tool_key=key.digest, run=run, uid=state.uid, ended=ended)
        self._held[run] = state, claim
        await self._hold(state, claim, until)
        approved = replace(approved, effect_key=key.digest)
        earlier = await self._recorded.find_earlier(tool, run, state.uid)
        checked = None if earlier is None else await self._verify_earlier(state, approved, claim, earlier, joined=joined)
        await self._record(state, claim, until)
        if checked is not None:
            raise EffectKnown(None, checked)
        return approved

    def release(self, claim: EffectClaim) -> None:
        """Release a key, after the end of its call was recorded."""
        self._held.pop(claim.run, None)
        claim.ended.set_result(None)
        self._journal.release_lease(claim.run)

    def _until(self, state: CallState) -> float:
        """Return until when the call may wait for its key."""
        now = self._clock.monotonic()
        until = min(state.deadline, now + self._timeout_s)
        caller = state.caller
        return until if caller is None else now + _NESTED_SHARE * (min(until, caller.attempt_ends) - now)

    # Waiting for the key

    async def _wait_here(self, state: CallState, run: str, text: str, until: float) -> bool:
        """Wait for calls of this engine that hold the key. Return whether there was one."""
        waited = False
        while (held := self._held.get(run)) is not None:
            holder, claim = held
            if self._waits.would_deadlock(state, holder):
                raise _waits_for_itself(state, holder, text)
            waited = True
            with self._waits.waiting(state, holder):
                ended = await settled(claim.ended, state.kill, until - self._clock.monotonic())
            if not ended:
                raise self._still_held(state, text, f"{holder.uid} of this engine has it.")
        return waited

    async def _hold(self, state: CallState, claim: EffectClaim, until: float) -> None:
        """Acquire the lease of the key's run, waiting for other engines."""
        held, wait_s = None, _FIRST_WAIT_S
        while True:
            try:
                held = await self._try_to_hold(state, claim, until)
            except TimeoutError as error:
                raise too_late() if held is None and state.kill.reason is None else self._still_held(state, claim.key, held) from error
            if held is None:
                return
            left_s = until - self._clock.monotonic()
            await settled(asyncio.get_running_loop().create_future(), state.kill, min(wait_s, left_s))
            if left_s <= 0 or state.kill.reason is not None:
                raise self._still_held(state, claim.key, held)
            wait_s = min(2 * wait_s, _LONGEST_WAIT_S)

    async def _try_to_hold(self, state: CallState, claim: EffectClaim, until: float) -> RunHeld | None:
        """Acquire the lease of the key's run. If another engine holds it, return the error that says so.

        Raises:
            TimeoutError: The call was killed, or its time ran out.
        """
        holding = asyncio.ensure_future(self._journal.acquire_lease(claim.run))
        try:
            if not await settled(holding, state.kill, until - self._clock.monotonic()):
                raise TimeoutError
            holding.result()
        except RunHeld as held:
            return held
        except TimeoutError:
            raise
        except Exception as error:
            raise unusable(state.raw.name, error) from error
        finally:
            if not holding.done():
                holding.add_done_callback(partial(self._let_go_late, claim.run))
        return None

    def _let_go_late(self, run: str, holding: asyncio.Future[bool]) -> None:
        """Release a lease that was acquired after its call had ended."""
        if not holding.cancelled() and holding.exception() is None and run not in self._held:
            self._journal.release_lease(run)

    def _still_held(self, state: CallState, text: str, by: object) -> CallNotStarted:
        if state.kill.reason is not None:
            return CallNotStarted.because(state.kill.reason)
        return CallNotStarted(
            f"{state.raw.name} was not run: a call with the same key of its effect ({text}) has not ended in time. {by} Nothing was run"
            " here. Send the call again later to get the result of that one."
        )

    # The earlier call

    async def _verify_earlier(
        self, state: CallState, approved: ApprovedCall, claim: EffectClaim, earlier: EarlierEffect, *, joined: bool
    ) -> Checked | None:
        """Return None if the earlier call had no effect, otherwise its result according to the tool's `verify`.

        Raises:
            EffectKnown: The earlier call has a stored result.
            OutcomeUnknown: It is not known whether the earlier call had an effect.
        """
        match earlier.state:
            case "nothing":
                return None
            case "unknown":
                return await self._rule_out(state, approved, claim, earlier)
            case "answered" | "happened":
                result = self._recorded.replay_result(state, approved.call, approved.encoded, claim.key, earlier, joined=joined)
                raise EffectKnown(result, Checked())

    async def _rule_out(self, state: CallState, approved: ApprovedCall, claim: EffectClaim, earlier: EarlierEffect) -> Checked | None:
        """Ask the tool's `verify` about an earlier call with an unknown outcome; see `UnknownOutcomes.rule_out`."""
        doubt = self._doubt(earlier.uid) or earlier.doubt
        if doubt is None:
            raise OutcomeUnknown(
                f"{state.raw.name} was not run: {earlier.uid} had the same key of its effect ({claim.key}), and the record does not say"
                f" what became of it. {advice_to_settle(earlier.uid)}",
                details={"earlier_call": earlier.uid},
            )
        common = f"had the same key of its effect ({claim.key})"
        repeat = PossibleRepeat(approved.call.tool, approved.key, earlier.arguments, common)
        return await self._unknown.rule_out(state, repeat, doubt, key_run=claim.run)

    def _doubt(self, uid: str) -> UncertainCall | None:
        """Return the unknown outcome of a call of this engine, or of a call in a run that this engine works on; None if
        there is none.
        """
        run = self._run_states.by_run.get(uid.rsplit("/", 2)[0])
        return run.in_doubt.by_uid().get(uid) if run is not None else None

    async def _record(self, state: CallState, claim: EffectClaim, until: float) -> None:
        """Record that this call has claimed the key. Later calls with the key get its result.

        Waits until the event is durable, so that no other call can start.
        """
        details = {"writer": self._recorder.identity} if self._recorder.identity else None
        body = Reason(reason=claim.key, details=details)
        parents = (state.last,) if state.last else ()
        position = self._recorder.write(Draft(kind="effect.claimed", run=claim.run, body=body, call=state.uid, parents=parents))
        await self._recorder.durable(position, until - self._clock.monotonic())


def _waits_for_itself(state: CallState, holder: CallState, text: str) -> CallNotStarted:
    """Return the error for a call whose key is held by a call that cannot end before this one does."""
    if holder in callers(state):
        why, then = f"{holder.uid}, which makes this call and waits for it", "Nothing happened."
    else:
        why = f"{holder.uid}, which waits for a call within which this one was made"
        then = "Nothing happened; it may be sent again when one of the two has ended."
    return CallNotStarted(
        f"{state.raw.name} was not run: it has the same key of its effect ({text}) as {why}. {then}", code="waits_for_itself"
    )
