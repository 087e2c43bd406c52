"""Events in memory: complete and ordered, gone with the process.

Bounded: beyond `most` events the oldest are forgotten, and `forgotten` says how many. Events are indexed by run and by call when somebody
reads, each once, so that writing costs little and reading a run does not look at other runs' events.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
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
        """Each row's place in its run, for as many rows as are indexed."""
        self._counts: dict[str, int] = {}
        """How many events each run has had."""
        self._by_run: dict[str, list[int]] = {}
        """The positions of the indexed events of each run."""
        self._by_call: dict[str, list[int]] = {}
        self._indexing = threading.Lock()
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
        with self._indexing:
            self._index(surplus)
            gone = [draft for draft, _, _ in islice(self._rows, surplus)]
            _drop_first(self._by_run, Counter(draft.run for draft in gone))
            _drop_first(self._by_call, Counter(draft.call for draft in gone if draft.call))
            del self._rows[:surplus], self._seqs[:surplus]
            self.forgotten += surplus
            self._full += surplus
            self._forget_counts()

    def _forget_counts(self) -> None:
        """Of runs without any event left, keep the counts of as many as there may be events."""
        surplus = len(self._counts) - len(self._by_run) - self._most
        if surplus > 0:
            for run in list(islice((run for run in self._counts if run not in self._by_run), surplus)):
                del self._counts[run]

    def _index(self, rows: int) -> None:
        """Index the first so many rows: not when they are written, because few are ever read."""
        position = self.forgotten + len(self._seqs)
        for draft, _, _ in self._rows[len(self._seqs) : rows]:
            position += 1
            seq = self._counts[draft.run] = self._counts.get(draft.run, 0) + 1
            self._seqs.append(seq)
            self._by_run.setdefault(draft.run, []).append(position)
            if draft.call:
                self._by_call.setdefault(draft.call, []).append(position)

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
        with self._indexing:
            self._index(len(self._rows))
            positions = self._positions(run, call)
            positions = positions[bisect_right(positions, after) :]
            found = (
                position
                for position in (reversed(positions) if newest_first else positions)
                if run is None or call is None or self._draft(position).run == run
            )
            return [self._event(position) for position in islice(found, limit)]

    def _positions(self, run: str | None, call: str | None) -> Sequence[int]:
        """Of the events of a call, or else of a run, or else of all, in order."""
        if call is not None:
            return self._by_call.get(call, ()) if call else [at for at in self._every() if not self._draft(at).call]
        return self._every() if run is None else self._by_run.get(run, ())

    def _every(self) -> range:
        return range(self.forgotten + 1, self.forgotten + len(self._rows) + 1)

    def _draft(self, position: int) -> Draft:
        return self._rows[position - self.forgotten - 1][0]

    def find(self, query: EventQuery) -> list[Event]:
        return select(self.read(), query)

    def status(self) -> JournalStatus:
        promise = "nothing survives the process" + (f"; the oldest {self.forgotten} events are forgotten" if self.forgotten else "")
        return JournalStatus(store="memory", where="memory", strength=self.strength, promise=promise, written=self._last)

    def _event(self, position: int) -> Event:
        place = position - self.forgotten - 1
        draft, at_ns, mono = self._rows[place]
        return draft.sealed(position=position, seq=self._seqs[place], at_ns=at_ns, mono=mono)

    async def close(self) -> None:
        """Keeps what it has: a closed journal may still be read."""


def _drop_first(index: dict[str, list[int]], counts: Counter[str]) -> None:
    """Take the first so many positions of each key off an index."""
    for key, count in counts.items():
        del index[key][:count]
        if not index[key]:
            del index[key]
