"""One wait that a deadline, a kill and a cancel can end.

What the thread and the process runner have in common: the tool runs elsewhere, so that there is nothing to interrupt here but the
waiting. Must not know for what it waits.
"""

from __future__ import annotations

import asyncio
from typing import Generic, TypeVar

from callgate._runners.deadlines import Deadlines
from callgate._runners.failures import TimeBound, overdue
from callgate.protocols import Execution

__all__ = ["BoundedWait"]

T = TypeVar("T")


class BoundedWait(Generic[T]):
    """Awaited once; gives what `finish` was handed, or None where the deadline or the kill came first (`killed` says which)."""

    def __init__(self, request: TimeBound, alarms: Deadlines) -> None:
        self._request = request
        self._alarms = alarms
        self._future: asyncio.Future[T | None] = asyncio.get_running_loop().create_future()
        self.over = False
        """Nobody waits any more."""
        self.killed = False

    def finish(self, value: T) -> bool:
        """Hand over what is waited for. False: too late."""
        if self._future.done():
            return False
        self._future.set_result(value)
        return True

    async def get(self) -> T | None:
        alarm = self._alarms.set(self._request.timeout_s, self._overdue)
        silence = self._request.kill.on_abort(self._kill)
        try:
            return await self._future
        finally:
            self.over = True
            silence()
            self._alarms.take_off(alarm)

    @property
    def value(self) -> T | None:
        """What was handed over, also where the waiting itself was cancelled at that moment."""
        done = self._future.done() and not self._future.cancelled()
        return self._future.result() if done else None

    def _overdue(self) -> None:
        self._end(False)

    def _kill(self) -> None:
        self._end(True)

    def _end(self, killed: bool) -> None:
        if not self._future.done():
            self.killed = killed
            self._future.set_result(None)

    def overdue(self, **facts: bool | str) -> Execution:
        return overdue(self._request, self.killed, **facts)
