"""The inbox of a journal: messages to a run from processes that do not hold the run's lease.

Adding a message requires no lease and writes no event. The holder of the run records each message in an event, exactly
once.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from msgspec import Struct

__all__ = ["Inbox", "InboxMessage"]


class InboxMessage(Struct, frozen=True, kw_only=True):
    """A request of another process concerning a run."""

    id: int
    run: str
    kind: str
    """`approve`, `edit` (approve with other arguments), `deny`, `happened`, `not_happened`, `stop` or `kill`. The holder of the run refuses
    any other value."""
    target: str
    """The id of the approval, of the call, or of the run."""
    actor: str
    reason: str
    """The reason. For an `edit`, a JSON object with `arguments` and `reason`."""
    at_ns: int
    """When the message was added, in UTC nanoseconds by the sender's clock."""
    cause: int = 0
    """The position of the event that the message refers to: the question, or the run's latest event; 0 if there is
    none.
    """
    replaced_by: int = 0
    """The id of a later answer to the same question, if both were in the inbox when they were read; 0 otherwise."""


class Inbox(Protocol):
    """Stores messages to runs until an event has recorded them.

    A message to a run that nobody holds waits for the next holder.
    """

    def add(self, *, run: str, kind: str, target: str, actor: str, reason: str, at_ns: int) -> int:
        """Store a message and return its id. Must be called within a commit of the store."""
        ...

    def pending(self, holder: int, *, known: Collection[int] = (), limit: int = 1_024) -> list[InboxMessage]:
        """Return the messages to the holder's runs that no event has recorded yet.

        All `kill` messages come first, then all `stop` messages, then the others; each group is in the order of
        arrival.

        Args:
            holder: The number of the opened journal. Its expired leases count, too.
            known: The ids of messages to leave out.
            limit: The maximum number of messages.
        """
        ...

    def unrecorded(self, run: str) -> list[InboxMessage]:
        """Return the messages to a run that no event has recorded yet, in the order of arrival, without their causes."""
        ...

    def position(self, id: int) -> int:
        """Return the position of the event that recorded the message; 0 if there is none, or no such message."""
        ...

    def mark_recorded(self, id: int, position: int) -> None:
        """Store the position of the event that recorded the message, unless there is one already.

        Must be called within the commit that stores the event.
        """
        ...
