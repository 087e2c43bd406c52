"""How much may run at once: a counter with a fair queue. Taking a free slot never waits and costs nothing."""

from __future__ import annotations

import asyncio
from collections import deque

from callgate._abort_signals import AbortSignal, settled

__all__ = ["Slots"]


class Slots:
    """At most `most` at once; who came first goes first, behind those that somebody with a place may wait for.

    Args:
        outer: Where a slot is needed, too, for each that is taken here: taken after it and given back with it.
    """

    __slots__ = ("_most", "_outer", "_taken", "_waiting")

    def __init__(self, most: int, outer: Slots | None = None) -> None:
        self._most = most
        self._outer = outer
        self._taken = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    def take_nowait(self) -> bool:
        """Take a slot if one is free and nobody waits for it."""
        if self._taken >= self._most or self._waiting or not (self._outer is None or self._outer.take_nowait()):
            return False
        self._taken += 1
        return True

    async def take(self, kill: AbortSignal, timeout_s: float, *, first: bool = False) -> bool:
        """Take a slot, waiting for one in turn; False where the kill or the end of the time came first.

        Args:
            first: A call that is under way waits for this one, which goes before those that nobody waits for.
        """
        if self.take_nowait():
            return True
        if not await self._own(kill, timeout_s, first):
            return False
        taken = False
        try:
            taken = self._outer is None or await self._outer.take(kill, timeout_s, first=first)
        finally:
            if not taken:
                self._pass_on()
        return taken

    async def _own(self, kill: AbortSignal, timeout_s: float, first: bool) -> bool:
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
        """Give up a place in the queue; a slot that came at that very moment goes on to the next."""
        if turn.done():
            self._pass_on()
        else:
            self._waiting.remove(turn)

    def give(self) -> None:
        """Give a slot back, and the outer one with it; it passes to whoever has waited longest."""
        if self._outer is not None:
            self._outer.give()
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
