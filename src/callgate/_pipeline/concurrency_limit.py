"""Limit how many calls run at the same time, with a fair queue. Knows nothing of what a call does."""

from __future__ import annotations

import asyncio
from collections import deque

from callgate._abort_signals import AbortSignal, settled

__all__ = ["ConcurrencyLimit"]


class ConcurrencyLimit:
    """Limits how many calls run at the same time. First come, first served, except for calls that a running call waits for: they go first.

    Args:
        most: The maximum number.
        outer: A further limit: for each slot acquired here, one is acquired there afterwards, and both are released together.
    """

    __slots__ = ("_most", "_outer", "_taken", "_waiting")

    def __init__(self, most: int, outer: ConcurrencyLimit | None = None) -> None:
        self._most = most
        self._outer = outer
        self._taken = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    def acquire_nowait(self) -> bool:
        """Acquire a slot if one is free and no call is waiting for one. Return whether it was acquired."""
        if self._taken >= self._most or self._waiting or not (self._outer is None or self._outer.acquire_nowait()):
            return False
        self._taken += 1
        return True

    async def acquire(self, kill: AbortSignal, timeout_s: float, *, first: bool = False) -> bool:
        """Wait for a slot and acquire it. Return False if the kill signal fires or the time runs out first.

        Args:
            first: Whether a running call waits for this call, which then goes to the front of the queue.
        """
        if self.acquire_nowait():
            return True
        if not await self._acquire_own(kill, timeout_s, first):
            return False
        taken = False
        try:
            taken = self._outer is None or await self._outer.acquire(kill, timeout_s, first=first)
        finally:
            if not taken:
                self._pass_on()
        return taken

    async def _acquire_own(self, kill: AbortSignal, timeout_s: float, first: bool) -> bool:
        if self._taken < self._most and not self._waiting:
            self._taken += 1
            return True
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if first:
            self._waiting.appendleft(turn)
        else:
            self._waiting.append(turn)
        taken = False
        try:
            taken = await settled(turn, kill, timeout_s)
        finally:
            if not taken:
                self._leave(turn)
        return taken

    def _leave(self, turn: asyncio.Future[None]) -> None:
        """Leave the queue. If a slot was assigned at the same moment, it is passed to the next in the queue."""
        if turn.done():
            self._pass_on()
        else:
            self._waiting.remove(turn)

    def release(self) -> None:
        """Release a slot, and the outer one with it; it is assigned to the call that is first in the queue."""
        if self._outer is not None:
            self._outer.release()
        if self._waiting:
            self._pass_on()
        else:
            self._taken -= 1

    def _pass_on(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._taken -= 1
