"""Wake the tasks that wait for the writing thread, each on its own event loop, with one wake-up per loop. Knows nothing of events."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress

from msgspec import Struct

__all__ = ["LeaseRequests", "Waiter", "Waiters", "wake"]

_TOGETHER = 256
"""How many waiters are woken in one turn of their event loop, because each task runs some code then."""


class Waiter(Struct, eq=False):
    """One task that waits on an event loop."""

    position: int
    """The provisional position that the task waits for."""
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[None]
    error: Exception | None = None
    """The error that the task gets; set before the future is settled."""
    newly_acquired: bool = False
    """For a lease: whether it was acquired now, and not held before; set before the future is settled."""

    @classmethod
    def here(cls, position: int) -> Waiter:
        loop = asyncio.get_running_loop()
        return cls(position, loop, loop.create_future())


class Waiters:
    """Tasks that wait for their events. Used under the queue's lock."""

    def __init__(self) -> None:
        self.latest: Waiter | None = None
        """The last waiter that was added, even if it was woken already."""
        self._waiters: list[Waiter] = []

    def __bool__(self) -> bool:
        return bool(self._waiters)

    def add(self, position: int) -> Waiter:
        self.latest = waiter = Waiter.here(position)
        self._waiters.append(waiter)
        return waiter

    def take(self, position: int, errors: Mapping[int, Exception]) -> list[Waiter]:
        """Remove and return the waiters for events up to a position.

        Args:
            errors: The errors of events that are not written, by position.
        """
        ready = [waiter for waiter in self._waiters if waiter.position <= position]
        self._waiters = [waiter for waiter in self._waiters if waiter.position > position]
        for waiter in ready if errors else ():
            waiter.error = errors.get(waiter.position)
        return ready

    def take_all(self, error: Exception) -> list[Waiter]:
        """Remove and return all waiters, with this error."""
        ready, self._waiters = self._waiters, []
        return _fail(ready, error)


class LeaseRequests:
    """Tasks that wait for the lease of a run. Used under the queue's lock."""

    def __init__(self) -> None:
        self._by_run: dict[str, list[Waiter]] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_run)

    def __bool__(self) -> bool:
        return bool(self._by_run)

    def __contains__(self, run: str) -> bool:
        return run in self._by_run

    def add(self, run: str) -> Waiter:
        waiter = Waiter.here(0)
        self._by_run.setdefault(run, []).append(waiter)
        return waiter

    def take(self, runs: Iterable[str], errors: Mapping[str, Exception], newly: Collection[str] = ()) -> list[Waiter]:
        """Remove and return the waiters for the leases of these runs.

        Args:
            errors: The errors of runs that cannot be held, by run.
            newly: The runs whose leases were acquired now.
        """
        return [waiter for run in runs for waiter in _fail(self._by_run.pop(run), errors.get(run), newly=run in newly)]

    def take_all(self, error: Exception) -> list[Waiter]:
        """Remove and return all waiters, with this error."""
        return [waiter for run in tuple(self) for waiter in self.take((run,), {run: error})]


def _fail(waiters: list[Waiter], error: Exception | None, *, newly: bool = False) -> list[Waiter]:
    for waiter in waiters:
        waiter.error, waiter.newly_acquired = error, newly
    return waiters


def wake(waiters: Iterable[Waiter]) -> None:
    """Settle the futures of these waiters, each on its own event loop. All waiters of one loop share one wake-up."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Waiter]] = {}
    for waiter in waiters:
        by_loop.setdefault(waiter.loop, []).append(waiter)
    for loop, of_loop in by_loop.items():
        with suppress(RuntimeError):  # the loop may be closed
            loop.call_soon_threadsafe(_settle, of_loop)


def _settle(waiters: list[Waiter]) -> None:
    """Settle the first `_TOGETHER` waiters now, and the rest in later turns of the event loop."""
    if len(waiters) > _TOGETHER:
        waiters[0].loop.call_soon(_settle, waiters[_TOGETHER:])
    for waiter in waiters[:_TOGETHER]:
        if waiter.future.done():
            continue
        if waiter.error is None:
            waiter.future.set_result(None)
        else:
            waiter.future.set_exception(waiter.error)
