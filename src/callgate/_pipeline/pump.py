"""Run many calls at once with as few tasks as that takes.

A task for every call would cost more than most calls do. One task runs call after call for as long as none of them waits; the moment one
does, the event loop comes to the spare task, which goes on with the next. So calls start in order, none waits for another, and a call
that waits has its task to itself. After some calls a task leaves the rest to the spare one all the same, so that other tasks get their
turn, and the sooner the more work the calls are. The number of tasks is bounded, because each garbage collection looks at all of them;
calls above it begin as others end. A single call that nothing has begun yet needs no task at all: whoever waits for it runs
it. Must not know what a call is.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextvars import Context, copy_context

__all__ = ["Pump", "Soon"]

Work = Callable[[], Awaitable[None]]

_TOGETHER = 64
"""Calls that one task runs, where none of them waits, before the event loop comes round: some milliseconds."""
_MOST_TASKS = 1_024
"""Tasks of one pump at once, unless more calls may run at once."""


class Soon:
    """Begins pumps as soon as the event loop comes round. Belongs to that loop.

    Most pumps are taken back before, because somebody waits for their single call and runs it. So the loop is asked once for all of them,
    and what it was asked for stays asked for: a loop that never comes round keeps one request, and not one for every message.
    """

    __slots__ = ("_asked", "_pumps")

    def __init__(self) -> None:
        self._pumps: dict[Pump, None] = {}
        self._asked = False

    def begin(self, pump: Pump) -> None:
        self._pumps[pump] = None
        if not self._asked:
            self._asked = True
            asyncio.get_running_loop().call_soon(self._begin)

    def take_back(self, pump: Pump) -> None:
        del self._pumps[pump]

    def _begin(self) -> None:
        self._asked = False
        pumps, self._pumps = self._pumps, {}
        for pump in pumps:
            pump.begin()


class Pump:
    """Runs whatever is added, in order, side by side. Belongs to one event loop. Holds nothing of what has ended.

    Args:
        soon: Begins it.
        parallel: How many calls may run at once.
    """

    __slots__ = ("_context", "_failed", "_most", "_put_off", "_soon", "_spare", "_tasks", "_waiting")

    def __init__(self, soon: Soon, parallel: int = 0) -> None:
        self._soon = soon
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
            self._soon.begin(self)

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
            self._soon.take_back(self)
            self._put_off = False
            if len(self._waiting) == 1:
                await self._waiting.popleft()[0]()
            else:
                self._make_spare()
        while self._tasks:
            await asyncio.wait(self._tasks)
        if self._failed is not None:
            raise self._failed
