"""One turn at a time per conversation, the rest in a queue; and which message a turn answers.

A kill empties the queue. A follow-up goes to its front, after it has asked the running turn to yield, but only so often.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from msgspec import Struct

from callgate.errors import UsageError

__all__ = ["Conversations", "Place"]

_MOST_WAITING = 64
_MOST_INTERRUPTS = 3


class Place(Struct, frozen=True):
    """A turn that has its conversation to itself."""

    reply_to: str | None
    """The message that the turn answers; None for the turns of a scene, which share their trigger."""
    drained: str = ""
    """Why the turn does not begin after all: the conversation was killed while it waited."""
    queued: bool = False
    """Whether it waited for another turn, whose end has cleared the way; what was asked for since then is meant for this one."""


class _Line:
    """The turns of one conversation: one that runs, others that wait."""

    __slots__ = ("busy", "interrupts", "scenes", "triggers", "waiting")

    def __init__(self) -> None:
        self.busy = False
        self.waiting: deque[asyncio.Future[str]] = deque()
        self.triggers: Counter[str] = Counter()
        self.scenes: set[str] = set()
        self.interrupts = 0

    def join(self, trigger: str | None) -> None:
        if trigger is not None:
            self.triggers[trigger] += 1
            if self.triggers[trigger] > 1:
                self.scenes.add(trigger)

    def leave(self, trigger: str | None) -> None:
        if trigger is not None:
            self.triggers[trigger] -= 1
            if self.triggers[trigger] <= 0:
                del self.triggers[trigger]
                self.scenes.discard(trigger)


class Conversations:
    """The lines of all conversations of one agent."""

    def __init__(self) -> None:
        self._lines: dict[str, _Line] = {}

    def waiting(self, conversation: str) -> int:
        """How many turns wait for the conversation."""
        line = self._lines.get(conversation)
        return len(line.waiting) if line is not None else 0

    def busy(self, conversation: str) -> bool:
        """Whether a turn of the conversation runs."""
        line = self._lines.get(conversation)
        return line is not None and line.busy

    def may_interrupt(self, conversation: str) -> bool:
        """Whether one more follow-up may end the running turn; counts it."""
        line = self._lines.get(conversation)
        if line is None or not line.busy or line.interrupts >= _MOST_INTERRUPTS:
            return False
        line.interrupts += 1
        return True

    def drain(self, conversation: str, reason: str) -> None:
        """End the wait of every turn in the queue; none of them begins."""
        line = self._lines.get(conversation)
        while line is not None and line.waiting:
            waiter = line.waiting.popleft()
            if not waiter.done():
                waiter.set_result(reason)

    @asynccontextmanager
    async def turn(self, conversation: str, *, trigger: str | None = None, first: bool = False) -> AsyncIterator[Place]:
        """Wait for the conversation, and have it until the block ends.

        Args:
            conversation: Whose turn.
            trigger: The host's id of the message that asked for the turn.
            first: Whether to go to the front of the queue.

        Raises:
            UsageError: Too many turns wait already.
        """
        line = self._lines.setdefault(conversation, _Line())
        line.join(trigger)
        queued, drained = line.busy, ""
        has_turn = False
        try:
            if queued:
                drained = await self._wait(line, conversation, first)
            has_turn = not drained
            line.busy = line.busy or has_turn
            yield Place(None if trigger in line.scenes else trigger, drained, queued)
        finally:
            line.leave(trigger)
            if has_turn:
                self._next(line, conversation)

    async def _wait(self, line: _Line, conversation: str, first: bool) -> str:
        if len(line.waiting) >= _MOST_WAITING:
            raise UsageError(f"{_MOST_WAITING} turns of conversation '{conversation[:80]}' wait already. Try again when one has ended.")
        waiter: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        (line.waiting.appendleft if first else line.waiting.append)(waiter)
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter in line.waiting:
                line.waiting.remove(waiter)
            elif not waiter.cancelled() and not waiter.result():
                self._next(line, conversation)  # it was this turn's time, and it is gone
            raise

    def _next(self, line: _Line, conversation: str) -> None:
        while line.waiting:
            waiter = line.waiting.popleft()
            if not waiter.done():
                waiter.set_result("")
                return
        line.busy = False
        self._lines.pop(conversation, None)
