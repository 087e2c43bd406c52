"""Who waits for the writing thread, on which event loop, and how all of one loop are woken at once. Knows nothing of events."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress

from msgspec import Struct
from msgspec.structs import replace

__all__ = ["Waiter", "tell"]


class Waiter(Struct, frozen=True):
    """Somebody on an event loop."""

    position: int
    """What they wait for."""
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[None]
    error: Exception | None = None
    """Why it will not be."""

    @classmethod
    def here(cls, position: int) -> Waiter:
        loop = asyncio.get_running_loop()
        return cls(position, loop, loop.create_future())

    def with_error(self, error: Exception | None) -> Waiter:
        return self if error is None else replace(self, error=error)


def tell(waiters: Iterable[Waiter]) -> None:
    """Settle their futures, each on its loop and all of one loop by one wake-up."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Waiter]] = {}
    for waiter in waiters:
        by_loop.setdefault(waiter.loop, []).append(waiter)
    for loop, of_loop in by_loop.items():
        with suppress(RuntimeError):  # the loop of whoever waited may be gone
            loop.call_soon_threadsafe(_settle, of_loop)


def _settle(waiters: Iterable[Waiter]) -> None:
    for waiter in waiters:
        if waiter.future.done():
            continue
        if waiter.error is None:
            waiter.future.set_result(None)
        else:
            waiter.future.set_exception(waiter.error)
