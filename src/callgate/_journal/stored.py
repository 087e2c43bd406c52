"""What every journal on a disk does in the same way: events go to the queue of commits, and are found in it and in the store.

Beside `commits`, which writes. Knows no database: that is `_stored`, which each kind of store has.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable

from callgate._journal.commits import Commits
from callgate.events import Draft, Event
from callgate.queries import EventQuery

__all__ = ["StoredJournal"]


class StoredJournal(ABC):
    """A journal whose events are committed by one queue."""

    _commits: Commits

    def append(self, draft: Draft) -> int:
        return self._commits.append(draft)

    async def durable(self, position: int) -> None:
        await self._commits.durable(position)

    def read(
        self, *, run: str | None = None, call: str | None = None, after: int = 0, limit: int | None = None, newest_first: bool = False
    ) -> Iterable[Event]:
        return self.find(EventQuery(run=run, call=call, after=after, limit=limit, newest_first=newest_first))

    def find(self, query: EventQuery) -> list[Event]:
        return self._commits.answered(query, self._stored)

    @abstractmethod
    def _stored(self, query: EventQuery, upto: int | None) -> list[Event]:
        """What is stored, up to a position."""
