"""Events in memory: complete and ordered, gone with the process.

Bounded: beyond `most` events the oldest are forgotten, and `forgotten` says how many.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import islice

from callgate._clock import Clock, SystemClock
from callgate.events import Draft, Event

__all__ = ["MemoryJournal"]


class MemoryJournal:
    """A `Journal` in memory."""

    strength = "memory"

    def __init__(self, clock: Clock | None = None, *, most: int = 100_000) -> None:
        self._clock = clock or SystemClock()
        self._events: deque[Event] = deque(maxlen=most)
        self._position = 0
        self._seq: dict[str, int] = {}

    @property
    def forgotten(self) -> int:
        return self._position - len(self._events)

    def append(self, draft: Draft) -> Event:
        self._position = position = self._position + 1
        self._seq[draft.run] = seq = self._seq.get(draft.run, 0) + 1
        event = Event(
            position=position,
            run=draft.run,
            seq=seq,
            kind=draft.kind,
            call=draft.call,
            attempt=draft.attempt,
            parents=draft.parents,
            at_ns=self._clock.wall_ns(),
            mono=self._clock.monotonic(),
            body=draft.body,
        )
        self._events.append(event)
        return event

    async def durable(self, position: int) -> None:
        """Nothing in memory survives; there is nothing to wait for."""

    def read(
        self, *, run: str | None = None, call: str | None = None, after: int = 0, limit: int | None = None, newest_first: bool = False
    ) -> Iterable[Event]:
        start = max(0, after - self.forgotten)
        events = reversed(list(islice(self._events, start, None))) if newest_first else islice(self._events, start, None)
        found = (event for event in events if (run is None or event.run == run) and (call is None or event.call == call))
        return list(islice(found, limit))

    async def close(self) -> None:
        """Keeps what it has: a closed journal may still be read."""
