"""How many calls of each principal run and wait at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from msgspec import Struct

from callgate.gateway.principals import Principal

__all__ = ["Place", "PrincipalLimits"]


class _Counts(Struct):
    free: asyncio.Semaphore
    waiting: int = 0
    used: int = 0
    """The places that were taken and not given back, lent ones included."""


class Place:
    """One of a principal's places for calls that run at the same time. It has to be given back."""

    def __init__(self, principal: str, free: asyncio.Semaphore) -> None:
        self.principal = principal
        self._free = free
        self._is_held = True
        self._is_over = False
        self._borrowers = 0

    @asynccontextmanager
    async def lent(self) -> AsyncIterator[None]:
        """During the block, let another call have the place. At the end, wait until there is one again, unless the block is cancelled.

        Blocks of one place may overlap.
        """
        self._borrowers += 1
        self._release()
        try:
            yield
        except asyncio.CancelledError:
            self._borrowers -= 1
            raise
        except BaseException:
            await self._returned()
            raise
        await self._returned()

    async def _returned(self) -> None:
        self._borrowers -= 1
        if self._borrowers:
            return
        await self._free.acquire()
        self._is_held = True
        if self._is_over:
            self._release()

    def end(self) -> None:
        """Let another call have the place, for good."""
        self._is_over = True
        self._release()

    def _release(self) -> None:
        if self._is_held:
            self._is_held = False
            self._free.release()


class PrincipalLimits:
    """The calls of all principals of one gateway."""

    def __init__(self) -> None:
        self._counts: dict[str, _Counts] = {}

    async def take(self, principal: Principal) -> Place | str:
        """Wait until one more call of a principal may run, and return its place; `give` must follow.

        If too many wait already, return why the call may not run, for the model.
        """
        counts = self._counts.get(principal.name)
        if counts is None:
            counts = self._counts[principal.name] = _Counts(asyncio.Semaphore(principal.parallel))
        if counts.waiting >= principal.queued and counts.free.locked():
            return (
                f"The call was not started: {principal.parallel} calls of {principal.name} run and {principal.queued} wait, which is the"
                " limit. Wait for their results, then make it again."
            )
        counts.waiting += 1
        try:
            await counts.free.acquire()
        finally:
            counts.waiting -= 1
        counts.used += 1
        return Place(principal.name, counts.free)

    def give(self, place: Place) -> None:
        """Let another call of the principal run."""
        counts = self._counts[place.principal]
        counts.used -= 1
        place.end()
        if not counts.used and not counts.waiting:
            del self._counts[place.principal]
