"""One commit: whose runs these are, where the journal ends, the events in their places; all of it or nothing.

Between the queue of `commits` and a store. The same for every store, which only has to hold everybody else off until its commit is through.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Final, Protocol

from msgspec import Struct

from callgate._journal.leases import Ask, Leases
from callgate._journal.letters import FATE, LetterBox
from callgate._journal.placing import Places, Tail, Ticket
from callgate._journal.tables import LAST_EVENT, LAST_SEQ
from callgate._limits import LOOK_S
from callgate.errors import LeaseLost, RunHeld
from callgate.events import Event
from callgate.protocols import Letter

__all__ = ["Store", "Work", "Writing"]

_TAKEN: Final = (
    "Run '{run}' was taken over by another engine while this one showed no sign of life. Nothing more of it is recorded or started here;"
    " `callgate log show {run}` tells what the other one does."
)


class Store(Protocol):
    """Where batches go. Used by the writing thread alone."""

    counter: str
    """The statement that reads the counter of epochs; it keeps other writers off until the commit is through."""

    def commit(self) -> AbstractContextManager[Ask]:
        """One commit; what is asked inside is asked in it.

        Raises:
            JournalFailed: Nothing of it is kept, or that is not known.
        """
        ...

    def insert(self, batch: Sequence[Event]) -> None:
        """Write events; inside a commit."""
        ...

    def look(self, see: Callable[[Ask], list[Letter]], *, again: bool) -> list[Letter]:
        """What is seen outside a commit; nothing where it is certain that nobody has written since the last time.

        Args:
            again: Look in any case.
        """
        ...

    def close(self) -> None: ...


class Work(Struct, frozen=True, kw_only=True):
    """What there is to write."""

    batch: list[Event]
    wanted: tuple[str, ...] = ()
    """Runs to be held."""
    given_up: frozenset[str] = frozenset()
    """Runs to be given back, behind the batch."""
    rows: dict[int, int] = {}
    """Rows of the inbox that events of the batch fold in, by ticket."""
    barred: dict[str, LeaseLost] = {}
    """Runs that were lost before, and that nobody has asked for again."""

    def __bool__(self) -> bool:
        return bool(self.batch or self.wanted or self.given_up)


class Writing:
    """A store with the runs that are held in it."""

    def __init__(self, store: Store, tail: Tail, leases: Leases, idle_s: float) -> None:
        self.places = Places(tail, leases.holder)
        self.leases = leases
        self.watched = False
        """Whether anybody wants to know of letters."""
        self._store = store
        self._idle_s = idle_s
        self._letters = LetterBox(leases.holder)
        self._looked = time.monotonic()
        self._new = False
        """Whether a run has come to be held since the last look."""

    @property
    def idle_s(self) -> float | None:
        """How long the store may be left alone."""
        if not self.leases.epochs:
            return None
        return min(self._idle_s, LOOK_S) if self.watched else self._idle_s

    def write(self, work: Work) -> dict[str, RunHeld | LeaseLost]:
        """Commit all of it but the events of runs that are not to be had; says which, and why.

        Raises:
            JournalFailed: Nothing of it is kept, or that is not known.
        """
        if not work and not self.leases.due:
            return {}
        with self._store.commit() as ask:
            ((counter,),) = ask(self._store.counter, ())
            lost = {run: LeaseLost(_TAKEN.format(run=run[:80])) for run in self.leases.check(ask, counter)}
            refused: dict[str, RunHeld | LeaseLost] = {**work.barred, **lost}
            for run in work.wanted:
                self._have(ask, run, refused)
            for event in work.batch:
                if event.run not in self.leases.epochs and event.leased:
                    self._have(ask, event.run, refused)
            if work.batch:
                self._place(ask, work, refused)
            if self.leases.due:
                self.leases.renew(ask)
            self.leases.give_back(ask, work.given_up)
        return refused

    def _have(self, ask: Ask, run: str, refused: dict[str, RunHeld | LeaseLost]) -> None:
        """Hold a run from now on; whoever asks for it is handed what its inbox has."""
        if run in refused:
            return
        try:
            if run not in self.leases.epochs:
                self.leases.take(ask, run)
        except RunHeld as held:
            refused[run] = held
            return
        self._letters.forget((run,))
        self._new = True

    def letters(self) -> list[Letter]:
        """What other processes want of the runs that are held; asked for often, and looked up at an interval."""
        now = time.monotonic()
        if not (self.watched and self.leases.epochs and (self._new or now - self._looked >= LOOK_S)):
            return []
        again, self._new, self._looked = self._new, False, now
        found = self._store.look(self._letters.look, again=again)
        self._new = bool(found) and self._letters.more  # the store changes no more for these, and nobody else would say that they are there
        return found

    def _place(self, ask: Ask, work: Work, refused: dict[str, RunHeld | LeaseLost]) -> None:
        rows = ask(LAST_EVENT, ())
        tail = Tail(*rows[0]) if rows else Tail()
        epochs = {**self.leases.epochs, **dict.fromkeys(refused)}

        def last_seq(run: str) -> int:
            return int(ask(LAST_SEQ, (run,))[0][0])

        again = {at for at, row in work.rows.items() if ask(FATE, (row,))[0][0]}  # somebody has folded it in already
        batch = [event for event in work.batch if event.position not in again] if again else work.batch
        placed = self.places.place(batch, tail, epochs, last_seq)
        self._store.insert(placed.events)
        self.places.tail = placed.tail
        kept = {event.position for event in batch} - {event.position for event in placed.left_out} if work.rows else ()
        self._letters.fold(ask, {row: self.places.of(Ticket(at)) for at, row in work.rows.items() if at in kept})

    def close(self) -> None:
        """Let the next ones in at once."""
        try:
            if self.leases.epochs:
                with self._store.commit() as ask:
                    self.leases.give_all_back(ask)
        finally:
            self._store.close()
