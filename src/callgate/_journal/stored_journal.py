"""The base class of journals with a store: events go to the commit queue; queries cover the queue and the store.

Knows no database: each kind of store implements `_find_stored`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable

from callgate._journal.commit_batching import CommitQueue
from callgate._journal.journal_watcher import JournalWatcher
from callgate.event_queries import EventQuery
from callgate.events import Draft, Event
from callgate.protocols import RunWatcher

__all__ = ["StoredJournal"]


class StoredJournal(ABC):
    """A journal whose events go through one commit queue."""

    remote = False
    shared = True
    _commits: CommitQueue
    _watcher: JournalWatcher

    def append(self, draft: Draft) -> int:
        return self._commits.append(draft)

    async def durable(self, position: int) -> None:
        await self._commits.durable(position)

    @property
    def crowded(self) -> bool:
        """See `QueuedJournal`."""
        return self._commits.crowded

    async def wait_for_capacity(self) -> None:
        """See `QueuedJournal`."""
        await self._commits.wait_for_capacity()

    def final_position(self, position: int) -> int:
        return self._commits.final_position(position)

    async def acquire_lease(self, run: str) -> bool:
        return await self._commits.acquire_lease(run)

    def offer_lease(self, run: str) -> None:
        """See `callgate.protocols.OffersLeases`."""
        self._commits.offer_lease(run)

    def release_lease(self, run: str) -> None:
        self._commits.release_lease(run)

    def watch(self, watcher: RunWatcher) -> None:
        self._watcher.set(watcher)
        self._commits.watch_inbox()

    def read(
        self, *, run: str | None = None, call: str | None = None, after: int = 0, limit: int | None = None, newest_first: bool = False
    ) -> Iterable[Event]:
        return self.find(EventQuery(run=run, call=call, after=after, limit=limit, newest_first=newest_first))

    def find(self, query: EventQuery) -> list[Event]:
        return self._commits.find(query, self._find_stored)

    @abstractmethod
    def _find_stored(self, query: EventQuery) -> list[Event]:
        """Return the stored events that match the query."""
