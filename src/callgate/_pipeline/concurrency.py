"""How calls run at once: which calls of one message may run side by side, how many may run, and in how few tasks.

`CallOrder` is pure. Two calls may run side by side if neither has an effect, or if both declare what they touch and a write of neither
meets the other. A call that has an effect and does not declare what it touches is a barrier: it waits for everything before it, and
everything after it waits for it. `Slots` is a counter with a fair queue. `TaskQueue` runs many calls in few tasks. None of them knows what
a call is.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextvars import Context, copy_context

from msgspec import Struct

from callgate._abort_signals import AbortSignal, settled
from callgate.tools.resources import KeyIndex, TouchedKeys, conflict

__all__ = ["CallOrder", "Footprint", "QueueStarter", "Slots", "TaskQueue", "may_run_beside"]

_MOST_NAMED = 32
"""From so many calls that one has to wait for, that one stands for them: what meets them waits for it instead. So a message of any size
is planned in about the time that it takes to read it; a small one runs exactly as freely as the rule allows."""


class Footprint(Struct, frozen=True):
    """What is known of a call before it runs."""

    reads_only: bool
    touched: TouchedKeys | None
    """None: not declared."""


def may_run_beside(one: Footprint, other: Footprint) -> bool:
    if one.reads_only and other.reads_only:
        return True
    return one.touched is not None and other.touched is not None and not conflict(one.touched, other.touched)


class CallOrder:
    """Takes calls in emission order and says which earlier ones each has to wait for.

    Calls are found by the keys they touch. Waiting is transitive, so a call that waits for all that was found at some place can take
    their place there. A call that ends without having waited must not be added: it would end before those whose place it took.
    """

    def __init__(self) -> None:
        self._barrier: tuple[int, ...] = ()
        self._clear()

    def _clear(self) -> None:
        self._since: list[int] = []
        self._effects: list[int] = []
        self._free: list[int] = []
        """Reads that do not say what they read: they meet every effect."""
        self._reads = KeyIndex()
        self._writes = KeyIndex()

    def add(self, index: int, call: Footprint) -> tuple[int, ...]:
        """The indexes of the calls that must have ended before this one starts.

        Args:
            index: In the message; above those of the calls that were added before.
        """
        if not call.reads_only and call.touched is None:
            waits = tuple(self._since) or self._barrier
            self._barrier = (index,)
            self._clear()
            return waits
        self._since.append(index)
        if call.touched is None:
            self._free.append(index)
            if not self._effects:
                return self._barrier
            found = _waits_for(self._effects, index)
        else:
            found = self._meeting(call.touched, index)
        if not call.reads_only:
            found |= _waits_for(self._free, index)
            self._effects.append(index)
        found.discard(index)
        return (*self._barrier, *sorted(found))

    def _meeting(self, touched: TouchedKeys, index: int) -> set[int]:
        """The calls with which this one's keys conflict; takes its place among them."""
        found = set[int]()
        for key in touched.writes:
            found.update(self._reads.take_below(key), self._writes.take_below(key))
            for indexes in (*self._reads.above(key), *self._writes.above(key)):
                found |= _waits_for(indexes, index)
        for key in touched.reads:
            for indexes in self._writes.above(key):
                found |= _waits_for(indexes, index)
            below = self._writes.below(key)
            found.update(below)
            if len(below) > _MOST_NAMED:
                self._writes.take_below(key)
                self._writes.add(key, index)
        for key in touched.writes:
            self._writes.add(key, index)
        for key in touched.reads:
            self._reads.add(key, index)
        return found


def _waits_for(earlier: list[int], index: int) -> set[int]:
    """What `earlier` holds; where that is much, `index` takes its place."""
    found = set(earlier)
    if len(earlier) > _MOST_NAMED:
        earlier[:] = [index]
    return found


class Slots:
    """At most `most` at once; who came first goes first, behind those that somebody with a place may wait for.

    Args:
        outer: Where a slot is needed, too, for each that is taken here: taken after it and given back with it.
    """

    __slots__ = ("_most", "_outer", "_taken", "_waiting")

    def __init__(self, most: int, outer: Slots | None = None) -> None:
        self._most = most
        self._outer = outer
        self._taken = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    def take_nowait(self) -> bool:
        """Take a slot if one is free and nobody waits for it."""
        if self._taken >= self._most or self._waiting or not (self._outer is None or self._outer.take_nowait()):
            return False
        self._taken += 1
        return True

    async def take(self, kill: AbortSignal, timeout_s: float, *, first: bool = False) -> bool:
        """Take a slot, waiting for one in turn; False where the kill or the end of the time came first.

        Args:
            first: A call that is under way waits for this one, which goes before those that nobody waits for.
        """
        if self.take_nowait():
            return True
        if not await self._own(kill, timeout_s, first):
            return False
        taken = False
        try:
            taken = self._outer is None or await self._outer.take(kill, timeout_s, first=first)
        finally:
            if not taken:
                self._pass_on()
        return taken

    async def _own(self, kill: AbortSignal, timeout_s: float, first: bool) -> bool:
        if self._taken < self._most and not self._waiting:
            self._taken += 1
            return True
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if first:
            self._waiting.appendleft(turn)
        else:
            self._waiting.append(turn)
        taken = False
        try:
            taken = await settled(turn, kill, timeout_s)
        finally:
            if not taken:
                self._leave(turn)
        return taken

    def _leave(self, turn: asyncio.Future[None]) -> None:
        """Give up a place in the queue; a slot that came at that very moment goes on to the next."""
        if turn.done():
            self._pass_on()
        else:
            self._waiting.remove(turn)

    def give(self) -> None:
        """Give a slot back, and the outer one with it; it passes to whoever has waited longest."""
        if self._outer is not None:
            self._outer.give()
        if self._waiting:
            self._pass_on()
        else:
            self._taken -= 1

    def _pass_on(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._taken -= 1


Work = Callable[[], Awaitable[None]]

_TOGETHER = 64
"""Calls that one task runs, where none of them waits, before the event loop comes round: some milliseconds."""
_MOST_TASKS = 1_024
"""Tasks of one queue at once, unless more calls may run at once."""


class QueueStarter:
    """Begins queues as soon as the event loop comes round. Belongs to that loop.

    Most queues are taken back before, because somebody waits for their single call and runs it. So the loop is asked once for all of them,
    and what it was asked for stays asked for: a loop that never comes round keeps one request, and not one for every message.
    """

    __slots__ = ("_asked", "_queues")

    def __init__(self) -> None:
        self._queues: dict[TaskQueue, None] = {}
        self._asked = False

    def begin(self, queue: TaskQueue) -> None:
        self._queues[queue] = None
        if not self._asked:
            self._asked = True
            asyncio.get_running_loop().call_soon(self._begin)

    def take_back(self, queue: TaskQueue) -> None:
        del self._queues[queue]

    def _begin(self) -> None:
        self._asked = False
        queues, self._queues = self._queues, {}
        for queue in queues:
            queue.begin()


class TaskQueue:
    """Runs whatever is added, in order, side by side. Belongs to one event loop. Holds nothing of what has ended.

    A task for every call would cost more than most calls do. One task runs call after call for as long as none of them waits; the moment
    one does, the event loop comes to the spare task, which goes on with the next. So calls start in order, none waits for another, and a
    call that waits has its task to itself. After some calls a task leaves the rest to the spare one all the same, so that other tasks get
    their turn, and the sooner the more work the calls are. The number of tasks is bounded, because each garbage collection looks at all of
    them; calls above it begin as others end. A single call that nothing has begun yet needs no task at all: whoever waits for it runs it.

    Args:
        starter: Begins it.
        parallel: How many calls may run at once.
    """

    __slots__ = ("_context", "_failed", "_most", "_put_off", "_spare", "_starter", "_tasks", "_waiting")

    def __init__(self, starter: QueueStarter, parallel: int = 0) -> None:
        self._starter = starter
        self._most = max(_MOST_TASKS, parallel)
        self._failed: BaseException | None = None
        self._waiting: deque[tuple[Work, int]] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._context: Context = copy_context()
        self._spare = False
        """Whether a task has been made that has not begun."""
        self._put_off = False
        """Whether the first task is made as soon as the event loop comes round."""

    def add(self, work: Work, weight: int = 1) -> None:
        """Run `work`, which is as much as `weight` small calls, as soon as the event loop comes round."""
        self._waiting.append((work, weight))
        if self._spare or self._put_off:
            return
        if self._tasks:
            self._make_spare()
        else:
            self._put_off = True
            self._starter.begin(self)

    def begin(self) -> None:
        """Make the first task."""
        self._put_off = False
        self._make_spare()

    def _make_spare(self) -> None:
        """Make the next task, if there may be one more; else the next one that ends makes it."""
        if len(self._tasks) >= self._most:
            return
        self._spare = True
        task = asyncio.get_running_loop().create_task(self._work(), context=self._context.copy())
        task.add_done_callback(self._ended)
        self._tasks.add(task)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            return
        self._failed = self._failed or task.exception()
        if self._waiting and not self._spare:
            self._make_spare()

    async def _work(self) -> None:
        self._spare = False
        task = asyncio.current_task()
        # A tool that cancelled the task it ran in must not end the next call too.
        left = _TOGETHER
        while self._waiting and left > 0 and task is not None and not task.cancelling():
            work, weight = self._waiting.popleft()
            left -= weight
            if self._waiting and not self._spare:
                self._make_spare()
            await work()

    async def ended(self) -> None:
        """Wait for all that was added. Raises what a run raised: a bug of ours must not hide in a task."""
        if self._put_off:
            self._starter.take_back(self)
            self._put_off = False
            if len(self._waiting) == 1:
                await self._waiting.popleft()[0]()
            else:
                self._make_spare()
        while self._tasks:
            await asyncio.wait(self._tasks)
        if self._failed is not None:
            raise self._failed
