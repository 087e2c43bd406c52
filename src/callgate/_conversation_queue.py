"""Run one turn at a time per conversation and queue the rest; determine which message a turn answers.

A kill empties the queue. A follow-up asks the running turn to yield, a limited number of times, and goes to the front of the queue. A turn
that would wait for its own end is refused. Stands below the engine, which owns one for all its users: agents that share an engine share
its conversations. Must not know what a turn does.
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
    """A turn that may run now, or that was drained from the queue."""

    reply_to: str | None
    """The message that the turn answers; None if it did not wait, and for turns of a scene, which share their trigger."""
    drained: str = ""
    """Set if the turn must not run: the reason why the conversation was killed while the turn waited."""
    queued: bool = False
    """The turn waited for another one to end; requests made since then are meant for this turn."""


class _Turn:
    """A turn that runs or waits, and the queues in which code inside it waits."""

    __slots__ = ("waits",)

    def __init__(self) -> None:
        self.waits: list[_TurnQueue] = []


_inside: ContextVar[tuple[_Turn, ...]] = ContextVar("callgate_turns", default=())
"""The turns that the current code belongs to, the outermost first."""


class _TurnQueue:
    """The turns of one conversation: one runs, the others wait."""

    __slots__ = ("interrupts", "scenes", "triggers", "turn", "waiting")

    def __init__(self) -> None:
        self.turn: _Turn | None = None
        """The turn that runs."""
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
    """The turn queues of all conversations of one engine."""

    def __init__(self) -> None:
        self._queues: dict[str, _TurnQueue] = {}

    def waiting(self, conversation: str) -> int:
        """Return how many turns wait for the conversation."""
        queue = self._queues.get(conversation)
        return len(queue.waiting) if queue is not None else 0

    def busy(self, conversation: str) -> bool:
        """Return whether a turn of the conversation runs."""
        queue = self._queues.get(conversation)
        return queue is not None and queue.turn is not None

    def may_interrupt(self, conversation: str) -> bool:
        """Return whether one more follow-up may interrupt the running turn, and count it."""
        queue = self._queues.get(conversation)
        if queue is None or queue.turn is None or queue.interrupts >= _MOST_INTERRUPTS:
            return False
        queue.interrupts += 1
        return True

    def drain(self, conversation: str, reason: str) -> None:
        """End the wait of every queued turn; none of them begins."""
        queue = self._queues.get(conversation)
        while queue is not None and queue.waiting:
            waiter, _ = queue.waiting.popleft()
            if not waiter.done():
                waiter.set_result(reason)

    def refuse_inside(self, conversation: str) -> None:
        """Raise `UsageError` if code inside a turn requests a turn that could begin only after its own."""
        queue = self._queues.get(conversation)
        if queue is None or queue.turn is None or not _waits_for_any(queue, frozenset(_inside.get())):
            return
        raise UsageError(
            f"A tool requested a turn of conversation '{conversation[:80]}' that could begin only after the turn that the tool runs in."
            " Give it a conversation of its own, or request it after the present turn has ended.",
            code="waits_for_itself",
        )

    @asynccontextmanager
    async def turn(
        self, conversation: str, *, trigger: str | None = None, scene: bool = False, first: bool = False
    ) -> AsyncIterator[QueuedTurn]:
        """Wait for the conversation and hold it until the block ends.

        Args:
            conversation: The turn's conversation.
            trigger: The host's id of the message that requested the turn.
            scene: The turn belongs to a scene. A turn also does if a running or waiting turn has the same trigger.
            first: Go to the front of the queue.

        Raises:
            UsageError: Too many turns wait already, or this one would wait for itself (`waits_for_itself`).
        """
        self.refuse_inside(conversation)
        queue = self._queues.setdefault(conversation, _TurnQueue())
        queue.join(trigger)
        queued, drained = queue.turn is not None, ""
        turn = _Turn()
        has_turn = False
        try:
            if queued:
                with _waiting_in(queue):
                    drained = await self._wait(queue, conversation, turn, first)
            has_turn = not drained
            if has_turn:
                queue.turn = turn
            with _as_part_of(turn):
                replies = queued and not scene and trigger not in queue.scenes
                yield QueuedTurn(trigger if replies else None, drained, queued)
        finally:
            queue.leave(trigger)
            if has_turn:
                self._next(queue, conversation)

    async def _wait(self, queue: _TurnQueue, conversation: str, turn: _Turn, first: bool) -> str:
        if len(queue.waiting) >= _MOST_WAITING:
            raise UsageError(f"{_MOST_WAITING} turns of conversation '{conversation[:80]}' wait already. Try again when one has ended.")
        waiter: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        (queue.waiting.appendleft if first else queue.waiting.append)((waiter, turn))
        try:
            return await waiter
        except asyncio.CancelledError:
            if (waiter, turn) in queue.waiting:
                queue.waiting.remove((waiter, turn))
            elif not waiter.cancelled() and not waiter.result():
                self._next(queue, conversation)  # this turn was next, but was cancelled
            raise

    def _next(self, queue: _TurnQueue, conversation: str) -> None:
        while queue.waiting:
            waiter, queue.turn = queue.waiting.popleft()
            if not waiter.done():
                waiter.set_result("")
                return
        queue.turn = None
        self._queues.pop(conversation, None)


def _waits_for_any(queue: _TurnQueue, mine: frozenset[_Turn]) -> bool:
    """Return whether the queue's turn is one of `mine` or waits for one of them, directly or through other queues."""
    seen: set[_Turn] = set()
    ahead = [queue.turn]
    while ahead:
        turn = ahead.pop()
        if turn in mine:
            return True
        if turn is not None and turn not in seen:
            seen.add(turn)
            ahead += [other.turn for other in turn.waits]
    return False


@contextmanager
def _waiting_in(queue: _TurnQueue) -> Iterator[None]:
    """Record that the turns that the current code belongs to wait in the queue."""
    turns = _inside.get()
    for turn in turns:
        turn.waits.append(queue)
    try:
        yield
    finally:
        for turn in turns:
            turn.waits.remove(queue)


@contextmanager
def _as_part_of(turn: _Turn) -> Iterator[None]:
    around = _inside.get()
    _inside.set((*around, turn))
    try:
        yield
    finally:
        _inside.set(around)
