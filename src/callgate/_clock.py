"""Time, randomness and identifiers, injected so that tests can control them.

All other modules read the time through here. Wall time is in UTC nanoseconds and only shown or stored; durations and deadlines use
the monotonic clock.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import time
from typing import Protocol

__all__ = ["Clock", "SystemClock"]


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

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def new_id(self) -> str:
        return secrets.token_hex(8)
