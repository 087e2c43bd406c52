"""Read a journal while others write to it: the protocol of readers, and the functions that all readers share. Never writes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Protocol

from callgate._journal.event_rows import ChainFault, Unreadable, verify
from callgate.errors import UsageError
from callgate.event_queries import EventQuery
from callgate.events import Event

__all__ = ["JournalReader", "is_url", "merge_pending", "select_and_limit", "verify_events"]

Find = Callable[[EventQuery], Iterable[Event]]


class JournalReader(Protocol):
    """A journal opened for reading only, while others may write to it."""

    def find(self, query: EventQuery) -> Iterator[Event]:
        """Yield the committed events that match the query, while they are fetched."""
        ...

    def verify(self, *, tail: int | None = None) -> ChainFault | None:
        """Return the first event at which verification fails, or None. If `tail` is given, only the last `tail` events are checked."""
        ...

    def damage(self) -> str:
        """Return the damage that a quick check finds in the store; empty if there is none. `verify` checks the events."""
        ...

    def close(self) -> None: ...


def is_url(where: object) -> bool:
    """Return whether `where` is the address of a journal on a server."""
    return isinstance(where, str) and where.startswith(("postgresql://", "postgres://"))


def select_and_limit(events: Iterable[Event], query: EventQuery) -> Iterator[Event]:
    """Apply the parts of a query that the store cannot: the condition on a field of the body, and then the limit."""
    if query.field is None:
        return iter(events)
    return islice((event for event in events if query.holds(event)), query.limit)


def merge_pending(query: EventQuery, fresh: list[Event], stored: Callable[[EventQuery], list[Event]]) -> list[Event]:
    """Return the stored events that match the query, together with events that were pending when the store was asked.

    Args:
        fresh: The pending events that match the query, the oldest first.
    """
    if query.newest_first and query.limit is not None and len(fresh) >= query.limit:
        return fresh[: -query.limit - 1 : -1]
    found = stored(query)
    if fresh:  # some may have been written since
        there = {(event.at_ns, event.mono, event.kind, event.call) for event in found}
        fresh = [event for event in fresh if (event.at_ns, event.mono, event.kind, event.call) not in there]
    return ([*reversed(fresh), *found] if query.newest_first else [*found, *fresh])[: query.limit]


def verify_events(find: Find, tail: int | None) -> ChainFault | None:
    """Check all events, or the last `tail` of them.

    Raises:
        UsageError: `tail` is not a number of events.
    """
    if tail is not None and tail < 1:
        raise UsageError(f"The last {tail} events cannot be checked. Give a number from 1, or none for all.")
    if tail is None:
        return verify(find(EventQuery()))
    try:
        last = list(find(EventQuery(newest_first=True, limit=1)))
        if not last or last[0].position <= tail:
            return verify(find(EventQuery()))
        (before,) = find(EventQuery(after=last[0].position - tail - 1, limit=1))
    except Unreadable:
        return verify(find(EventQuery()))  # which finds the position
    return verify(find(EventQuery(after=before.position)), before=before)
