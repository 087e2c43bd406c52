"""The inbox of a journal: messages to a run from processes that do not hold the run's lease.

Adding a message needs no lease and writes no event. The holder of the run records each message in an event, exactly once.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from msgspec import Struct

__all__ = ["Inbox", "InboxMessage"]


class InboxMessage(Struct, frozen=True, kw_only=True):
    """What another process wants of a run."""

    id: int
    run: str
    kind: str
    """`approve`, `edit` (approve with other arguments), `deny`, `happened`, `not_happened`, `stop` or `kill`. The holder of the run refuses
    any other value."""
    target: str
    """The approval, the call, or the run."""
    actor: str
    reason: str
    """Of an `edit`, a JSON object with `arguments` and `reason`."""
    at_ns: int
    """When it was added, in UTC nanoseconds by the sender's clock."""
    cause: int = 0
    """The position of the event that it is about: the question, or the run's latest; 0: there is none."""


class Inbox(Protocol):
    """Messages to runs, each until an event has recorded it. A message to a run that nobody holds waits for the next holder."""

    def add(self, *, run: str, kind: str, target: str, actor: str, reason: str, at_ns: int) -> int:
        """Keep a message and return its id. Within a commit of the store."""
        ...

    def pending(self, holder: int, *, known: Collection[int] = (), limit: int = 1_024) -> list[InboxMessage]:
        """Return messages that no event has recorded yet, to runs whose lease is this holder's.

        Every `kill` comes first and every `stop` next, each in the order of their arrival.

        Args:
            holder: The number of the opened journal; expired leases count too.
            known: Ids to leave out.
            limit: How many to return at most.
        """
        ...

    def position(self, id: int) -> int:
        """Return the position of the event that recorded the message; 0: none has, or there is no such message."""
        ...

    def mark_recorded(self, id: int, position: int) -> None:
        """Note which event recorded the message, unless one has already. Within the commit that keeps the event."""
        ...
