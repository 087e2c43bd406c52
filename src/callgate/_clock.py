"""Time, chance and identifiers, injected so that tests can own them.

Everything above reads the clock through here. Wall time is UTC nanoseconds and only ever shown or stored; durations and deadlines use
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
    """Where the engine takes time, waiting, jitter and fresh identifiers from."""

    def wall_ns(self) -> int:
        """UTC time in nanoseconds since 1970."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back; only differences mean something."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait; cancellable at any moment."""
        ...

    def jitter(self) -> float:
        """A number in [0, 1)."""
        ...

    def new_id(self) -> str:
        """A fresh identifier that nobody can guess: 16 lower-case characters."""
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
