"""A framework's calls in the journal: the id and the user with which a call is recorded. Must not know any framework."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import TypeVar

from msgspec.structs import replace

from callgate._json import decode
from callgate._run_in_thread import in_thread
from callgate._run_state.event_bodies import Received, ReceivedCall, ScopeFacts, decode_received
from callgate._secret_redaction import Redactor
from callgate.calls import RawCall, Scope
from callgate.event_queries import EventQuery
from callgate.events import Event
from callgate.protocols import Journal

__all__ = [
    "as_recorded",
    "events_of",
    "is_in_message",
    "is_in_tick",
    "made_for_same",
    "read_journal",
    "received_call",
    "recorded_arguments",
    "recorded_call_id",
    "recorded_principal",
    "recorded_scope",
    "was_made_for",
    "with_received",
]

T = TypeVar("T")
_MOST = 1_000
_MOST_ID = 200
_AT_ONCE = 200
"""Of how many calls the events are read in one query."""
_FOR_WHOM = ("principal", "actor", "workspace", "conversation")


async def read_journal(journal: Journal, read: Callable[[], T]) -> T:
    """Return what `read` finds in the journal. A journal on a server is read in a thread, if there is an event loop to block."""
    return await in_thread(read) if journal.remote and _in_event_loop() else read()


def recorded_call_id(given: str) -> str:
    """Return a framework's id of a call as the engine records it: the id itself, or its hash if the engine would not keep it unchanged."""
    if given.isascii() and given.isprintable() and len(given) <= _MOST_ID:
        return given
    return hashlib.sha256(given.encode("utf-8", "surrogatepass")).hexdigest()


def received_call(journal: Journal, uid: str) -> Received | None:
    """Return a call as the engine received it; None if that is not recorded."""
    received = journal.find(EventQuery(call=uid, kinds=("call.received",), limit=1))
    return next((decode_received(event.body) for event in received), None)


def events_of(journal: Journal, uids: Iterable[str], kind: str) -> Iterator[Event]:
    """Yield the events of this kind of many calls, the oldest first for each call."""
    left = iter(dict.fromkeys(uids))
    while some := tuple(islice(left, _AT_ONCE)):
        yield from journal.find(EventQuery(calls=some, kinds=(kind,)))


def with_received(journal: Journal, events: Iterable[Event]) -> Iterator[tuple[Event, Received]]:
    """Yield events with their calls as the engine received them, which are read for many events in one query."""
    left = iter(events)
    while some := list(islice(left, _AT_ONCE)):
        found = events_of(journal, (event.call for event in some), "call.received")
        received = {event.call: decode_received(event.body) for event in found}
        yield from ((event, received[event.call]) for event in some if event.call in received)


def is_in_message(call: Received, scope: Scope) -> bool:
    """Return whether a recorded call was made in the message of `scope`."""
    return _message(call) == scope.message_id


def is_in_tick(call: Received, scope: Scope, redactor: Redactor | None) -> bool:
    """Return whether a recorded call was made in the tick of `scope`."""
    now = as_recorded(RawCall(name=""), scope, redactor).scope or {}
    return (call.scope or {}).get("tick", "") == now.get("tick", "")


def recorded_principal(journal: Journal, call: RawCall, scope: Scope, redactor: Redactor | None) -> str:
    """Return the principal with which the same call was recorded; that of `scope` if it was not recorded or had other arguments."""
    now = as_recorded(call, scope, redactor)
    for earlier in _received_in(journal, scope.run):
        if _call_identity(earlier) == _call_identity(now):
            return scope.principal if _principal(earlier) == _principal(now) else _principal(earlier)
    return scope.principal


def recorded_scope(journal: Journal, call: RawCall, scope: Scope, redactor: Redactor | None) -> Scope:
    """Return the scope of a call, for whom the same call was recorded in the same tick; `scope` if it was not or had other arguments."""
    now = as_recorded(call, scope, redactor)
    new = now.scope or {}
    for earlier in _received_in(journal, scope.run):
        old = earlier.scope or {}
        if _call_identity(earlier) == _call_identity(now) and old.get("tick") == new.get("tick"):
            return replace(scope, **{name: str(old.get(name, "")) for name in _FOR_WHOM if old.get(name) != new.get(name)})
    return scope


def recorded_arguments(journal: Journal, name: str, call_id: str, scope: Scope) -> Mapping[str, object] | None:
    """Return the arguments with which a call of a message was made last; None if it was not, or if they are too large for the record."""
    for earlier in _received_in(journal, scope.run):
        if (earlier.name, earlier.id) == (name, recorded_call_id(call_id)) and is_in_message(earlier, scope):
            try:
                arguments = decode(earlier.arguments)
            except ValueError:
                return None
            return arguments if isinstance(arguments, dict) else None
    return None


def was_made_for(call: Received, scope: Scope, redactor: Redactor | None) -> bool:
    """Return whether a recorded call was made for the same principal, actor, workspace and conversation as those of `scope`."""
    return _caller_identity(call) == _caller_identity(as_recorded(RawCall(name=""), scope, redactor))


def made_for_same(journal: Journal, uid: str, other: str) -> bool:
    """Return whether two recorded calls were made for the same principal, actor, workspace and conversation."""
    one, two = received_call(journal, uid), received_call(journal, other)
    return one is not None and two is not None and _caller_identity(one) == _caller_identity(two)


def _caller_identity(call: Received) -> tuple[str, ...]:
    return tuple(str((call.scope or {}).get(name, "")) for name in _FOR_WHOM)


def _call_identity(call: Received) -> tuple[object, ...]:
    """Return the values that identify a call. A framework may pass its arguments as the model's text or as values."""
    try:
        arguments = decode(call.arguments)
    except ValueError:
        arguments = call.arguments
    return _message(call), call.id, call.name, arguments, call.arguments_bytes, call.arguments_sha256


def as_recorded(call: RawCall, scope: Scope, redactor: Redactor | None) -> Received:
    """Return a call as the engine would record it."""
    body = ReceivedCall(call, call.arguments, ScopeFacts(scope, redactor), "", redactor).encode()
    return decode_received(body if redactor is None else redactor.redact(body))


def _received_in(journal: Journal, run: str) -> Iterator[Received]:
    events = journal.find(EventQuery(run=run, kinds=("call.received",), newest_first=True, limit=_MOST))
    return (decode_received(event.body) for event in events)


def _message(call: Received) -> str:
    return str((call.scope or {}).get("message_id", ""))


def _principal(call: Received) -> str:
    return str((call.scope or {}).get("principal", ""))


def _in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
