"""Time, randomness and identifiers, injected so that tests can control them.

All other modules read the time through here. Wall time is in UTC nanoseconds and only shown or stored; durations and deadlines use
the monotonic clock.
"""

from __future__ import annotations

import asyncio
import os
import random
import secrets
import time
from typing import Protocol

__all__ = ["Clock", "SystemClock"]

_ID_CHARS = 16
_IDS_AT_ONCE = 64
"""The number of identifiers made from one read of random bytes, because each read lets another thread take the interpreter lock."""


class Clock(Protocol):
    """Provides the engine with the time, sleeping, jitter and new identifiers."""

    def wall_ns(self) -> int:
        """Return the UTC time in nanoseconds since 1970."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never go back; only differences are meaningful."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait; cancellable at any time."""
        ...

    def jitter(self) -> float:
        """Return a random number in [0, 1)."""
        ...

    def new_id(self) -> str:
        """Return a new unguessable identifier: 16 lower-case characters."""
        ...


class SystemClock:
    """The real clock and the operating system's randomness."""

    wall_ns = staticmethod(time.time_ns)
    monotonic = staticmethod(time.monotonic)
    jitter = staticmethod(random.random)

    def __init__(self) -> None:
        self._ids: list[str] = []
        self._process = os.getpid()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def new_id(self) -> str:
        if self._process != os.getpid():  # after a fork, both processes have the same identifiers in store
            self._ids, self._process = [], os.getpid()
        try:
            return self._ids.pop()
        except IndexError:
            drawn = secrets.token_hex(_ID_CHARS * _IDS_AT_ONCE // 2)
            made = [drawn[start : start + _ID_CHARS] for start in range(0, len(drawn), _ID_CHARS)]
            self._ids += made[1:]
            return made[0]
