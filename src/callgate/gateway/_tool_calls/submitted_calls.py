"""A call as it was submitted to the engine, and how it is read from the journal.

The conversation of a call of a client is the call's own id, so that calls of one client run side by side. Knows no client and no result.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from callgate._json import decode
from callgate._option_checks import without_check
from callgate._run_state.event_bodies import decode_received
from callgate.calls import RawCall, Scope
from callgate.events import Event
from callgate.gateway._client_calls import RecordedCall

__all__ = ["SubmittedCall", "recorded_call", "submitted_call"]

_ORIGIN = "mcp"
_raw_call = without_check(RawCall, RawCall(name="", origin=_ORIGIN))
_scope = without_check(Scope, Scope())


class SubmittedCall(Struct, frozen=True):
    """A call as it was submitted, and is submitted again after its approval."""

    raw: RawCall
    scope: Scope
    uid: str = ""
    """The engine's id of a call that was read from the journal."""
    whole: bool = True
    """Whether the arguments are complete. The journal does not have large ones as a whole."""
    made_again: bool = False
    """Whether a client makes it again, after its approval was asked for."""

    @property
    def id(self) -> str:
        return self.raw.id


def submitted_call(recorded: RecordedCall, principal: str, tool: str, arguments: dict[str, Any], workspace: str) -> SubmittedCall:
    """Return the call with this id and run, as it is submitted to the engine."""
    raw = _raw_call(name=tool, arguments=arguments, id=recorded.call)
    return SubmittedCall(raw, _scope(run=recorded.run, conversation=recorded.call, principal=principal, workspace=workspace))


def recorded_call(event: Event, workspace: str) -> SubmittedCall | None:
    """Return the call of `call.received`; None if it is not the call of a client in this workspace."""
    try:
        received = decode_received(event.body)
    except msgspec.DecodeError:
        return None
    scope = received.scope or {}
    is_of_client = received.origin == _ORIGIN and scope.get("conversation") == received.id and scope.get("workspace", "") == workspace
    if not is_of_client:
        return None
    arguments = None if received.arguments_bytes else _object_in(received.arguments)
    raw = RawCall(name=received.name, arguments=arguments or {}, id=received.id, origin=_ORIGIN)
    made = Scope(run=event.run, conversation=received.id, principal=str(scope.get("principal", "")), workspace=workspace)
    return SubmittedCall(raw, made, event.call, arguments is not None)


def _object_in(text: str) -> dict[str, Any] | None:
    try:
        found = decode(text)
    except msgspec.DecodeError:
        return None
    return found if isinstance(found, dict) else None
