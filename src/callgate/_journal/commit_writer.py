"""Make one commit: check, acquire and release leases, write the events at their final positions, and deliver messages.

Either all of this is committed or nothing. `commit_batching` calls this module, which writes to a store. The code is the same for every
store; a store must only keep other writers out until its commit ends.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Final, Protocol

from msgspec import Struct

from callgate._engine_limits import LOOK_S
from callgate._journal.delivered_messages import JournalInbox
from callgate._journal.event_positions import EventPositions, JournalEnd, ProvisionalPosition
from callgate._journal.lease_acquisition import Leases
from callgate.errors import LeaseLost, RunHeld
from callgate.events import Event
from callgate.protocols import Inbox, InboxMessage, LeaseStore

__all__ = ["CommitWork", "CommitWriter", "JournalStore"]

_TAKEN: Final = (
    "Run '{run}' was taken over by another engine while this one showed no sign of life. Nothing more of it is recorded or started here;"
    " `callgate log show {run}` tells what the other one does."
)


class JournalStore(Protocol):
    """A store of events, leases and messages. Used by the writing thread alone."""

    leases: LeaseStore
    inbox: Inbox

    def commit(self) -> AbstractContextManager[None]:
        """Commit everything that is done inside the block.

        Raises:
            JournalFailed: Nothing was committed, or it is not known whether it was.
        """
        ...

    def tail(self) -> JournalEnd:
        """Return the last event's position and hash; inside a commit."""
        ...

    def last_seq(self, run: str) -> int:
        """Return the number of a run's last event, 0 for none; inside a commit."""
        ...

    def insert(self, batch: Sequence[Event]) -> None:
        """Write events; inside a commit."""
        ...

    def read_inbox(self, read: Callable[[], list[InboxMessage]], *, again: bool) -> list[InboxMessage]:
        """Return the result of `read`, outside a commit; an empty list if it is certain that nothing was written since the last time.

        Args:
            again: Whether to call `read` in any case.
        """
        ...

    def close(self) -> None: ...


class CommitWork(Struct, frozen=True, kw_only=True):
    """The work of one commit."""

    batch: list[Event]
    to_acquire: tuple[str, ...] = ()
    """Runs whose leases are to be acquired before the batch is written."""
    to_release: frozenset[str] = frozenset()
    """Runs whose leases are to be released after the batch is written."""
    to_offer: frozenset[str] = frozenset()
    """Runs whose leases others may take after the batch is written."""
    recorded_messages: dict[int, int] = {}
    """Ids of the messages that events of the batch record, by provisional position."""
    lost: dict[str, LeaseLost] = {}
    """Runs that were lost before, and whose leases were not requested again."""

    def __bool__(self) -> bool:
        return bool(self.batch or self.to_acquire or self.to_release or self.to_offer)


class CommitWriter:
    """Commits to a store, with the leases that are held in it."""

    def __init__(self, store: JournalStore, tail: JournalEnd, leases: Leases, idle_s: float) -> None:
        self.positions = EventPositions(tail, leases.holder)
        self.leases = leases
        self.watches_inbox = False
        """Whether anything watches the inbox."""
        self._store = store
        self._idle_s = idle_s
        self._inbox = JournalInbox(store.inbox, leases.holder)
        self._inbox_read_at = time.monotonic()
        self._inbox_is_due = False
        """Whether a lease was acquired since the inbox was last read."""
        self.newly_held: set[str] = set()
        """The runs whose leases the last commit acquired."""
        self.yielded: set[str] = set()
        """The runs that were offered and that another journal has taken, as the last commit found, unless it had events of them."""

    @property
    def idle_s(self) -> float | None:
        """Seconds until leases or messages are due for the next check; None: no check is needed."""
        if not self.leases.epochs:
            return None
        return min(self._idle_s, LOOK_S) if self.watches_inbox else self._idle_s

    def write(self, work: CommitWork) -> dict[str, RunHeld | LeaseLost]:
        """Commit the work, except for events of runs that cannot be held. Return these runs, and why they cannot be held.

        Raises:
            JournalFailed: Nothing was committed, or it is not known whether it was.
        """
        self.newly_held, self.yielded = set(), set()
        if not work and not self.leases.renewal_is_due:
            return {}
        with self._store.commit():
            refused = {**work.lost, **self._lost_runs(work)}
            for run in work.to_acquire:
                if run not in self.leases.epochs:
                    self.newly_held.add(run)
                self._acquire(run, refused)
            for event in work.batch:
                if event.run not in self.leases.epochs and event.leased:
                    self._acquire(event.run, refused)
            if work.batch:
                self._place(work, refused)
            if self.leases.renewal_is_due:
                self.leases.renew()
            self.leases.release(work.to_release)
            self.leases.offer(work.to_offer)
        return refused

    def _lost_runs(self, work: CommitWork) -> dict[str, RunHeld | LeaseLost]:
        """Return the runs that other journals have taken, except those that were offered, are wanted again, and have no event here."""
        offered = set(self.leases.offered)
        lost = self.leases.find_lost(self._store.leases.last_epoch())
        if not lost:
            return {}
        self.yielded = (lost & offered) - {event.run for event in work.batch if event.leased}
        again = self.yielded.intersection(work.to_acquire)
        return {run: LeaseLost(_TAKEN.format(run=run[:80])) for run in lost - again}

    def _acquire(self, run: str, refused: dict[str, RunHeld | LeaseLost]) -> None:
        """Acquire the lease of a run and let its messages be delivered again, unless the run is in `refused`.

        If another engine holds the run, it is added to `refused`.
        """
        if run in refused:
            return
        try:
            if run in self.leases.epochs:
                self.leases.withdraw_offer(run)
            else:
                self.leases.acquire(run)
        except RunHeld as held:
            refused[run] = held
            return
        self._inbox.deliver_again((run,))
        self._inbox_is_due = True

    def new_messages(self) -> list[InboxMessage]:
        """Return new messages to the runs that are held. May be called often; the inbox is read at most every `LOOK_S` seconds."""
        now = time.monotonic()
        if not (self.watches_inbox and self.leases.epochs and (self._inbox_is_due or now - self._inbox_read_at >= LOOK_S)):
            return []
        again, self._inbox_is_due, self._inbox_read_at = self._inbox_is_due, False, now
        found = self._store.read_inbox(self._inbox.take_new, again=again)
        self._inbox_is_due = bool(found) and self._inbox.more  # the store will not change for the remaining messages, so read again
        return found

    def _place(self, work: CommitWork, refused: dict[str, RunHeld | LeaseLost]) -> None:
        epochs = {**self.leases.epochs, **dict.fromkeys(refused)}
        # An event of the run's previous holder may have recorded the same message.
        repeated = {at for at, id in work.recorded_messages.items() if self._inbox.is_recorded(id)}
        batch = [event for event in work.batch if event.position not in repeated] if repeated else work.batch
        placed = self.positions.place(batch, self._store.tail(), epochs, self._store.last_seq)
        self._store.insert(placed.events)
        self.positions.tail = placed.tail
        kept = {event.position for event in batch} - {event.position for event in placed.left_out} if work.recorded_messages else ()
        for at, id in work.recorded_messages.items():
            if at in kept:
                self._inbox.mark_recorded(id, self.positions.final(ProvisionalPosition(at)))

    def close(self) -> None:
        """Release all leases, so that other engines need not wait for them, and close the store."""
        try:
            if self.leases.epochs:
                with self._store.commit():
                    self.leases.release_all()
        finally:
            self._store.close()
