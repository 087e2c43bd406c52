"""Events in memory: complete and ordered, gone with the process.

Bounded: beyond `most` events the oldest are forgotten, and `forgotten` says how many.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from callgate._clock import Clock, SystemClock
from callgate.events import Draft, Event

__all__ = ["MemoryJournal"]


class MemoryJournal:
    """A `Journal` in memory."""

    strength = "memory"

    def __init__(self, clock: Clock | None = None, *, most: int = 100_000) -> None:
        clock = clock or SystemClock()
        self._wall_ns = clock.wall_ns
        self._monotonic = clock.monotonic
        self._rows: list[tuple[Draft, int, int, float]] = []
        self._most = most
        self._seq: dict[str, int] = {}
        self.forgotten = 0
        """How many of the oldest events are gone."""

    def append(self, draft: Draft) -> int:
        run, rows = draft.run, self._rows
        self._seq[run] = seq = self._seq.get(run, 0) + 1
        rows.append((draft, seq, self._wall_ns(), self._monotonic()))
        if len(rows) > self._most:
            self._forget()
        return self.forgotten + len(rows)

    def _forget(self) -> None:
        """Make room for a quarter of all, so that it is seldom done."""
        surplus = self._most // 4
        del self._rows[:surplus]
        self.forgotten += surplus

    async def durable(self, position: int) -> None:
        """Nothing in memory survives; there is nothing to wait for."""

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

    def _event(self, place: int) -> Event:
        draft, seq, at_ns, mono = self._rows[place]
        return draft.sealed(position=self.forgotten + place + 1, seq=seq, at_ns=at_ns, mono=mono)

    async def close(self) -> None:
        """Keeps what it has: a closed journal may still be read."""
