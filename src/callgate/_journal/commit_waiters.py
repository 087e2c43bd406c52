"""Wake those who wait for the writing thread: each on its event loop, all of one loop at once. Knows nothing of events."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress

from msgspec import Struct

__all__ = ["LeaseRequests", "Waiter", "Waiters", "tell"]

_TOGETHER = 256
"""Waiters that go on in one turn of their event loop: each does something then."""


class Waiter(Struct, eq=False):
    """One task that waits on an event loop."""

    position: int
    """The provisional position that it waits for."""
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[None]
    error: Exception | None = None
    """Why it waits in vain; set before the future is settled."""

    @classmethod
    def here(cls, position: int) -> Waiter:
        loop = asyncio.get_running_loop()
        return cls(position, loop, loop.create_future())


class Waiters:
    """Tasks that wait for their events. Used under the queue's lock."""

    def __init__(self) -> None:
        self.latest: Waiter | None = None
        """The last one that was added, whether it still waits or not."""
        self._there: list[Waiter] = []

    def __bool__(self) -> bool:
        return bool(self._there)

    def add(self, position: int) -> Waiter:
        self.latest = waiter = Waiter.here(position)
        self._there.append(waiter)
        return waiter

    def take(self, position: int, errors: Mapping[int, Exception]) -> list[Waiter]:
        """Remove and return those who wait for events up to a position.

        Args:
            errors: Why an event is not written, by position.
        """
        ready = [waiter for waiter in self._there if waiter.position <= position]
        self._there = [waiter for waiter in self._there if waiter.position > position]
        for waiter in ready if errors else ():
            waiter.error = errors.get(waiter.position)
        return ready

    def take_all(self, error: Exception) -> list[Waiter]:
        """Remove and return all of them, with this error."""
        ready, self._there = self._there, []
        return _failed(ready, error)


class LeaseRequests:
    """Tasks that wait for the lease of a run. Used under the queue's lock."""

    def __init__(self) -> None:
        self._of_run: dict[str, list[Waiter]] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(self._of_run)

    def __bool__(self) -> bool:
        return bool(self._of_run)

    def __contains__(self, run: str) -> bool:
        return run in self._of_run

    def add(self, run: str) -> Waiter:
        waiter = Waiter.here(0)
        self._of_run.setdefault(run, []).append(waiter)
        return waiter

    def take(self, runs: Iterable[str], errors: Mapping[str, Exception]) -> list[Waiter]:
        """Remove and return those who wait for these runs.

        Args:
            errors: Why a run cannot be held, by run.
        """
        return [waiter for run in runs for waiter in _failed(self._of_run.pop(run), errors.get(run))]

    def take_all(self, error: Exception) -> list[Waiter]:
        """Remove and return all of them, with this error."""
        return [waiter for run in tuple(self) for waiter in self.take((run,), {run: error})]


def _failed(waiters: list[Waiter], error: Exception | None) -> list[Waiter]:
    for waiter in waiters:
        waiter.error = error
    return waiters


def tell(waiters: Iterable[Waiter]) -> None:
    """Settle their futures, each on its loop and all of one loop by one wake-up."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Waiter]] = {}
    for waiter in waiters:
        by_loop.setdefault(waiter.loop, []).append(waiter)
    for loop, of_loop in by_loop.items():
        with suppress(RuntimeError):  # the loop of whoever waited may be gone
            loop.call_soon_threadsafe(_settle, of_loop)


def _settle(waiters: list[Waiter]) -> None:
    """Settle some of them now, and the rest when those have had their turn."""
    if len(waiters) > _TOGETHER:
        waiters[0].loop.call_soon(_settle, waiters[_TOGETHER:])
    for waiter in waiters[:_TOGETHER]:
        if waiter.future.done():
            continue
        if waiter.error is None:
            waiter.future.set_result(None)
        else:
            waiter.future.set_exception(waiter.error)
