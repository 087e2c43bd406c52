"""Settle whether a call with an unknown outcome took effect, before it or an identical call may start.

`run_state` keeps the unknown outcomes; this module asks the tool. Only the tool's own `verify` and a human can settle one; a timeout, an
error or an invalid answer leaves it unknown. "It did not happen" is accepted only if the earlier attempt can no longer act, which `Fence`
decides: `verify` sees only the current state of the world, and an engine that is merely paused (stopped, swapped out, disconnected from the
store) may continue afterwards, as may its worker or a thread that could not be stopped.

If an earlier engine left a call without an end, a read is run again, an idempotent call is run again with the same key and the same final
arguments, and a `once` call whose intent is on record is run again only if `verify` says that it did not happen. A call that may have taken
effect ends as `ok` or `unknown`, even if it would now be refused. Must not start a tool.
"""

from __future__ import annotations

import asyncio
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from callgate._abort_signals import AbortSignal, is_own_failure, settled
from callgate._json import canonical, decode, plain_bytes
from callgate._pipeline.call_state import CallState
from callgate._pipeline.host_code import HostCode
from callgate._pipeline.result_check import AttemptsResult, check
from callgate._pipeline.run_states import RunStates
from callgate._run_state.calls_in_doubt import Origin, UncertainCall
from callgate._run_state.event_bodies import arguments_hash
from callgate._run_state.run_recovery import why_unknown
from callgate._run_state.settlements import Settlement, did_happen, in_doubt_error
from callgate._runners.abandoned_code import AbandonedCalls
from callgate.calls import Note
from callgate.errors import ApprovalNeeded, CallFailed, OutcomeUnknown
from callgate.protocols import Journal, NamesWriters
from callgate.stage_types import ApprovedCall, Checked, ValidatedCall
from callgate.tools import BoundTool, Verified

__all__ = ["Fence", "PossibleRepeat", "UnknownOutcomes", "as_unknown_if_doubtful", "ask_verify", "refuse_other_arguments"]

_ENDED = {"tool_crashed": "crashed", "timeout": "timed out", "killed": "was stopped"}
"""How a call with an unknown outcome ended, by its code; others raised an exception."""
_OR_HAPPEN = "; it may still happen, because the engine or worker that began it may only stand still"


class PossibleRepeat(Struct, frozen=True):
    """A call that must not start while an earlier one with the same effect may have happened."""

    tool: BoundTool
    key: str
    """The key that identifies the call in its run."""
    arguments: bytes
    """The final arguments of the earlier call, for `verify`; empty if they are not known."""
    common: str = "had the same arguments"
    """What both calls have in common, for the message."""


class UnknownOutcomes:
    """Settles unknown outcomes of the calls of one engine."""

    def __init__(self, host: HostCode, run_states: RunStates, fence: Fence) -> None:
        self._host = host
        self._run_states = run_states
        self._fence = fence

    async def rule_out_repeat(self, state: CallState, approved: ApprovedCall) -> Checked | None:
        """Prevent a call with an effect from starting while an identical earlier call may have happened.

        Returns:
            None if the call may start. If the tool's `verify` found that the earlier call did happen, the result of that call. It is the
            result of this call, too: if this call is handed in again with its key, it gets the same result and starts nothing.

        Raises:
            OutcomeUnknown: It is not known whether the earlier call happened.
        """
        repeat = PossibleRepeat(approved.call.tool, approved.key, approved.arguments_json)
        settled = self._result_if_happened(state, repeat, approved.encoded)
        if settled is not None:
            return settled
        doubt = state.run_state.in_doubt.find(approved.call.tool.name, approved.encoded)
        if doubt is None or approved.allowed_despite == doubt.uid:
            return None
        return await self.rule_out(state, repeat, doubt)

    async def answer_instead_of_human(self, state: CallState, call: ValidatedCall, asks: ApprovalNeeded) -> Checked | None:
        """Return the result of a call about which a human would be asked, if an identical call of its run is known to have taken effect.

        None if a human has to be asked. `asks.doubt` is emptied if the tool's `verify` finds that the identical call did not happen.
        """
        repeat, encoded = PossibleRepeat(call.tool, state.key, plain_bytes(call.arguments)), canonical(call.arguments)
        settled = self._result_if_happened(state, repeat, encoded)
        if settled is not None or not asks.doubt:
            return settled
        doubt = state.run_state.in_doubt.find(call.tool.name, encoded)
        assert doubt is not None
        try:
            checked = await self.rule_out(state, repeat, doubt)
        except OutcomeUnknown:
            return None
        if checked is None:
            asks.doubt = ""
        return checked

    def _result_if_happened(self, state: CallState, repeat: PossibleRepeat, encoded: bytes) -> Checked | None:
        """Return the result of a call whose equal happened according to an operator; None if there is none."""
        settled = state.run_state.in_doubt.find_confirmed(repeat.tool.name, encoded)
        if settled is None:
            return None
        self._run_states.tell_happened(settled.uid, _answering(state, repeat))
        return Checked(value=did_happen(repeat.tool.name, settled.uid, settled.by), attempts=0)

    async def rule_out(self, state: CallState, repeat: PossibleRepeat, doubt: UncertainCall, *, key_run: str = "") -> Checked | None:
        """Prevent a call from starting while this earlier call may have happened; see `rule_out_repeat`.

        Args:
            key_run: See `RunStates.settle`.
        """
        tool = repeat.tool
        ask = partial(ask_verify, tool, repeat.arguments, doubt.tool_key, self._host.hook_timeout_s, state.kill)
        found, may_still_act = await ask(), False
        if found.happened is False:
            may_still_act = not await self._fence.has_ended(doubt)
            found = found if may_still_act else await ask()  # once more, because the call may have acted before it ended
        if found.happened is None or may_still_act:
            raise in_doubt_error(tool.name, doubt.uid, repeat.common, _OR_HAPPEN if may_still_act else "")
        checked = await self._result_of_verify(tool, found) if found.happened else None
        if checked is None or checked.status == "ok":
            details = _answering(state, repeat) if checked is not None else None
            self._run_states.settle(doubt.uid, happened=found.happened, why="the tool verified it", details=details, key_run=key_run)
        return checked

    async def rule_out_second_start(self, state: CallState, call: ValidatedCall) -> Checked | None:
        """Decide whether a call that may have taken effect already may start again.

        Returns:
            None if the call may start (again); its result if the tool's `verify` says that it did happen.

        Raises:
            OutcomeUnknown: It is not known whether the call happened.
        """
        unfinished, tool = state.unfinished, call.tool
        assert unfinished is not None
        started = unfinished.started
        assert started is not None
        said = state.run_state.settled.pop(unfinished.uid, None)
        if said is not None:
            return self._result_if_settled(state, tool.name, said, started.key)
        is_same_tool = (started.tool, started.server) == (tool.name, tool.server)
        if is_same_tool and started.effect == tool.effect == "idempotent":
            state.doubt = state.run_state.reopen(unfinished.uid)
            return None
        ask = partial(ask_verify, tool, unfinished.arguments, started.tool_key, self._host.hook_timeout_s, state.kill)
        found = Verified(happened=None)
        if unfinished.arguments and is_same_tool:
            found = await ask()
        if found.happened is False:
            if unfinished.origin is None or not await self._fence.origin_has_ended(unfinished.origin):
                raise why_unknown(unfinished, f"The tool says that it has not happened{_OR_HAPPEN}.")
            found = await ask()  # once more, because the call may have acted before it ended
        if found.happened is True:
            checked = await self._result_of_verify(tool, found)
            if checked.status == "ok":
                self._run_states.settle(unfinished.uid, happened=True, why="the tool verified it")
            return checked
        if found.happened is None:
            raise why_unknown(unfinished)
        self._run_states.settle(unfinished.uid, happened=False, why="the tool verified it")
        state.doubtful = False
        return None

    def _result_if_settled(self, state: CallState, tool: str, said: Settlement, key: str) -> Checked | None:
        """Return the result of a resumed call that an operator has settled; None if it may start again."""
        if not said.happened:
            state.doubtful = False
            return None
        answers = {"call": state.uid, "key": key, "tool": tool, "arguments": arguments_hash(state.encoded)}
        self._run_states.tell_happened(state.uid, {"answers": answers})
        return Checked(value=did_happen(tool, state.uid, said.by), attempts=0)

    async def settle_by_verify(
        self, state: CallState, approved: ApprovedCall, doubtful: Checked, timeout_s: float, *, gone: bool
    ) -> Checked:
        """Ask the tool's `verify` about a call that has just failed with an unknown outcome, and return the call's result.

        Args:
            doubtful: The result to return if `verify` does not know.
            gone: Whether the call's code has certainly ended.
        """
        tool = approved.call.tool
        found = await ask_verify(tool, approved.arguments_json, approved.tool_key, timeout_s, state.kill)
        if found.happened is True:
            text = f"{tool.name} {_ENDED.get(doubtful.code or '', 'failed')}, and then verified that it had taken effect."
            verified = await self._result_of_verify(tool, found)
            return replace(verified, notes=(*verified.notes, Note(kind="warning", text=text)), attempts=doubtful.attempts)
        if found.happened is False and gone:
            state.started = False
            told = f"{tool.name} failed and verified that nothing happened; it may be sent again once the cause is gone."
            return replace(doubtful, status="error", error=told, code="not_done")
        return doubtful

    async def _result_of_verify(self, tool: BoundTool, found: Verified) -> Checked:
        """Return the call's result according to the tool's `verify`, which need not know what the call returned."""
        if found.result is None:
            return Checked(value=None, attempts=0)
        return check(tool, AttemptsResult(await self._host.read(found.result), 0), 0.0, self._host.redactor)


def _answering(state: CallState, repeat: PossibleRepeat) -> dict[str, object]:
    """Return the properties that identify a call that is never started because a settled outcome answers it."""
    return {"answers": {"call": state.uid, "key": repeat.key, "tool": repeat.tool.name, "arguments": state.asked_hash}}


def refuse_other_arguments(state: CallState, approved: ApprovedCall) -> None:
    """Check that a call that is started again with its key, and may have taken effect, has the same arguments.

    Raises:
        OutcomeUnknown: The arguments have changed.
    """
    unfinished = state.unfinished
    if not state.doubtful or unfinished is None or unfinished.started is None:
        return
    if arguments_hash(approved.encoded) != unfinished.started.arguments_hash:
        raise why_unknown(unfinished, "Its arguments would not be the same now.")


def as_unknown_if_doubtful(state: CallState, error: CallFailed) -> CallFailed:
    """Return the error for a call that is refused now: `OutcomeUnknown` if the call may have taken effect, else `error`."""
    if not state.doubtful or state.unfinished is None:
        return error
    if state.doubt is not None:
        state.run_state.in_doubt.add(*state.doubt)
    if isinstance(error, OutcomeUnknown):
        return error
    return why_unknown(state.unfinished, f"Starting it again was refused: {state.recorder.cut(error, 500)}")


async def ask_verify(tool: BoundTool, arguments: bytes, key: str, timeout_s: float, kill: AbortSignal) -> Verified:
    """Ask the tool about a call with these final arguments and this key. An error, a timeout, an invalid answer or a kill means unknown."""
    if not arguments:
        return Verified(happened=None)
    asking = asyncio.ensure_future(_call_verify(tool, arguments, key))
    try:
        answered = await settled(asking, kill, timeout_s)
    finally:
        asking.cancel()
    return asking.result() if answered else Verified(happened=None)


async def _call_verify(tool: BoundTool, arguments: bytes, key: str) -> Verified:
    try:
        found: object = await tool.tool.verify(decode(arguments), key)
    except BaseException as error:
        if not is_own_failure(error):
            raise
        return Verified(happened=None)
    return found if isinstance(found, Verified) and type(found.happened) is bool else Verified(happened=None)


_IN_PROCESS = frozenset({"inline", "thread"})


class Fence:
    """Decides whether the code of an earlier call can still act.

    Args:
        journal: Knows which of its writers have ended.
        behind: The uids of this engine's calls that have ended while their code is still running.
    """

    def __init__(self, journal: Journal, behind: AbandonedCalls) -> None:
        self._journal = journal
        self._behind = behind

    async def has_ended(self, doubt: UncertainCall) -> bool:
        """Return whether no code of this call can act any longer."""
        if doubt.origin is None:
            return doubt.gone and doubt.uid not in self._behind
        return await self.origin_has_ended(doubt.origin)

    async def origin_has_ended(self, origin: Origin) -> bool:
        """Return whether no code of a call that another engine started can act any longer.

        If that engine has ended but its worker has not, end the worker, which takes some seconds.
        """
        journal = self._journal
        if not isinstance(journal, NamesWriters) or not journal.has_ended(origin.writer):
            return False
        if origin.runner in _IN_PROCESS:
            return True
        if origin.runner != "process":
            return False
        from callgate._runners.process.orphaned_worker import end_worker

        return await end_worker(origin.worker)
