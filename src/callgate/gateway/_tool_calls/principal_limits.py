"""How many calls of each principal run and wait at the same time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from callgate.gateway.principals import Principal

__all__ = ["CallPermit", "PrincipalLimits"]


class _CallSlots:
    """The slots in which calls of one principal run: a semaphore whose limit can change, and that is fair."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held = 0
        self._waiters: deque[asyncio.Future[None]] = deque()
        self.used = 0
        """The permits that are being acquired or were, and are not released for good, those of calls that ask their clients included."""

    @property
    def waiting(self) -> int:
        return len(self._waiters)

    @property
    def full(self) -> bool:
        return bool(self._waiters) or self._held >= self._most

    def set_limit(self, most: int) -> None:
        """Change how many calls may run. Those that run already go on."""
        if most != self._most:
            self._most = most
            self._wake_waiters()

    async def acquire(self) -> None:
        """Wait for a free slot, and acquire it."""
        if not self.full:
            self._held += 1
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if not waiter.cancelled():
                self.release()
            elif waiter in self._waiters:
                self._waiters.remove(waiter)
            raise

    def release(self) -> None:
        """Release a slot. The call that has waited for longest gets it, if the limit allows it."""
        self._held -= 1
        self._wake_waiters()

    def _wake_waiters(self) -> None:
        while self._waiters and self._held < self._most:
            waiter = self._waiters.popleft()
            if not waiter.done():
                self._held += 1
                waiter.set_result(None)


class CallPermit:
    """Permits one call of a principal to run. It has to be released."""

    def __init__(self, principal: str, slots: _CallSlots) -> None:
        self.principal = principal
        self._slots = slots
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
        await self._slots.acquire()
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
            self._slots.release()


class PrincipalLimits:
    """The calls of all principals of one gateway."""

    def __init__(self) -> None:
        self._by_principal: dict[str, _CallSlots] = {}

    async def acquire(self, principal: Principal) -> CallPermit | str:
        """Wait until one more call of a principal may run, and return its permit; `release` must follow.

        If too many wait already, return why the call may not run, for the model.
        """
        slots = self._by_principal.get(principal.name)
        if slots is None:
            slots = self._by_principal[principal.name] = _CallSlots(principal.parallel)
        slots.set_limit(principal.parallel)
        if slots.waiting >= principal.queued and slots.full:
            return (
                f"The call was not started: {principal.name} has reached the limit of calls at the same time, which is {principal.parallel}"
                f" running and {principal.queued} waiting. Wait for their results, then make it again."
            )
        slots.used += 1
        try:
            await slots.acquire()
        except BaseException:
            self._end_use(principal.name)
            raise
        return CallPermit(principal.name, slots)

    def release(self, permit: CallPermit) -> None:
        """Release a permit permanently, so that another call of the principal can run."""
        permit.end()
        self._end_use(permit.principal)

    def _end_use(self, principal: str) -> None:
        slots = self._by_principal[principal]
        slots.used -= 1
        if not slots.used:
            del self._by_principal[principal]
