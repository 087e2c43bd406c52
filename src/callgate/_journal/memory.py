"""Events in memory: complete and ordered, gone with the process.

Bounded: beyond `most` events the oldest are forgotten, and `forgotten` says how many.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from itertools import islice

from callgate._clock import Clock, SystemClock
from callgate.events import Draft, Event
from callgate.protocols import JournalStatus, RunWatcher
from callgate.queries import EventQuery, select

__all__ = ["MemoryJournal"]


class MemoryJournal:
    """A `Journal` in memory."""

    strength = "memory"
    remote = False

    def __init__(self, clock: Clock | None = None, *, most: int = 100_000) -> None:
        clock = clock or SystemClock()
        self._wall_ns = clock.wall_ns
        self._monotonic = clock.monotonic
        self._rows: list[tuple[Draft, int, float]] = []
        self._most = self._full = most
        """How many events are held at most, and the position that this makes the last of them."""
        self._last = 0
        self._seqs: list[int] = []
        """Each row's place in its run, for as many rows as somebody has read or forgotten."""
        self._counts: dict[str, int] = {}
        self._numbering = threading.Lock()
        self.forgotten = 0
        """How many of the oldest events are gone."""

    def append(self, draft: Draft) -> int:
        self._rows.append((draft, self._wall_ns(), self._monotonic()))
        self._last = position = self._last + 1
        if position > self._full:
            self._forget()
        return position

    def _forget(self) -> None:
        """Make room for a quarter of all, so that it is seldom done."""
        surplus = self._most // 4
        with self._numbering:
            self._number(surplus)
            del self._rows[:surplus], self._seqs[:surplus]
            self.forgotten += surplus
            self._full += surplus

    def _number(self, rows: int) -> None:
        """Give the first so many rows their places in their runs: not when they are written, because few are ever read."""
        for draft, _, _ in islice(self._rows, len(self._seqs), rows):
            seq = self._counts[draft.run] = self._counts.get(draft.run, 0) + 1
            self._seqs.append(seq)

    async def durable(self, position: int) -> None:
        """Nothing in memory survives; there is nothing to wait for."""

    def place(self, position: int) -> int:
        return position

    async def hold(self, run: str) -> bool:
        """Nobody else can reach what is in this process's memory."""
        return False

    def let_go(self, run: str) -> None:
        """There was nothing to hold."""

    def watch(self, watcher: RunWatcher) -> None:
        """Nothing can come in from outside."""

    def read(
        self, *, run: str | None = None, call: str | None = None, after: int = 0, limit: int | None = None, newest_first: bool = False
    ) -> Iterable[Event]:
        start = max(0, after - self.forgotten)
        places = range(start, len(self._rows))
        found = (
            self._event(place)
            for place in (reversed(places) if newest_first else places)
            if (run is None or self._rows[place][0].run == run) and (call is None or self._rows[place][0].call == call)
        )
        return list(islice(found, limit))

    def find(self, query: EventQuery) -> list[Event]:
        return select(self.read(), query)

    def status(self) -> JournalStatus:
        promise = "nothing survives the process" + (f"; the oldest {self.forgotten} events are forgotten" if self.forgotten else "")
        return JournalStatus(store="memory", where="memory", strength=self.strength, promise=promise, written=self._last)

    def _event(self, place: int) -> Event:
        with self._numbering:
            self._number(place + 1)
        draft, at_ns, mono = self._rows[place]
        return draft.sealed(position=self.forgotten + place + 1, seq=self._seqs[place], at_ns=at_ns, mono=mono)

    async def close(self) -> None:
        """Keeps what it has: a closed journal may still be read."""
