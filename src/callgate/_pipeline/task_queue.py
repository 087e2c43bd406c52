"""Run many calls in few tasks, starting them in order. Knows nothing of what a call does."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextvars import Context, copy_context

__all__ = ["QueueStarter", "TaskQueue"]


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
        task.add_done_callback(self._on_task_end)
        self._tasks.add(task)

    def _on_task_end(self, task: asyncio.Task[None]) -> None:
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

    async def wait_until_done(self) -> None:
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
