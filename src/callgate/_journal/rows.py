"""How an event looks as a row, and how rows are chained: each hash covers the row and the hash before it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

import msgspec

from callgate._json import canonical
from callgate.events import Event

__all__ = ["COLUMNS", "GENESIS", "SCHEMA", "Broken", "chain", "event_of", "row_of", "verify"]

SCHEMA = """
CREATE TABLE IF NOT EXISTS events (
    position INTEGER PRIMARY KEY,
    run      TEXT    NOT NULL,
    seq      INTEGER NOT NULL,
    kind     TEXT    NOT NULL,
    call     TEXT    NOT NULL,
    attempt  INTEGER NOT NULL,
    parents  TEXT    NOT NULL,
    at_ns    INTEGER NOT NULL,
    mono     REAL    NOT NULL,
    epoch    INTEGER NOT NULL,
    version  INTEGER NOT NULL,
    body     BLOB    NOT NULL,
    previous TEXT    NOT NULL,
    hash     TEXT    NOT NULL,
    UNIQUE (run, seq)
) STRICT;
CREATE INDEX IF NOT EXISTS events_by_call ON events (call) WHERE call <> '';
CREATE UNIQUE INDEX IF NOT EXISTS one_end_per_call ON events (call)
    WHERE kind IN ('call.completed', 'call.restarted', 'call.aborted', 'call.suspended');
"""
COLUMNS = ("position", "run", "seq", "kind", "call", "attempt", "parents", "at_ns", "mono", "epoch", "version", "body", "previous", "hash")
GENESIS = "0" * 64

Value = str | int | float | bytes
_parents = msgspec.json.Decoder(tuple[int, ...]).decode


class Broken(msgspec.Struct, frozen=True):
    """The first event at which a journal does not verify."""

    position: int
    why: str


def row_of(event: Event) -> tuple[Value, ...]:
    parents = canonical(event.parents).decode()
    head = (event.position, event.run, event.seq, event.kind, event.call, event.attempt, parents, event.at_ns, event.mono)
    return (*head, event.epoch, event.version, event.body, event.previous, event.hash)


def event_of(row: Sequence[Value]) -> Event:
    fields = dict(zip(COLUMNS, row, strict=True))
    fields["parents"] = _parents(str(fields["parents"]))  # type: ignore[assignment]
    return msgspec.convert(fields, Event, builtin_types=(bytes,))


def chain(event: Event, previous: str) -> Event:
    """The event with its place in the chain."""
    return msgspec.structs.replace(event, previous=previous, hash=_hash(event, previous))


def _hash(event: Event, previous: str) -> str:
    head = (event.position, event.run, event.seq, event.kind, event.call, event.attempt, event.parents, event.at_ns)
    digest = hashlib.sha256(previous.encode())
    digest.update(canonical((*head, repr(event.mono), event.epoch, event.version, len(event.body))))
    digest.update(event.body)
    return digest.hexdigest()


def verify(events: Iterable[Event]) -> Broken | None:
    """Check hashes, positions, sequence and parents; None where everything holds."""
    previous, seqs, expected = GENESIS, dict[str, int](), 1
    for event in events:
        seq = seqs.get(event.run, 0) + 1
        seqs[event.run] = seq
        why = _fault(event, previous, expected, seq)
        if why:
            return Broken(event.position, why)
        previous, expected = event.hash, event.position + 1
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
    if event.hash != _hash(event, previous):
        return "its content was changed"
    return ""
