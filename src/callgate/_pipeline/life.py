"""The life of one engine: which event loop it belongs to, what is under way in it, and how all of that ends in bounded time.

Here, and not in the engine, because it is a state machine of its own: open, then closing, then closed, and never back. Knows calls only as
something that is under way and can be killed.
"""

from __future__ import annotations

import asyncio
from asyncio import get_running_loop
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import Context
from typing import Protocol
from weakref import WeakSet

from callgate._pipeline.flight import Flight
from callgate.errors import UsageError

__all__ = ["Life"]

_WHY = "the engine was closed"
_PATIENCE_S = 1.0


class OpenMessage(Protocol):
    """A message whose calls have not all ended."""

    def end(self, reason: str) -> None: ...


class Life:
    """Open until it is closed.

    Args:
        begin: Called on the engine's event loop when that is known.
        cancelled: Puts the end of a call on record that nobody waits for.
        let_go: Lets go of all that the engine holds, when nothing is under way any more.
        grace_s: How long a call that is killed may take to end, beside a second.
    """

    def __init__(
        self,
        begin: Callable[[], None],
        cancelled: Callable[[Flight, str], None],
        let_go: Callable[[], Awaitable[None]],
        grace_s: float,
    ) -> None:
        self.running: dict[str, Flight] = {}
        """The calls that are under way, by uid."""
        self.messages: WeakSet[OpenMessage] = WeakSet()
        self.closed = False
        """Whether nothing new may come."""
        self.loop: asyncio.AbstractEventLoop | None = None
        self._begin = begin
        self._cancelled = cancelled
        self._let_go = let_go
        self._grace_s = grace_s
        self._closing: asyncio.Future[None] | None = None
        self._idle = asyncio.Event()
        """Set when the engine is closed and its last call has ended."""

    @property
    def ending(self) -> bool:
        """Whether what is under way is being ended, so that nothing of it may begin."""
        return self._closing is not None

    def check_open(self) -> None:
        """Have this event loop, if there was none.

        Raises:
            UsageError: The engine belongs to another one, or is closed.
        """
        loop = get_running_loop()
        if self.loop is not loop:
            if self.loop is not None:
                raise UsageError("This engine belongs to another event loop. Make one engine per loop, or use call_sync from plain code.")
            self.loop = loop
            self._begin()
        self.check_unclosed()

    def shut(self) -> None:
        """Let nothing new come."""
        self.closed = True

    def check_unclosed(self) -> None:
        if self.closed:
            raise UsageError("This engine is closed. Make a new one.")

    def conversing(self, conversation: str) -> bool:
        """Whether a call of the conversation is under way."""
        return any(flight.scope.conversation == conversation for flight in self.running.values())

    def ended(self, flight: Flight) -> None:
        """A call is no longer under way."""
        del self.running[flight.uid]
        flight.state.under_way -= 1
        if self.closed and not self.running:
            self._idle.set()

    async def close(self) -> None:
        """End what runs and let go. Idempotent; goes on to its end if whoever waits for it is cancelled.

        Raises:
            UsageError: The engine's event loop is another one, and still runs.
        """
        loop = get_running_loop()
        if self.loop is not None and self.loop is not loop and self.loop.is_running():
            raise UsageError("This engine belongs to another event loop, which still runs. Close it there.")
        self.closed = True
        if self._closing is None or self._was_cut_off(self._closing):
            self._closing = loop.create_task(self._close(alone=self.loop not in (None, loop)), context=Context())  # no tool's task
        if not self._closing.done():
            await asyncio.shield(self._closing)

    @staticmethod
    def _was_cut_off(closing: asyncio.Future[None]) -> bool:
        """Whether a close ended with its event loop, before its own end."""
        return closing.cancelled() or not (closing.done() or closing.get_loop().is_running())

    async def _close(self, *, alone: bool) -> None:
        """End what is under way, and let go.

        Args:
            alone: The engine's event loop is gone: what was under way there can never end by itself.
        """
        for message in list(self.messages):
            message.end(_WHY)
        for flight in list(self.running.values()):
            flight.kill.fire(_WHY)
        if self.running and not alone:
            with suppress(TimeoutError):
                async with asyncio.timeout(_PATIENCE_S + self._grace_s):
                    await self._idle.wait()
        for flight in self.running.values():  # still in somebody's slow policy or hook: nothing of it has run, and nothing will
            self._cancelled(flight, _WHY)
        await self._let_go()
