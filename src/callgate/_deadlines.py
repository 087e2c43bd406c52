"""Many deadlines that share one timer of the event loop.

Nearly every deadline is cancelled before it expires, and an event loop timer costs more than most of the waits that it guards. So the
deadlines of one owner share a timer, set to the earliest. Must not know what a deadline ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context
from heapq import heapify, heappop, heappush
from math import inf
from types import TracebackType
from typing import Self

from msgspec import Struct

__all__ = ["Deadline", "Deadlines", "TimeLimit"]

_FEW = 64
"""Cancelled deadlines are removed from the heap only if there are more than this."""


class Deadline(Struct, eq=False):
    """One deadline, until it expires or is cancelled."""

    on_expiry: Callable[[], None] | None


class Deadlines:
    """Deadlines on one event loop."""

    __slots__ = ("_cancelled", "_heap", "_loop", "_number", "_timer")

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._heap: list[tuple[float, int, Deadline]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._number = 0
        self._cancelled = 0

    def set(self, delay_s: float, on_expiry: Callable[[], None]) -> Deadline:
        """Call `on_expiry` after `delay_s` seconds, in an empty context."""
        loop = self._loop
        if loop is None:  # kept: deadlines of a stopped loop are cancelled after it is gone
            loop = self._loop = asyncio.get_running_loop()
        deadline, when = Deadline(on_expiry), loop.time() + delay_s
        self._number += 1
        heappush(self._heap, (when, self._number, deadline))
        if self._timer is None or when < self._timer.when():
            self._arm(loop, when)
        return deadline

    def cancel(self, deadline: Deadline) -> None:
        """Cancel a deadline; one that has expired may be cancelled, too."""
        deadline.on_expiry = None
        self._cancelled += 1
        if self._cancelled > _FEW and self._cancelled * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[2].on_expiry is not None]
            heapify(self._heap)
            self._cancelled = 0

    def limit(self, delay_s: float) -> TimeLimit:
        """Return a time limit for a `with` block of the current task.

        Args:
            delay_s: Seconds; infinite: no limit.
        """
        return TimeLimit(self, delay_s)

    def _arm(self, loop: asyncio.AbstractEventLoop, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        # Not the current context: callbacks of all deadlines would run in the context of whichever call is the earliest.
        self._timer = loop.call_at(when, self._expire, loop, when, context=Context())

    def _expire(self, loop: asyncio.AbstractEventLoop, when: float) -> None:
        """Run all expired deadlines in one iteration of the loop, as separate timers would."""
        self._timer = None
        until = max(when, loop.time())
        while self._heap and (self._heap[0][0] <= until or self._heap[0][2].on_expiry is None):
            deadline = heappop(self._heap)[2]
            if deadline.on_expiry is not None:
                loop.call_soon(_run, deadline)
        if self._heap:
            self._arm(loop, self._heap[0][0])

    def close(self) -> None:
        """Cancel the timer if no deadline is pending."""
        if self._timer is not None and all(entry[2].on_expiry is None for entry in self._heap):
            self._timer.cancel()
            self._timer = None


class TimeLimit:
    """Raises `TimeoutError` from a `with` block that is not left in time, as `asyncio.timeout` does, without a timer of its own."""

    __slots__ = ("_cancelling", "_deadline", "_deadlines", "_delay_s", "_task", "expired")

    def __init__(self, deadlines: Deadlines, delay_s: float) -> None:
        self._deadlines = deadlines
        self._delay_s = delay_s
        self._deadline: Deadline | None = None
        self.expired = False

    def __enter__(self) -> Self:
        if self._delay_s != inf:
            task = asyncio.current_task()
            assert task is not None, "a time limit belongs to a task"
            self._task, self._cancelling = task, task.cancelling()
            self._deadline = self._deadlines.set(self._delay_s, self._expire)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._deadline is None:
            return
        self._deadlines.cancel(self._deadline)
        if self.expired and self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def _expire(self) -> None:
        self.expired = True
        self._task.cancel()


def _run(deadline: Deadline) -> None:
    if deadline.on_expiry is not None:
        deadline.on_expiry()
