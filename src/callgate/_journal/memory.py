"""Events in memory: complete and ordered, gone with the process.

Several engines of one process may share the events, each through a journal object of its own: each run has one holder then, and an inbox,
as in a stored journal. Nothing waits for anything here, and no thread runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator

from callgate._clock import Clock, SystemClock
from callgate._journal.event_rows import ChainFault
from callgate._journal.journal_inbox import JournalInbox
from callgate._journal.leases import Leases
from callgate._journal.memory_store import MemoryStore
from callgate._journal.watchers import Watchers
from callgate.errors import LeaseLost, RunHeld, UsageError
from callgate.events import Draft, Event, is_leased
from callgate.protocols import JournalStatus, RunWatcher
from callgate.queries import EventQuery, select

__all__ = ["MemoryJournal", "MemoryReader"]

_TAKEN = "Run '{run}' was taken over by another engine of this process. Nothing more of it is recorded or started here."


class MemoryJournal:
    """A `Journal` in memory.

    Args:
        most: How many events are kept; beyond it the oldest are forgotten, and `forgotten` says how many.
        shared: Let other engines of the process share the events, and `callgate.inbox` send messages to their runs.
        shared_with: A journal that was made with `shared=True`; this one reads and writes the same events. `most` is that one's.

    Raises:
        UsageError: `shared_with` is not shared.
    """

    strength = "memory"
    remote = False

    def __init__(
        self, clock: Clock | None = None, *, most: int = 100_000, shared: bool = False, shared_with: MemoryJournal | None = None
    ) -> None:
        if shared_with is not None:
            shared_with.require_shared()
        self.shared = shared or shared_with is not None
        """See `Journal.shared`."""
        clock = clock or SystemClock()
        self._wall_ns = clock.wall_ns
        self._monotonic = clock.monotonic
        self.store: MemoryStore = MemoryStore(most) if shared_with is None else shared_with.store
        """Events, leases and inbox."""
        store = self.store
        self._lock = store.lock
        self._events = store.events
        self._all_leases = store.leases
        self._watchers = Watchers()
        with store.lock:
            self._writer = store.leases.join(self._deliver)
            self._leases = Leases(store.leases, self._writer.number, store.who, lease_s=None)
        self._held = self._leases.epochs
        self._inbox = JournalInbox(store.inbox, self._writer.number)
        self._lost: dict[str, LeaseLost] = {}
        """Runs that somebody else has now."""

    def require_shared(self) -> None:
        """Raise `UsageError` if others than one engine may not use the events."""
        if not self.shared:
            raise UsageError("This journal in memory belongs to one engine. Make it with MemoryJournal(shared=True) to share it.")

    @property
    def forgotten(self) -> int:
        """How many of the oldest events are gone."""
        return self.store.events.forgotten

    def append(self, draft: Draft) -> int:
        if self.shared:
            with self._lock:
                return self._append_shared(draft)
        events = self._events  # spelled out: each event of each call of a journal that is not shared passes here
        events.rows.append((draft, self._wall_ns(), self._monotonic(), 0))
        events.last = position = events.last + 1
        if position > events.full:
            events.forget()
        return position

    def _append_shared(self, draft: Draft) -> int:
        if self._leases.known_epoch != self._all_leases.epoch:
            self._find_lost()
        epoch = self._held.get(draft.run) or self._claim(draft)
        if draft.inbox and self._inbox.is_recorded(draft.inbox):  # by whoever held the run before
            return self.store.inbox.position(draft.inbox)
        position = self._events.append(draft, self._wall_ns(), self._monotonic(), epoch)
        if draft.inbox:
            self._inbox.mark_recorded(draft.inbox, position)
        return position

    def _claim(self, draft: Draft) -> int:
        """Return the epoch in which an event is written whose run is not held.

        Raises:
            LeaseLost: Only the holder of the run may write the event, and that is somebody else.
        """
        run = draft.run
        if not is_leased(draft.kind):
            return self._writer.number
        if run not in self._lost:
            try:
                self._take(run)
            except RunHeld as held:
                self._lose(run, LeaseLost(str(held)))
        if run in self._lost:
            raise self._lost[run]
        return self._held[run]

    def _take(self, run: str) -> bool:
        """Hold a run; returns whether messages were waiting for it."""
        self._leases.take(run)
        self._inbox.forget((run,))
        return self._deliver()

    def _find_lost(self) -> None:
        """Notice which runs others have taken."""
        for run in self._leases.check(self._all_leases.last_epoch()):
            self._lose(run, LeaseLost(_TAKEN.format(run=run[:80])))

    def _lose(self, run: str, error: LeaseLost) -> None:
        self._lost[run] = error
        self._watchers.lost(run, str(error))

    def _deliver(self) -> bool:
        """Tell the watchers what has come for runs that are held; returns whether anything has."""
        delivered = False
        while self._watchers and (messages := self._inbox.take_new()):
            delivered = True
            for message in messages:
                self._watchers.came(message)
        return delivered

    async def durable(self, position: int) -> None:
        """Nothing in memory survives; there is nothing to wait for."""

    def place(self, position: int) -> int:
        return position

    async def hold(self, run: str) -> bool:
        """See `Journal.hold`; False where the events are not shared, because nobody else can have written to the run then."""
        if not self.shared:
            return False
        with self._lock:
            self._find_lost()
            if run in self._held:
                return False
            told = self._take(run)
            self._lost.pop(run, None)
        if told:
            await asyncio.sleep(0)  # whoever watches is told before the run is said to be held
        return True

    def let_go(self, run: str) -> None:
        with self._lock:
            self._leases.give_back((run,))

    def watch(self, watcher: RunWatcher) -> None:
        with self._lock:
            self._watchers.add(watcher)
            self._deliver()

    def read(
        self, *, run: str | None = None, call: str | None = None, after: int = 0, limit: int | None = None, newest_first: bool = False
    ) -> Iterable[Event]:
        return self._events.read(run=run, call=call, after=after, limit=limit, newest_first=newest_first)

    def find(self, query: EventQuery) -> list[Event]:
        return select(self._events.read(), query)

    def status(self) -> JournalStatus:
        promise = "nothing survives the process" + (f"; the oldest {self.forgotten} events are forgotten" if self.forgotten else "")
        return JournalStatus(store="memory", where="memory", strength=self.strength, promise=promise, written=self._events.last)

    async def close(self) -> None:
        """Give all runs back. The events stay: a closed journal may still be read, and written by another engine."""
        with self._lock:
            self._leases.give_all_back()
            self._watchers.clear()


class MemoryReader:
    """A `JournalReader` of a journal in memory."""

    def __init__(self, journal: MemoryJournal) -> None:
        self._journal = journal

    def find(self, query: EventQuery) -> Iterator[Event]:
        return iter(self._journal.find(query))

    def verify(self, *, tail: int | None = None) -> ChainFault | None:
        """Nothing: events in memory are not chained."""
        del tail
        return None

    def damage(self) -> str:
        return ""

    def close(self) -> None:
        """Nothing is open."""
