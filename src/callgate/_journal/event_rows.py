"""Convert events to rows and back, and compute the hash chain: each hash covers the row and the hash of the previous event.

The format is the same in every store, so that a journal can be moved and still be verified. Knows no database.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from callgate._hash_chain import hash_of, is_as_written
from callgate._json import canonical
from callgate.errors import UsageError
from callgate.event_queries import CallFacts, facts_of, merged
from callgate.events import Event

__all__ = [
    "COLUMNS",
    "GENESIS",
    "ChainFault",
    "Unreadable",
    "Value",
    "calls_of",
    "causes_of",
    "chain",
    "event_to_row",
    "row_to_event",
    "verify",
]

COLUMNS = ("position", "run", "seq", "kind", "call", "attempt", "parents", "at_ns", "mono", "epoch", "version", "body", "previous", "hash")
GENESIS = "0" * 64

Value = str | int | float | bytes
_parents = msgspec.json.Decoder(tuple[int, ...]).decode


class ChainFault(Struct, frozen=True):
    """The first event at which verification fails."""

    position: int
    """The event's position; 0 if the fault is not one event's, see `why`."""
    why: str


class Unreadable(UsageError):
    """Stored data cannot be read as an event: the disk or another program has changed the file."""


def event_to_row(event: Event) -> tuple[Value, ...]:
    parents = canonical(event.parents).decode()
    head = (event.position, event.run, event.seq, event.kind, event.call, event.attempt, parents, event.at_ns, event.mono)
    return (*head, event.epoch, event.version, event.body, event.previous, event.hash)


def row_to_event(row: Sequence[Any]) -> Event:
    """Return the event in a row. The fields are spelled out for speed, because resuming a run reads all its events."""
    position, run, seq, kind, call, attempt, parents, at_ns, mono, epoch, version, body, previous, hash = row
    return Event(
        position=position,
        run=run,
        seq=seq,
        kind=kind,
        call=call,
        attempt=attempt,
        parents=_parents(parents),
        at_ns=at_ns,
        mono=mono,
        epoch=epoch,
        version=version,
        body=body,
        previous=previous,
        hash=hash,
    )


def causes_of(events: Iterable[Event]) -> list[tuple[int, int]]:
    """Return the parents of events, as pairs (parent, child)."""
    return [(parent, event.position) for event in events for parent in dict.fromkeys(event.parents)]


def calls_of(events: Iterable[Event]) -> list[tuple[str, str, str, str, str, int]]:
    """Return the facts of each call in the events, as values for `ADD_CALL`."""
    calls: dict[str, CallFacts] = {}
    for event in events:
        facts = facts_of(event)
        if facts is not None:
            calls[event.call] = merged(calls.get(event.call), facts)
    return [(call, facts.tool, facts.actor, facts.principal, facts.conversation, int(facts.final)) for call, facts in calls.items()]


def chain(event: Event, previous: str, *, epoch: int, position: int, seq: int, parents: tuple[int, ...]) -> Event:
    """Return the event with its final position, number and parents, chained to the previous event.

    Args:
        previous: The hash of the previous event.
        epoch: The epoch of the lease under which the event is written.
    """
    hash = hash_of(event, previous, epoch, position, seq, parents)
    return msgspec.structs.replace(event, position=position, seq=seq, parents=parents, previous=previous, epoch=epoch, hash=hash)


def verify(events: Iterable[Event], *, before: Event | None = None) -> ChainFault | None:
    """Check hashes, positions, sequence and parents; return the first fault, or None.

    Args:
        events: All events of a journal, or the last ones, in order.
        before: The event before the first of `events`, which is not checked; None: `events` begins with the journal's first event.
    """
    previous, expected = (before.hash, before.position + 1) if before is not None else (GENESIS, 1)
    seqs: dict[str, int] = {}
    try:
        for event in events:
            seq = seqs.get(event.run, 0 if before is None else event.seq - 1) + 1
            seqs[event.run] = seq
            why = _fault(event, previous, expected, seq)
            if why:
                return ChainFault(event.position, why)
            previous, expected = event.hash, event.position + 1
    except Unreadable as error:
        return ChainFault(expected, f"it cannot be read: {error.__cause__}")
    return None


def _fault(event: Event, previous: str, expected: int, seq: int) -> str:
    if event.position != expected:
        return f"event {expected} is missing"
    if event.seq != seq:
        return f"its number in its run is {event.seq}, expected {seq}"
    if any(parent >= event.position for parent in event.parents):
        return "it names a cause that came after it"
    if event.previous != previous:
        return "it does not follow from the event before it"
    if not event.hash or not is_as_written(event):
        return "its content was changed"
    return ""
