"""A clock for tests: the test advances time; random numbers and ids are repeatable."""

from __future__ import annotations

import asyncio
import heapq

__all__ = ["ManualClock"]


class ManualClock:
    """A `Clock` whose time changes only by `advance`. A sleep ends when its time is reached."""

    def __init__(self, start_ns: int = 1_700_000_000_000_000_000, jitter: float = 0.5) -> None:
        self._now_ns = start_ns
        self._start_ns = start_ns
        self._jitter = jitter
        self._ids = 0
        self._sleepers: list[tuple[int, int, asyncio.Future[None]]] = []

    def wall_ns(self) -> int:
        return self._now_ns

    def monotonic(self) -> float:
        return (self._now_ns - self._start_ns) / 1e9

    def jitter(self) -> float:
        return self._jitter

    def new_id(self) -> str:
        self._ids += 1
        return f"{self._ids:016x}"

    async def sleep(self, seconds: float) -> None:
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._now_ns + int(seconds * 1e9), id(woken), woken))
        await woken

    @property
    def sleeping(self) -> int:
        """The number of sleeps that have not ended."""
        return sum(not woken.done() for _, _, woken in self._sleepers)

    def advance(self, seconds: float) -> None:
        """Advance the time and end the sleeps whose time is reached."""
        self._now_ns += int(seconds * 1e9)
        while self._sleepers and self._sleepers[0][0] <= self._now_ns:
            _, _, woken = heapq.heappop(self._sleepers)
            if not woken.done():
                woken.set_result(None)
