"""Control concurrency: which calls of one message may run at the same time, how many may run, and in how few tasks.

`CallOrder` is pure. Two calls may run at the same time if neither has an effect, or if both declare the resources that they touch and no
write of one conflicts with the other. A call with an effect that does not declare its resources is a barrier: it waits for all calls before
it, and all calls after it wait for it. `Slots` is a counter with a fair queue. `TaskQueue` runs many calls in few tasks. None of them knows
what a call does.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextvars import Context, copy_context

from msgspec import Struct

from callgate._abort_signals import AbortSignal, settled
from callgate.stage_types import ValidatedCall
from callgate.tools.resource_conflicts import KeyIndex, TouchedKeys, conflict

__all__ = [
    "UNDECLARED_EFFECT",
    "UNDECLARED_READ",
    "CallOrder",
    "Footprint",
    "QueueStarter",
    "Slots",
    "TaskQueue",
    "footprint_of",
    "may_run_beside",
]

_MOST_NAMED = 32
"""If a call has to wait for more calls than this, it stands for them: calls that conflict with them wait for it instead. The time to plan a
message is therefore about proportional to its size, and small messages still run as concurrently as the rule allows."""


class Footprint(Struct, frozen=True):
    """The known effects of a call before it runs."""

    reads_only: bool
    touched: TouchedKeys | None
    """The declared resources; None: not declared."""


UNDECLARED_READ = Footprint(reads_only=True, touched=None)
UNDECLARED_EFFECT = Footprint(reads_only=False, touched=None)


def footprint_of(call: ValidatedCall) -> Footprint:
    """Return the resources that a call touches."""
    touched = call.tool.touched(call.arguments, call.scope)
    reads_only = call.tool.effect == "none"
    if touched is None:
        return UNDECLARED_READ if reads_only else UNDECLARED_EFFECT
    return Footprint(reads_only, touched)


def may_run_beside(one: Footprint, other: Footprint) -> bool:
    if one.reads_only and other.reads_only:
        return True
    return one.touched is not None and other.touched is not None and not conflict(one.touched, other.touched)


class CallOrder:
    """Takes calls in the order of their message and returns which earlier calls each has to wait for.

    Calls are found by the keys of the resources they touch. Waiting is transitive: a call that waits for all calls found under a key can
    replace them there. Calls that end without having waited must not be added, because they would end before the calls that they replaced.
    """

    def __init__(self) -> None:
        self._barrier: tuple[int, ...] = ()
        self._clear()

    def _clear(self) -> None:
        self._since: list[int] = []
        self._effects: list[int] = []
        self._free: list[int] = []
        """Reads that do not declare what they read; they conflict with every effect."""
        self._reads = KeyIndex()
        self._writes = KeyIndex()

    def add(self, index: int, call: Footprint) -> tuple[int, ...]:
        """Return the indexes of the calls that must have ended before this one starts.

        Args:
            index: The index of the call in the message; greater than those of the calls added before.
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
        """Return the calls whose keys conflict with this call's, and add this call to the indexes."""
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
    """Return the calls in `earlier`; if they are many, replace them with `index` there."""
    found = set(earlier)
    if len(earlier) > _MOST_NAMED:
        earlier[:] = [index]
    return found


class Slots:
    """Limits how many calls run at the same time. First come, first served, except for calls that a running call waits for: they go first.

    Args:
        most: The maximum number.
        outer: Further slots: for each slot taken here, one is taken there afterwards, and both are given back together.
    """

    __slots__ = ("_most", "_outer", "_taken", "_waiting")

    def __init__(self, most: int, outer: Slots | None = None) -> None:
        self._most = most
        self._outer = outer
        self._taken = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    def take_nowait(self) -> bool:
        """Take a slot if one is free and no call is waiting for one. Return whether it was taken."""
        if self._taken >= self._most or self._waiting or not (self._outer is None or self._outer.take_nowait()):
            return False
        self._taken += 1
        return True

    async def take(self, kill: AbortSignal, timeout_s: float, *, first: bool = False) -> bool:
        """Wait for a slot and take it. Return False if the kill signal fires or the time runs out first.

        Args:
            first: Whether a running call waits for this call, which then goes to the front of the queue.
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
        """Leave the queue. If a slot was assigned at the same moment, it is passed to the next in the queue."""
        if turn.done():
            self._pass_on()
        else:
            self._waiting.remove(turn)

    def give(self) -> None:
        """Give a slot back, and the outer one with it; it is assigned to the call that is first in the queue."""
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
"""Work that one task runs without waiting before other tasks of the event loop may run: some milliseconds."""
_MOST_TASKS = 1_024
"""The maximum number of tasks of one queue, unless more calls may run at the same time."""


class QueueStarter:
    """Begins task queues in the next iteration of the event loop. Belongs to that loop.

    Most queues are taken back earlier, because the caller awaits their single call and runs it itself. One request to the event loop
    therefore serves all queues and is never withdrawn: a loop that is blocked holds one request instead of one per message.
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
    """Runs all added work concurrently, starting it in order. Belongs to one event loop. Keeps no reference to work that has ended.

    A task for every call would cost more than most calls do. One task runs call after call as long as none of them waits. When one waits,
    the event loop switches to the spare task, which continues with the next call. Calls therefore start in order, none waits for another,
    and a call that waits has a task to itself. After a number of calls, a task leaves the rest to the spare task anyway, so that other
    tasks can run; the larger the calls, the sooner. The number of tasks is bounded, because each garbage collection visits all of them;
    further calls begin as others end. A single call that has not begun needs no task: the caller that waits for it runs it.

    Args:
        starter: Begins the queue.
        parallel: How many calls may run at the same time.
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
        """Whether a task was created that has not begun."""
        self._put_off = False
        """Whether the first task will be created in the next iteration of the event loop."""

    def add(self, work: Work, weight: int = 1) -> None:
        """Run `work` as soon as the event loop can. `weight` is its amount of work, in small calls."""
        self._waiting.append((work, weight))
        if self._spare or self._put_off:
            return
        if self._tasks:
            self._make_spare()
        else:
            self._put_off = True
            self._starter.begin(self)

    def begin(self) -> None:
        """Create the first task."""
        self._put_off = False
        self._make_spare()

    def _make_spare(self) -> None:
        """Create the next task if another one is allowed; otherwise it is created when a task ends."""
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
        # A tool that cancelled its own task must not end the next call too.
        left = _TOGETHER
        while self._waiting and left > 0 and task is not None and not task.cancelling():
            work, weight = self._waiting.popleft()
            left -= weight
            if self._waiting and not self._spare:
                self._make_spare()
            await work()

    async def ended(self) -> None:
        """Wait until all added work has ended. Raise the first exception of the work, which is a bug of the engine and must not be
        hidden."""
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
