"""Wait for code of the host's: policies, hooks, the handler of restarts. It ends nothing but itself, and holds nobody up beyond its time.

What it raises is a value here, `GeneratorExit` and `SystemExit` included; what does not stop when its time is over is left behind. Knows
neither policies nor hooks.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, TypeVar

from callgate._abort_signals import AbortSignal
from callgate._runners.host_awaits import HostAnswer, HostAwaits
from callgate.errors import CallNotStarted

__all__ = ["HostAnswer", "HostCode"]


_T = TypeVar("_T")


class HostCode:
    """For one engine. Belongs to one event loop.

    Args:
        grace_s: What code gets between being told to stop and being left behind.
    """

    def __init__(self, grace_s: float) -> None:
        self._guards = HostAwaits()
        self._grace_s = grace_s

    async def ask(self, answer: Awaitable[Any], timeout_s: float, name: str) -> HostAnswer:
        """What the code came to; see `HostAwaits.ask`."""
        return await self._guards.ask(answer, timeout_s=timeout_s, grace_s=self._grace_s, name=name)

    async def unless_killed(self, answer: Awaitable[_T], kill: AbortSignal, name: str) -> _T:
        """What the code gives or raises, unless `kill` fires before that.

        Raises:
            CallNotStarted: It has fired.
        """
        found = await self._guards.ask(answer, grace_s=self._grace_s, name=name, kill=kill)
        if found.error is None:
            return found.value  # type: ignore[no-any-return]
        if kill.reason is not None and isinstance(found.error, TimeoutError):
            raise CallNotStarted(f"It was not started: {kill.reason}. Nothing happened; it may be sent again.") from found.error
        raise found.error

    async def close(self) -> None:
        """Cancel once more what was left behind."""
        await self._guards.close()
