"""How many calls of each principal run and wait at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from msgspec import Struct

from callgate.gateway.principals import Principal

__all__ = ["CallPermit", "PrincipalLimits"]


class _Counts(Struct):
    free: asyncio.Semaphore
    waiting: int = 0
    used: int = 0
    """The permits that were acquired and not released for good, those of calls that ask their clients included."""


class CallPermit:
    """Permits one call of a principal to run. It has to be released."""

    def __init__(self, principal: str, free: asyncio.Semaphore) -> None:
        self.principal = principal
        self._free = free
        self._is_held = True
        self._is_over = False
        self._waiting = 0
        """How many blocks of `released_while_waiting` run."""

    @asynccontextmanager
    async def released_while_waiting(self) -> AsyncIterator[None]:
        """Release the permit during the block, and acquire it again at the end, unless the block is cancelled.

        Blocks of one permit may overlap.
        """
        self._waiting += 1
        self._free_up()
        try:
            yield
        except asyncio.CancelledError:
            self._waiting -= 1
            raise
        except BaseException:
            await self._acquire_again()
            raise
        await self._acquire_again()

    async def _acquire_again(self) -> None:
        self._waiting -= 1
        if self._waiting:
            return
        await self._free.acquire()
        self._is_held = True
        if self._is_over:
            self._free_up()

    def end(self) -> None:
        """Release the permit permanently."""
        self._is_over = True
        self._free_up()

    def _free_up(self) -> None:
        if self._is_held:
            self._is_held = False
            self._free.release()


class PrincipalLimits:
    """The calls of all principals of one gateway."""

    def __init__(self) -> None:
        self._counts: dict[str, _Counts] = {}

    async def acquire(self, principal: Principal) -> CallPermit | str:
        """Wait until one more call of a principal may run, and return its permit; `release` must follow.

        If too many wait already, return why the call may not run, for the model.
        """
        counts = self._counts.get(principal.name)
        if counts is None:
            counts = self._counts[principal.name] = _Counts(asyncio.Semaphore(principal.parallel))
        if counts.waiting >= principal.queued and counts.free.locked():
            return (
                f"The call was not started: {principal.name} has reached the limit of calls at the same time, which is {principal.parallel}"
                f" running and {principal.queued} waiting. Wait for their results, then make it again."
            )
        counts.waiting += 1
        try:
            await counts.free.acquire()
        finally:
            counts.waiting -= 1
        counts.used += 1
        return CallPermit(principal.name, counts.free)

    def release(self, permit: CallPermit) -> None:
        """Release a permit permanently, so that another call of the principal can run."""
        counts = self._counts[permit.principal]
        counts.used -= 1
        permit.end()
        if not counts.used and not counts.waiting:
            del self._counts[permit.principal]
