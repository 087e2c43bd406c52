"""Settle whether a call whose outcome nobody knows took effect, before it or another like it may start.

Beside `again`, which keeps the doubts: here the tool is asked. Only its own `verify` and a human end a doubt; silence, an error and
nonsense leave it, and "did not happen" counts only where the earlier attempt can act no more (`fencing`). Of the calls that an earlier
engine left without an end, a read runs again, an idempotent call again under the same key and with the same final arguments, and a `once`
call whose intent is on record only if `verify` says that it did not happen. What may have taken effect ends as `ok` or `unknown`, whatever
refuses it now. Must not start a tool.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Protocol

from msgspec.structs import replace

from callgate._abort_signals import AbortSignal, is_own_failure, settled
from callgate._json import decode
from callgate._pipeline.check import check
from callgate._pipeline.fencing import Fence
from callgate._pipeline.flight import Flight
from callgate._pipeline.record import arguments_hash
from callgate._pipeline.run import Ran
from callgate._pipeline.unfinished import why_unknown
from callgate._redact import Redactor
from callgate.calls import Note
from callgate.errors import CallFailed, OutcomeUnknown
from callgate.protocols import Execution
from callgate.route import ApprovedCall, Checked, ValidatedCall
from callgate.tools import BoundTool, Verified

__all__ = ["Settling", "refuse_other_arguments", "rule_out_repeat", "rule_out_second_start", "settle_by_verify", "told_as_unknown"]


_OR_HAPPEN = ", but it may still happen, because the engine or worker that began it may only stand still"


class Settling(Protocol):
    """What settling a doubt needs from the engine."""

    hook_timeout_s: float

    @property
    def redactor(self) -> Redactor | None: ...

    async def read(self, value: object) -> Execution: ...
    def settle(self, uid: str, *, happened: bool, why: str, details: Mapping[str, object] | None = None) -> int | None: ...


async def rule_out_repeat(flight: Flight, approved: ApprovedCall, desk: Settling, fence: Fence) -> Checked | None:
    """Let no call with an effect start while an earlier one like it may have happened.

    Returns:
        None where it may start; the earlier call's result where the tool's `verify` found that it did happen. That is the answer to this
        call too, so that whoever hands it in again under its key gets it again, and starts nothing.

    Raises:
        OutcomeUnknown: Nobody knows yet.
    """
    doubt = flight.state.doubt(approved)
    if doubt is None or approved.allowed_by:
        return None
    tool = approved.call.tool
    ask = partial(_verified, tool, approved.encoded, doubt.key, desk.hook_timeout_s, flight.kill)
    found, may_still_act = await ask(), False
    if found.happened is False:
        may_still_act = not await fence.has_ended(doubt)
        found = found if may_still_act else await ask()  # again: it may have acted before it ended
    if found.happened is None or may_still_act:
        raise OutcomeUnknown(
            f"{tool.name} was not run: {doubt.uid} had the same arguments and its outcome is not known: it may have"
            f" happened{_OR_HAPPEN if may_still_act else ''}. Check the real state first; if it did not happen, the operator can settle it"
            " and the call can be sent again.",
            details={"earlier_call": doubt.uid},
        )
    checked = await _as_verified(tool, found, desk) if found.happened else None
    if checked is None or checked.status == "ok":
        details = _answering(flight, approved) if checked is not None else None
        desk.settle(doubt.uid, happened=found.happened, why="the tool verified it", details=details)
    return checked


def _answering(flight: Flight, approved: ApprovedCall) -> dict[str, object]:
    """By what a call is known again that never starts, because a settled fact is its answer."""
    return {"answers": {"call": flight.uid, "key": approved.key, "tool": approved.call.tool.name, "arguments": flight.asked_hash}}


async def rule_out_second_start(flight: Flight, call: ValidatedCall, desk: Settling, fence: Fence) -> Checked | None:
    """Decide about a call that may have taken effect already.

    Returns:
        None where it may start (again); what it gave where the tool's `verify` says that it did happen.

    Raises:
        OutcomeUnknown: Nobody knows whether it happened.
    """
    unfinished, tool = flight.unfinished, call.tool
    assert unfinished is not None
    started = unfinished.started
    assert started is not None
    if started.tool == tool.name and started.effect == tool.effect == "idempotent":
        flight.doubt = flight.state.reopen(unfinished.uid)
        return None
    ask = partial(_verified, tool, unfinished.arguments, started.key, desk.hook_timeout_s, flight.kill)
    found = Verified(happened=None)
    if unfinished.arguments and started.tool == tool.name:
        found = await ask()
    if found.happened is False:
        if unfinished.origin is None or not await fence.origin_has_ended(unfinished.origin):
            raise why_unknown(unfinished, f"The tool says that it has not happened{_OR_HAPPEN}.")
        found = await ask()  # again: it may have acted before it ended
    if found.happened is True:
        checked = await _as_verified(tool, found, desk)
        if checked.status == "ok":
            desk.settle(unfinished.uid, happened=True, why="the tool verified it")
        return checked
    if found.happened is None:
        raise why_unknown(unfinished)
    desk.settle(unfinished.uid, happened=False, why="the tool verified it")
    flight.doubtful = False
    return None


def refuse_other_arguments(flight: Flight, approved: ApprovedCall) -> None:
    """Let a call that may have taken effect start again under its key only with the arguments that it had.

    Raises:
        OutcomeUnknown: They are others now.
    """
    unfinished = flight.unfinished
    if not flight.doubtful or unfinished is None or unfinished.started is None:
        return
    if arguments_hash(approved.encoded) != unfinished.started.arguments_hash:
        raise why_unknown(unfinished, "Its arguments would not be the same now.")


def told_as_unknown(flight: Flight, error: CallFailed) -> CallFailed:
    """What to say of a call that something refuses now: where it may have taken effect, that nobody knows."""
    if not flight.doubtful or flight.unfinished is None:
        return error
    if flight.doubt is not None:
        flight.state.uncertain.update([flight.doubt])
    if isinstance(error, OutcomeUnknown):
        return error
    return why_unknown(flight.unfinished, f"Starting it again was refused: {flight.writer.cut(error, 500)}")


async def _as_verified(tool: BoundTool, found: Verified, desk: Settling) -> Checked:
    """What the tool's `verify` says the call gave."""
    return check(tool, Ran(await desk.read(found.result), 0), 0.0, desk.redactor)


async def settle_by_verify(
    flight: Flight, approved: ApprovedCall, doubtful: Checked, desk: Settling, timeout_s: float, *, gone: bool
) -> Checked:
    """Ask the tool's `verify` about a call that has just failed in doubt, and return what it came to.

    Args:
        doubtful: What it comes to where `verify` cannot tell.
        gone: Whether the call's code has certainly ended.
    """
    tool = approved.call.tool
    found = await _verified(tool, approved.encoded, approved.key, timeout_s, flight.kill)
    if found.happened is True:
        failure = (doubtful.details or {}).get("exception", "a crash of its process")
        text = f"{tool.name} ended with {failure}, and then verified that it had taken effect."
        verified = await _as_verified(tool, found, desk)
        return replace(verified, notes=(*verified.notes, Note(kind="warning", text=text)), attempts=doubtful.attempts)
    if found.happened is False and gone:
        flight.started = False
        told = f"{tool.name} failed and verified that nothing happened; it may be sent again once the cause is gone."
        return replace(doubtful, status="error", error=told, code="not_done")
    return doubtful


async def _verified(tool: BoundTool, encoded: bytes, key: str, timeout_s: float, kill: AbortSignal) -> Verified:
    """What the tool says of a call with these final arguments and this key; its error, its silence, nonsense and a kill say nothing."""
    asking = asyncio.ensure_future(_answer(tool, encoded, key))
    try:
        answered = await settled(asking, kill, timeout_s)
    finally:
        asking.cancel()
    return asking.result() if answered else Verified(happened=None)


async def _answer(tool: BoundTool, encoded: bytes, key: str) -> Verified:
    try:
        found: object = await tool.tool.verify(decode(encoded), key)
    except BaseException as error:
        if not is_own_failure(error):
            raise
        return Verified(happened=None)
    return found if isinstance(found, Verified) and type(found.happened) is bool else Verified(happened=None)
