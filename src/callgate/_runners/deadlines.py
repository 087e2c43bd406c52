"""Many deadlines behind one timer of the event loop.

Nearly every deadline is taken off again before its time, and a timer of the event loop costs more than most waits it stands over. So
the deadlines of one runner share the timer of the earliest. Must not know what a deadline ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context
from heapq import heapify, heappop, heappush

from msgspec import Struct

__all__ = ["Deadline", "Deadlines"]

_FEW = 64
"""Alarms that were taken off are not worth sweeping up until there are more."""


class Deadline(Struct, eq=False):
    """One deadline, until it rings or is taken off."""

    ring: Callable[[], None] | None


class Deadlines:
    """The alarms of one runner, on one event loop."""

    __slots__ = ("_heap", "_loop", "_number", "_off", "_timer")

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._heap: list[tuple[float, int, Deadline]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._number = 0
        self._off = 0

    def set(self, delay_s: float, ring: Callable[[], None]) -> Deadline:
        """Call `ring` after so many seconds, in a context of nobody's."""
        loop = self._loop
        if loop is None:  # kept: a loop that has stopped cancels what is left in it without running
            loop = self._loop = asyncio.get_running_loop()
        alarm, when = Deadline(ring), loop.time() + delay_s
        self._number += 1
        heappush(self._heap, (when, self._number, alarm))
        if self._timer is None or when < self._timer.when():
            self._arm(loop, when)
        return alarm

    def take_off(self, alarm: Deadline) -> None:
        """Let an alarm not ring; one that has rung may be taken off, too."""
        alarm.ring = None
        self._off += 1
        if self._off > _FEW and self._off * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[2].ring is not None]
            heapify(self._heap)
            self._off = 0

    def _arm(self, loop: asyncio.AbstractEventLoop, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        # The context of the call that happens to be the earliest would make its tool's of all the others' deadlines.
        self._timer = loop.call_at(when, self._ring, loop, when, context=Context())

    def _ring(self, loop: asyncio.AbstractEventLoop, when: float) -> None:
        """Ring all that are due; those of a call and of the call that made it in one turn of the loop, as its own timers would."""
        self._timer = None
        until = max(when, loop.time())
        while self._heap and (self._heap[0][0] <= until or self._heap[0][2].ring is None):
            alarm = heappop(self._heap)[2]
            if alarm.ring is not None:
                loop.call_soon(_ring, alarm)
        if self._heap:
            self._arm(loop, self._heap[0][0])

    def close(self) -> None:
        """Let go of the event loop where nothing is left to ring."""
        if self._timer is not None and all(entry[2].ring is None for entry in self._heap):
            self._timer.cancel()
            self._timer = None


def _ring(alarm: Deadline) -> None:
    if alarm.ring is not None:
        alarm.ring()
