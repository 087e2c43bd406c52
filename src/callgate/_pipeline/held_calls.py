"""Hold the calls of a message that cannot be taken yet: calls before them have not arrived, or their run is not open.

The run is opened when the first call needs it, and again when the message is sealed, because other engines may work on an idle run while
the message streams. Calls are taken in the order of their positions. Knows nothing of what taking a call means.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sized

from msgspec import Struct

from callgate._abort_signals import AbortSignal
from callgate._pipeline.admission import RunOfMessage
from callgate.errors import RecordFailed

__all__ = ["HeldCalls"]


class HeldCalls(Struct, eq=False):
    """The calls of one message that are not taken yet."""

    taken: Sized
    """The calls that are taken; taking one appends to it."""
    run: RunOfMessage | None
    """The run of the message. None: no other engine can work on it, so it is always open."""
    by_position: dict[int, Callable[[], None]] = {}
    """Functions that take the held calls."""
    ended: bool = False
    """Whether the engine ended the message, so that no further call of it is taken."""
    _opening: asyncio.Task[None] | None = None
    _over: bool = False
    """Whether the message was sealed or discarded."""

    @property
    def next_position(self) -> int:
        """The position after those that are taken or held."""
        position = len(self.taken)
        while position in self.by_position:
            position += 1
        return position

    def hold(self, position: int | None, take: Callable[[], None]) -> int:
        """Take a call as soon as those before it are taken and the run is open. Return its position."""
        position = self.next_position if position is None else position
        if position >= len(self.taken):
            self.by_position[position] = take
            if self.run is None or self.run.is_open:
                self.take()
            elif self._opening is None:
                self._opening = asyncio.get_running_loop().create_task(self.run.open())
                self._opening.add_done_callback(self._on_opened)
        return position

    def withdraw(self, position: int) -> None:
        """Drop the call at this position, if it is held."""
        self.by_position.pop(position, None)

    def take(self) -> None:
        """Take the calls that follow those that are taken."""
        while (take := self.by_position.pop(len(self.taken), None)) is not None:
            take()

    async def open(self, kill: AbortSignal) -> None:
        """Open the run when the message is sealed.

        Raises:
            RunHeld: Another engine works on the run.
            RecordFailed: The record cannot be read, or the message was ended before that.
        """
        self._over = True
        if self.run is None:
            return
        if kill.aborted and (self.ended or not self.run.is_open):
            why = f"the message was ended before its run was open ({kill.reason})."
            raise RecordFailed(why, told=why)
        await self.run.open()

    def discard(self) -> None:
        """Drop all held calls."""
        self._over = True
        self.by_position.clear()

    def _on_opened(self, opening: asyncio.Task[None]) -> None:
        self._opening = None
        if not opening.cancelled() and opening.exception() is None and not self._over:  # otherwise it is opened when the message is sealed
            self.take()
