"""The hash chain of events: each hash covers the event's content and the hash of the previous event.

Used by the journals, which chain the events that they write, and by the replay, which verifies the events that it reads without
knowing journals.
"""

from __future__ import annotations

import hashlib

from callgate._json import canonical
from callgate.events import Event

__all__ = ["hash_of", "is_as_written"]


def hash_of(event: Event, previous: str, epoch: int, position: int, seq: int, parents: tuple[int, ...]) -> str:
    """Return the hash of an event at the given position."""
    head = (position, event.run, seq, event.kind, event.call, event.attempt, parents, event.at_ns)
    digest = hashlib.sha256(previous.encode())
    digest.update(canonical((*head, repr(event.mono), epoch, event.version, len(event.body))))
    digest.update(event.body)
    return digest.hexdigest()


def is_as_written(event: Event) -> bool:
    """Return whether an event's content matches its recorded hash; True if it has none, as in a run file."""
    return not event.hash or event.hash == hash_of(event, event.previous, event.epoch, event.position, event.seq, event.parents)
