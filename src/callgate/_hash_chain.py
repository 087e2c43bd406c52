"""What an event is chained by: a hash over its content and over the hash of the event before it.

Below the journals, which chain what they write, and the replay, which may not know them and looks whether what it reads is what was
written.
"""

from __future__ import annotations

import hashlib

from callgate._json import canonical
from callgate.events import Event

__all__ = ["hash_of", "is_as_written"]


def hash_of(event: Event, previous: str, epoch: int, position: int, seq: int, parents: tuple[int, ...]) -> str:
    """The hash of an event in the place that it is given."""
    head = (position, event.run, seq, event.kind, event.call, event.attempt, parents, event.at_ns)
    digest = hashlib.sha256(previous.encode())
    digest.update(canonical((*head, repr(event.mono), epoch, event.version, len(event.body))))
    digest.update(event.body)
    return digest.hexdigest()


def is_as_written(event: Event) -> bool:
    """Whether an event's content has the hash that it was written with; True where it has none, as in a file of a recorded run."""
    return not event.hash or event.hash == hash_of(event, event.previous, event.epoch, event.position, event.seq, event.parents)
