"""How many calls of each principal run and wait at the same time."""

from __future__ import annotations

import asyncio

from msgspec import Struct

from callgate.gateway.principals import Principal

__all__ = ["PrincipalLimits"]


class _Counts(Struct):
    free: asyncio.Semaphore
    waiting: int = 0
    used: int = 0


class PrincipalLimits:
    """The calls of all principals of one gateway."""

    def __init__(self) -> None:
        self._counts: dict[str, _Counts] = {}

    async def take(self, principal: Principal) -> str:
        """Wait until one more call of a principal may run; `give` must follow.

        Returns:
            Empty; or, if too many wait already, why the call may not run, for the model. Then `give` must not follow.
        """
        counts = self._counts.get(principal.name)
        if counts is None:
            counts = self._counts[principal.name] = _Counts(asyncio.Semaphore(principal.parallel))
        if counts.free.locked() and counts.waiting >= principal.queued:
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
        return ""

    def give(self, principal: Principal) -> None:
        """Let another call of the principal run."""
        counts = self._counts[principal.name]
        counts.used -= 1
        counts.free.release()
        if not counts.used and not counts.waiting:
            del self._counts[principal.name]
