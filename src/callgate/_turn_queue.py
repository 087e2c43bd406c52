"""One turn at a time per conversation, the rest in a queue; and which message a turn answers.

A kill empties the queue. A follow-up goes to its front, after it has asked the running turn to yield, but only so often. A turn that would
wait for its own end is refused. It stands below the engine, which owns one for all who take turns on it: agents that share an engine
share its conversations. Must not know what a turn does.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar

from msgspec import Struct

from callgate.errors import UsageError

__all__ = ["QueuedTurn", "TurnQueues"]

_MOST_WAITING = 64
_MOST_INTERRUPTS = 3


class QueuedTurn(Struct, frozen=True):
    """A turn that has its conversation to itself."""

    reply_to: str | None
    """The message that the turn answers; None where it did not wait, and for the turns of a scene, which share their trigger."""
    drained: str = ""
    """Why the turn does not begin after all: the conversation was killed while it waited."""
    queued: bool = False
    """Whether it waited for another turn, whose end has cleared the way; what was asked for since then is meant for this one."""


class _Turn:
    """A turn that runs or waits, and the lines that code inside it waits in."""

    __slots__ = ("waits",)

    def __init__(self) -> None:
        self.waits: list[_TurnLine] = []


_inside: ContextVar[tuple[_Turn, ...]] = ContextVar("callgate_turns", default=())
"""The turns that the present code belongs to, the outermost first."""


class _TurnLine:
    """The turns of one conversation: one that runs, others that wait."""

    __slots__ = ("interrupts", "scenes", "triggers", "turn", "waiting")

    def __init__(self) -> None:
        self.turn: _Turn | None = None
        """The one that runs."""
        self.waiting: deque[tuple[asyncio.Future[str], _Turn]] = deque()
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


class TurnQueues:
    """The lines of all conversations of one engine."""

    def __init__(self) -> None:
        self._lines: dict[str, _TurnLine] = {}

    def waiting(self, conversation: str) -> int:
        """How many turns wait for the conversation."""
        line = self._lines.get(conversation)
        return len(line.waiting) if line is not None else 0

    def busy(self, conversation: str) -> bool:
        """Whether a turn of the conversation runs."""
        line = self._lines.get(conversation)
        return line is not None and line.turn is not None

    def may_interrupt(self, conversation: str) -> bool:
        """Whether one more follow-up may end the running turn; counts it."""
        line = self._lines.get(conversation)
        if line is None or line.turn is None or line.interrupts >= _MOST_INTERRUPTS:
            return False
        line.interrupts += 1
        return True

    def drain(self, conversation: str, reason: str) -> None:
        """End the wait of every turn in the queue; none of them begins."""
        line = self._lines.get(conversation)
        while line is not None and line.waiting:
            waiter, _ = line.waiting.popleft()
            if not waiter.done():
                waiter.set_result(reason)

    def refuse_inside(self, conversation: str) -> None:
        """Raises `UsageError` where code inside a turn asks for a turn that could only begin after that one's end."""
        line = self._lines.get(conversation)
        if line is None or line.turn is None or not _leads_to(line, frozenset(_inside.get())):
            return
        raise UsageError(
            f"A tool that runs in a turn of conversation '{conversation[:80]}' asked for another turn of it, which would begin when that"
            " one has ended, which waits for it. Give it a conversation of its own, or ask for it when the turn is over.",
            code="waits_for_itself",
        )

    @asynccontextmanager
    async def turn(
        self, conversation: str, *, trigger: str | None = None, scene: bool = False, first: bool = False
    ) -> AsyncIterator[QueuedTurn]:
        """Wait for the conversation, and have it until the block ends.

        Args:
            conversation: Whose turn.
            trigger: The host's id of the message that asked for the turn.
            scene: Whether the turn is one of a scene. So is one whose trigger another turn has that runs or waits.
            first: Whether to go to the front of the queue.

        Raises:
            UsageError: Too many turns wait already, or this one would wait for itself (`waits_for_itself`).
        """
        self.refuse_inside(conversation)
        line = self._lines.setdefault(conversation, _TurnLine())
        line.join(trigger)
        queued, drained = line.turn is not None, ""
        turn = _Turn()
        has_turn = False
        try:
            if queued:
                with _waiting_in(line):
                    drained = await self._wait(line, conversation, turn, first)
            has_turn = not drained
            if has_turn:
                line.turn = turn
            with _as_part_of(turn):
                replies = queued and not scene and trigger not in line.scenes
                yield QueuedTurn(trigger if replies else None, drained, queued)
        finally:
            line.leave(trigger)
            if has_turn:
                self._next(line, conversation)

    async def _wait(self, line: _TurnLine, conversation: str, turn: _Turn, first: bool) -> str:
        if len(line.waiting) >= _MOST_WAITING:
            raise UsageError(f"{_MOST_WAITING} turns of conversation '{conversation[:80]}' wait already. Try again when one has ended.")
        waiter: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        (line.waiting.appendleft if first else line.waiting.append)((waiter, turn))
        try:
            return await waiter
        except asyncio.CancelledError:
            if (waiter, turn) in line.waiting:
                line.waiting.remove((waiter, turn))
            elif not waiter.cancelled() and not waiter.result():
                self._next(line, conversation)  # it was this turn's time, and it is gone
            raise

    def _next(self, line: _TurnLine, conversation: str) -> None:
        while line.waiting:
            waiter, line.turn = line.waiting.popleft()
            if not waiter.done():
                waiter.set_result("")
                return
        line.turn = None
        self._lines.pop(conversation, None)


def _leads_to(line: _TurnLine, mine: frozenset[_Turn]) -> bool:
    """Whether the line's turn is one of `mine`, or waits for one, over however many lines."""
    seen: set[_Turn] = set()
    ahead = [line.turn]
    while ahead:
        turn = ahead.pop()
        if turn in mine:
            return True
        if turn is not None and turn not in seen:
            seen.add(turn)
            ahead += [other.turn for other in turn.waits]
    return False


@contextmanager
def _waiting_in(line: _TurnLine) -> Iterator[None]:
    """The turns that this code belongs to wait in the line."""
    turns = _inside.get()
    for turn in turns:
        turn.waits.append(line)
    try:
        yield
    finally:
        for turn in turns:
            turn.waits.remove(line)


@contextmanager
def _as_part_of(turn: _Turn) -> Iterator[None]:
    around = _inside.get()
    _inside.set((*around, turn))
    try:
        yield
    finally:
        _inside.set(around)
