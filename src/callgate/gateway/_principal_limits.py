"""How many calls of each principal run and wait at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from msgspec import Struct

from callgate.gateway.principals import Principal

__all__ = ["PrincipalLimits", "Slot"]


class Slot(Struct, frozen=True):
    """Whether a call may run; if not, `text` tells the model why."""

    text: str = ""

    def __bool__(self) -> bool:
        return not self.text


class _Counts(Struct):
    free: asyncio.Semaphore
    waiting: int = 0
    used: int = 0


class PrincipalLimits:
    """The calls of all principals of one gateway."""

    def __init__(self) -> None:
        self._counts: dict[str, _Counts] = {}

    @asynccontextmanager
    async def slot(self, principal: Principal) -> AsyncIterator[Slot]:
        """Wait until one more call of a principal may run. Refused at once if too many wait already."""
        counts = self._counts.get(principal.name)
        if counts is None:
            counts = self._counts[principal.name] = _Counts(asyncio.Semaphore(principal.parallel))
        if counts.free.locked() and counts.waiting >= principal.queued:
            yield Slot(
                f"The call was not started: {principal.parallel} calls of {principal.name} run and {principal.queued} wait, which is the"
                " limit. Wait for their results, then make it again."
            )
            return
        counts.waiting += 1
        try:
            await counts.free.acquire()
        finally:
            counts.waiting -= 1
        counts.used += 1
        try:
            yield Slot()
        finally:
            counts.used -= 1
            counts.free.release()
            if not counts.used and not counts.waiting:
                self._counts.pop(principal.name, None)
