"""Settle whether a call whose outcome nobody knows took effect, before another like it may start.

Beside `again`, which keeps the doubts: here the tool is asked. Only its own `verify` and a human end a doubt; silence, an error and
nonsense leave it. Must not start a tool.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from callgate._json import decode
from callgate._pipeline.check import check
from callgate._pipeline.run import Ran
from callgate._signals import is_own_failure
from callgate.errors import OutcomeUnknown
from callgate.protocols import Execution
from callgate.route import ApprovedCall, Checked
from callgate.tools import BoundTool, Verified

if TYPE_CHECKING:
    from callgate._pipeline.flight import Flight

__all__ = ["Settling", "as_verified", "rule_out_repeat", "verified"]


class Settling(Protocol):
    """What settling a doubt needs from the engine."""

    hook_timeout_s: float

    def settle(self, uid: str, *, happened: bool, why: str, details: Mapping[str, object] | None = None) -> int | None: ...


async def rule_out_repeat(flight: Flight, approved: ApprovedCall, desk: Settling) -> Checked | None:
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
    found = await verified(tool, approved.encoded, doubt.key, desk.hook_timeout_s)
    if found.happened not in (True, False):
        raise OutcomeUnknown(
            f"{tool.name} was not run: {doubt.uid} had the same arguments and its outcome is not known: it may have"
            " happened. Check the real state first; if it did not happen, the operator can settle it and the call can be sent again.",
            details={"earlier_call": doubt.uid},
        )
    checked = as_verified(tool, found) if found.happened else None
    if checked is None or checked.status == "ok":
        details = _answering(flight, approved) if checked is not None else None
        desk.settle(doubt.uid, happened=found.happened, why="the tool verified it", details=details)
    return checked


def _answering(flight: Flight, approved: ApprovedCall) -> dict[str, object]:
    """By what a call is known again that never starts, because a settled fact is its answer."""
    return {"answers": {"call": flight.uid, "key": approved.key, "tool": approved.call.tool.name, "arguments": flight.asked_hash}}


def as_verified(tool: BoundTool, found: Verified) -> Checked:
    """What the tool's `verify` says the call gave."""
    return check(tool, Ran(Execution(status="returned", value=found.result), 0), 0.0)


async def verified(tool: BoundTool, encoded: bytes, key: str, timeout_s: float) -> Verified:
    """What the tool says of a call with these final arguments and this key; its error, its silence and nonsense say nothing."""
    try:
        async with asyncio.timeout(timeout_s):
            found: object = await tool.tool.verify(decode(encoded), key)
    except BaseException as error:
        if not is_own_failure(error):
            raise
        return Verified(happened=None)
    return found if isinstance(found, Verified) else Verified(happened=None)
