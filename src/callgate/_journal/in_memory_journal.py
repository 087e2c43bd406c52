"""Events in memory: complete and ordered, lost when the process ends.

Several engines of one process may share the events, each through a journal object of its own. If they do, each run has one holder and there
is an inbox, as in a stored journal. No operation waits, and no thread runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator

from callgate._clock import Clock, SystemClock
from callgate._journal.delivered_messages import JournalInbox
from callgate._journal.event_rows import ChainFault
from callgate._journal.in_memory_store import MemoryStore
from callgate._journal.journal_watcher import JournalWatcher
from callgate._journal.lease_acquisition import Leases
from callgate._option_checks import by_name
from callgate.errors import LeaseLost, RunHeld, UsageError
from callgate.event_queries import EventQuery
from callgate.events import Draft, Event, is_leased
from callgate.protocols import JournalStatus, RunWatcher

__all__ = ["MemoryJournal", "MemoryReader"]

_TAKEN = "Run '{run}' was taken over by another engine of this process. Nothing more of it is recorded or started here."


class MemoryJournal:
    """A `Journal` in memory.

    Args:
        most: How many events are kept. Above the limit, the oldest are dropped, and `forgotten` counts them.
        shared: Whether other engines of the process may share the events, and `callgate.inbox` may send messages to their runs.
        shared_with: A journal that was made with `shared=True`. This journal reads and writes the same events, and ignores its own `most`.

    Raises:
        UsageError: `shared_with` is not shared.
    """

    strength = "memory"
    remote = False

    @by_name
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
        """The events, leases and inbox, which journals may share."""
        store = self.store
        self._lock = store.lock
        self._events = store.events
        self._all_leases = store.leases
        self._watcher = JournalWatcher("in memory")
        with store.lock:
            self._writer = store.leases.join(self._deliver)
            self._leases = Leases(store.leases, self._writer.number, store.who, lease_s=None)
        self._held = self._leases.epochs
        self._inbox = JournalInbox(store.inbox, self._writer.number)
        self._lost: dict[str, LeaseLost] = {}
        """Runs that another engine has taken."""

    def require_shared(self) -> None:
        """Raise `UsageError` unless several engines may use the events."""
        if not self.shared:
            raise UsageError("This journal in memory belongs to one engine. Make it with MemoryJournal(shared=True) to share it.")

    @property
    def forgotten(self) -> int:
        """How many of the oldest events were dropped."""
        return self.store.events.forgotten

    def append(self, draft: Draft) -> int:
        if self.shared:
            with self._lock:
                return self._append_shared(draft)
        events = self._events  # inlined for speed: every event of an unshared journal passes here
        events.rows.append((draft, self._wall_ns(), self._monotonic(), 0))
        events.last = position = events.last + 1
        if position > events.full:
            events.forget()
        return position

    def _append_shared(self, draft: Draft) -> int:
        if self._leases.known_epoch != self._all_leases.epoch:
            self._find_lost()
        epoch = self._held.get(draft.run) or self._claim(draft)
        if draft.inbox and self._inbox.is_recorded(draft.inbox):  # by the run's previous holder
            return self.store.inbox.position(draft.inbox)
        position = self._events.append(draft, self._wall_ns(), self._monotonic(), epoch)
        if draft.inbox:
            self._inbox.mark_recorded(draft.inbox, position)
        return position

    def _claim(self, draft: Draft) -> int:
        """Return the epoch for an event whose run is not held, after acquiring the run's lease if the event needs one.

        Raises:
            LeaseLost: The event needs the lease of its run, and another engine holds it.
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
        """Acquire the lease of a run, and return whether messages were waiting for the run."""
        self._leases.acquire(run)
        self._inbox.deliver_again((run,))
        return self._deliver()

    def _find_lost(self) -> None:
        """Detect the runs that other engines have taken, and notify the engine of those that were not offered."""
        offered = set(self._leases.offered)
        for run in self._leases.find_lost(self._all_leases.last_epoch()):
            error = LeaseLost(_TAKEN.format(run=run[:80]))
            if run in offered:
                self._lost[run] = error
            else:
                self._lose(run, error)

    def _lose(self, run: str, error: LeaseLost) -> None:
        self._lost[run] = error
        self._watcher.lost(run, str(error))

    def _deliver(self) -> bool:
        """Pass new messages for held runs to the engine, and return whether there were any."""
        delivered = False
        while self._watcher and (messages := self._inbox.take_new()):
            delivered = True
            for message in messages:
                self._watcher.message_arrived(message)
        return delivered

    async def durable(self, position: int) -> None:
        """Return at once: events in memory never become durable."""

    def final_position(self, position: int) -> int:
        return position

    async def acquire_lease(self, run: str) -> bool:
        """See `Journal.hold`. Returns False if the events are not shared, because no other engine can have written to the run."""
        if not self.shared:
            return False
        with self._lock:
            self._find_lost()
            if run in self._held:
                self._leases.withdraw_offer(run)
                return False
            told = self._take(run)
            self._lost.pop(run, None)
        if told:
            await asyncio.sleep(0)  # the engine is notified before `acquire_lease` returns
        return True

    def offer_lease(self, run: str) -> None:
        """See `callgate.protocols.OffersLeases`."""
        with self._lock:
            self._leases.offer((run,))

    def release_lease(self, run: str) -> None:
        with self._lock:
            self._leases.release((run,))

    def watch(self, watcher: RunWatcher) -> None:
        with self._lock:
            self._watcher.set(watcher)
            self._deliver()

    def read(
        self, *, run: str | None = None, call: str | None = None, after: int = 0, limit: int | None = None, newest_first: bool = False
    ) -> Iterable[Event]:
        return self._events.read(run=run, call=call, after=after, limit=limit, newest_first=newest_first)

    def find(self, query: EventQuery) -> list[Event]:
        return self._events.find(query)

    def status(self) -> JournalStatus:
        promise = "nothing survives the process" + (f"; the oldest {self.forgotten} events are forgotten" if self.forgotten else "")
        return JournalStatus(store="memory", where="memory", strength=self.strength, promise=promise, written=self._events.last)

    async def close(self) -> None:
        """Release all leases. The events stay: a closed journal may still be read, and another engine may still write to it."""
        with self._lock:
            self._leases.release_all()
            self._watcher.clear()


class MemoryReader:
    """A `JournalReader` of a journal in memory."""

    def __init__(self, journal: MemoryJournal) -> None:
        self._journal = journal

    def find(self, query: EventQuery) -> Iterator[Event]:
        return iter(self._journal.find(query))

    def verify(self, *, tail: int | None = None) -> ChainFault | None:
        """Return None: events in memory are not chained."""
        del tail
        return None

    def damage(self) -> str:
        return ""

    def close(self) -> None:
        """Do nothing: the reader holds nothing open."""
