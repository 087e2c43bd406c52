"""How many calls of each principal run and wait at the same time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from callgate.gateway.principals import Principal

__all__ = ["CallPermit", "PrincipalLimits"]


class _Places:
    """How many calls of one principal run and wait."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held = 0
        self._turns: deque[asyncio.Future[None]] = deque()
        self.used = 0
        """The permits that are being acquired or were, and are not released for good, those of calls that ask their clients included."""

    @property
    def waiting(self) -> int:
        return len(self._turns)

    @property
    def full(self) -> bool:
        return bool(self._turns) or self._held >= self._most

    def limit(self, most: int) -> None:
        """Change how many calls may run. Those that run already go on."""
        if most != self._most:
            self._most = most
            self._give_turns()

    async def take(self) -> None:
        """Wait for a free place, and take it."""
        if not self.full:
            self._held += 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._turns.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                self.leave()
            elif turn in self._turns:
                self._turns.remove(turn)
            raise

    def leave(self) -> None:
        """Give a place to the call that has waited for longest, if the limit allows it."""
        self._held -= 1
        self._give_turns()

    def _give_turns(self) -> None:
        while self._turns and self._held < self._most:
            turn = self._turns.popleft()
            if not turn.done():
                self._held += 1
                turn.set_result(None)


class CallPermit:
    """Permits one call of a principal to run. It has to be released."""

    def __init__(self, principal: str, places: _Places) -> None:
        self.principal = principal
        self._places = places
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
        await self._places.take()
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
            self._places.leave()


class PrincipalLimits:
    """The calls of all principals of one gateway."""

    def __init__(self) -> None:
        self._places: dict[str, _Places] = {}

    async def acquire(self, principal: Principal) -> CallPermit | str:
        """Wait until one more call of a principal may run, and return its permit; `release` must follow.

        If too many wait already, return why the call may not run, for the model.
        """
        places = self._places.get(principal.name)
        if places is None:
            places = self._places[principal.name] = _Places(principal.parallel)
        places.limit(principal.parallel)
        if places.waiting >= principal.queued and places.full:
            return (
                f"The call was not started: {principal.name} has reached the limit of calls at the same time, which is {principal.parallel}"
                f" running and {principal.queued} waiting. Wait for their results, then make it again."
            )
        places.used += 1
        try:
            await places.take()
        except BaseException:
            self._end_use(principal.name)
            raise
        return CallPermit(principal.name, places)

    def release(self, permit: CallPermit) -> None:
        """Release a permit permanently, so that another call of the principal can run."""
        permit.end()
        self._end_use(permit.principal)

    def _end_use(self, principal: str) -> None:
        places = self._places[principal]
        places.used -= 1
        if not places.used:
            del self._places[principal]
