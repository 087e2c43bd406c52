"""The result of a call whose request the gateway ends, or whose task its client cancels, before the tool has answered.

It ends requests when their session is closed, their principal is removed, or it stops. What had happened until then is on record: a call
that may have taken effect is reported as `unknown`, never as a plain error.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Struct

from callgate.events import Event
from callgate.gateway._requests.cancellable_requests import WHY_ENDED
from callgate.gateway._tool_calls.tool_results import error_result
from callgate.mcp._connection import Message

__all__ = ["cancelled_outcome", "ended_result", "unread_result"]

_CODE: Final = "request_ended"


class _Start(Struct):
    tool: str
    effect: str


_decode_start = msgspec.json.Decoder(_Start).decode


def ended_result(started: Event | None) -> Message:
    """Return the result of a call that has no recorded one.

    Args:
        started: The event of its last start; None if it was not started.
    """
    if started is None:
        text = f"The call has not run: the gateway has ended the request before, {WHY_ENDED}. It may be made again."
        return error_result(text, {"status": "error", "failure": "not_started", "code": _CODE})
    start = _decode_start(started.body)
    text = f"The gateway has ended the request while {start.tool} ran, {WHY_ENDED}."
    if start.effect == "none":
        outcome = {"status": "error", "failure": "killed", "code": _CODE, "uid": started.call}
        return error_result(f"{text} {start.tool} only reads, so the call may be made again.", outcome)
    return error_result(f"{text} {_advice_in_doubt(started)}", _unknown_outcome(started))


def unread_result() -> Message:
    """Return the result of a call whose record cannot be read, so that it is not known whether it was started."""
    text = (
        f"The gateway has ended the request, {WHY_ENDED}, and cannot read at the moment what is on record of the call. Its operator is told"
        " why. It may have taken effect: check that before you make the call again."
    )
    return error_result(text, {"status": "unknown", "failure": "outcome_unknown", "code": _CODE})


def cancelled_outcome(started: Event | None) -> tuple[str, Message]:
    """Return the outcome of a call that its client has cancelled before it was answered: as text, and as data.

    Args:
        started: The event of its last start; None if it was not started.
    """
    if started is None:
        return "The call has not run.", {"status": "error", "failure": "not_started", "code": _CODE}
    start = _decode_start(started.body)
    text = f"The call was cancelled while {start.tool} ran."
    if start.effect == "none":
        return f"{text} {start.tool} only reads.", {"status": "error", "failure": "killed", "code": _CODE, "uid": started.call}
    return f"{text} {_advice_in_doubt(started)}", _unknown_outcome(started)


def _advice_in_doubt(started: Event) -> str:
    return (
        "It may have taken effect: check that before you make the call again. An operator can record what has happened with"
        f" `callgate settle {started.call} --journal FILE`."
    )


def _unknown_outcome(started: Event) -> Message:
    return {"status": "unknown", "failure": "outcome_unknown", "code": _CODE, "uid": started.call}
