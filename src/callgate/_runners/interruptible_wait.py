"""A wait that ends with a result, a deadline, a kill or a cancellation.

Shared by the thread and the process runner: the tool runs elsewhere, so only the wait can be interrupted here. Must not know what it waits
for.
"""

from __future__ import annotations

import asyncio
from typing import Generic, TypeVar

from callgate._deadlines import Deadlines
from callgate._runners.exception_results import TimeBound, execution_overdue
from callgate.protocols import Execution

__all__ = ["BoundedWait"]

T = TypeVar("T")


class BoundedWait(Generic[T]):
    """A wait that is awaited once.

    It returns the value passed to `finish`, or None if the deadline or the kill came first. `killed` tells which of the
    two it was.
    """

    def __init__(self, request: TimeBound, deadlines: Deadlines) -> None:
        self._request = request
        self._deadlines = deadlines
        self._future: asyncio.Future[T | None] = asyncio.get_running_loop().create_future()
        self.over = False
        """Whether the wait has ended."""
        self.killed = False

    def finish(self, value: T) -> bool:
        """Deliver the result; return False if the wait has already ended."""
        if self._future.done():
            return False
        self._future.set_result(value)
        return True

    async def get(self) -> T | None:
        deadline = self._deadlines.set(self._request.timeout_s, self._time_out)
        remove_listener = self._request.kill.on_abort(self._kill)
        try:
            return await self._future
        finally:
            self.over = True
            remove_listener()
            self._deadlines.cancel(deadline)

    @property
    def value(self) -> T | None:
        """The delivered result, even if the wait was cancelled at the same moment."""
        done = self._future.done() and not self._future.cancelled()
        return self._future.result() if done else None

    def _time_out(self) -> None:
        self._end(False)

    def _kill(self) -> None:
        self._end(True)

    def _end(self, killed: bool) -> None:
        if not self._future.done():
            self.killed = killed
            self._future.set_result(None)

    def execution_overdue(self, **facts: bool | str) -> Execution:
        return execution_overdue(self._request, self.killed, **facts)
