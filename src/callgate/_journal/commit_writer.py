"""Make one commit: check leases, acquire and release them, put the events in their places, deliver messages. All of it or nothing.

Between the queue of `commit_queue` and a store. The same for every store, which only has to keep other writers off until its commit is
through.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Final, Protocol

from msgspec import Struct

from callgate._journal.event_positions import EventPositions, JournalEnd, ProvisionalPosition
from callgate._journal.journal_inbox import JournalInbox
from callgate._journal.leases import Leases
from callgate._limits import LOOK_S
from callgate.errors import LeaseLost, RunHeld
from callgate.events import Event
from callgate.protocols import Inbox, InboxMessage, LeaseStore

__all__ = ["CommitWork", "CommitWriter", "JournalStore"]

_TAKEN: Final = (
    "Run '{run}' was taken over by another engine while this one showed no sign of life. Nothing more of it is recorded or started here;"
    " `callgate log show {run}` tells what the other one does."
)


class JournalStore(Protocol):
    """Where events, leases and messages are kept. Used by the writing thread alone."""

    leases: LeaseStore
    inbox: Inbox

    def commit(self) -> AbstractContextManager[None]:
        """One commit of everything that is done inside the block.

        Raises:
            JournalFailed: Nothing of it is kept, or that is not known.
        """
        ...

    def tail(self) -> JournalEnd:
        """Return where the events end; inside a commit."""
        ...

    def last_seq(self, run: str) -> int:
        """Return the number of a run's last event, 0 for none; inside a commit."""
        ...

    def insert(self, batch: Sequence[Event]) -> None:
        """Write events; inside a commit."""
        ...

    def read_inbox(self, read: Callable[[], list[InboxMessage]], *, again: bool) -> list[InboxMessage]:
        """Return what `read` returns, outside a commit; nothing where it is certain that nobody has written since the last time.

        Args:
            again: Read in any case.
        """
        ...

    def close(self) -> None: ...


class CommitWork(Struct, frozen=True, kw_only=True):
    """What one commit has to do."""

    batch: list[Event]
    wanted: tuple[str, ...] = ()
    """Runs whose leases are to be acquired."""
    given_up: frozenset[str] = frozenset()
    """Runs whose leases are to be released, after the batch."""
    recorded: dict[int, int] = {}
    """Ids of the messages that events of the batch record, by provisional position."""
    barred: dict[str, LeaseLost] = {}
    """Runs that were lost before, and whose leases nobody has asked for again."""

    def __bool__(self) -> bool:
        return bool(self.batch or self.wanted or self.given_up)


class CommitWriter:
    """Commits to a store, with the leases that are held in it."""

    def __init__(self, store: JournalStore, tail: JournalEnd, leases: Leases, idle_s: float) -> None:
        self.places = EventPositions(tail, leases.holder)
        self.leases = leases
        self.watched = False
        """Whether anybody wants to know of messages."""
        self._store = store
        self._idle_s = idle_s
        self._inbox = JournalInbox(store.inbox, leases.holder)
        self._looked = time.monotonic()
        self._new = False
        """Whether a run has come to be held since the last look."""

    @property
    def idle_s(self) -> float | None:
        """Seconds until leases or messages need the next look; None: they need none."""
        if not self.leases.epochs:
            return None
        return min(self._idle_s, LOOK_S) if self.watched else self._idle_s

    def write(self, work: CommitWork) -> dict[str, RunHeld | LeaseLost]:
        """Commit all of it, except for events of runs that cannot be held; return those runs, and why.

        Raises:
            JournalFailed: Nothing of it is kept, or that is not known.
        """
        if not work and not self.leases.due:
            return {}
        with self._store.commit():
            lost = {run: LeaseLost(_TAKEN.format(run=run[:80])) for run in self.leases.check(self._store.leases.last_epoch())}
            refused: dict[str, RunHeld | LeaseLost] = {**work.barred, **lost}
            for run in work.wanted:
                self._have(run, refused)
            for event in work.batch:
                if event.run not in self.leases.epochs and event.leased:
                    self._have(event.run, refused)
            if work.batch:
                self._place(work, refused)
            if self.leases.due:
                self.leases.renew()
            self.leases.give_back(work.given_up)
        return refused

    def _have(self, run: str, refused: dict[str, RunHeld | LeaseLost]) -> None:
        """Acquire the lease of a run and have its messages delivered, unless it is refused."""
        if run in refused:
            return
        try:
            if run not in self.leases.epochs:
                self.leases.take(run)
        except RunHeld as held:
            refused[run] = held
            return
        self._inbox.forget((run,))
        self._new = True

    def messages(self) -> list[InboxMessage]:
        """Return new messages to runs that are held. May be called often; looks at an interval of `LOOK_S`."""
        now = time.monotonic()
        if not (self.watched and self.leases.epochs and (self._new or now - self._looked >= LOOK_S)):
            return []
        again, self._new, self._looked = self._new, False, now
        found = self._store.read_inbox(self._inbox.take_new, again=again)
        self._new = bool(found) and self._inbox.more  # the store changes no more for these, and nobody else would say that they are there
        return found

    def _place(self, work: CommitWork, refused: dict[str, RunHeld | LeaseLost]) -> None:
        epochs = {**self.leases.epochs, **dict.fromkeys(refused)}
        again = {at for at, id in work.recorded.items() if self._inbox.is_recorded(id)}  # by another event, of whoever held the run before
        batch = [event for event in work.batch if event.position not in again] if again else work.batch
        placed = self.places.place(batch, self._store.tail(), epochs, self._store.last_seq)
        self._store.insert(placed.events)
        self.places.tail = placed.tail
        kept = {event.position for event in batch} - {event.position for event in placed.left_out} if work.recorded else ()
        for at, id in work.recorded.items():
            if at in kept:
                self._inbox.mark_recorded(id, self.places.of(ProvisionalPosition(at)))

    def close(self) -> None:
        """Release all leases, so that others need not wait for them, and close the store."""
        try:
            if self.leases.epochs:
                with self._store.commit():
                    self.leases.give_all_back()
        finally:
            self._store.close()
