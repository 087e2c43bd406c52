"""Run many calls at once with as few tasks as that takes.

A task for every call would cost more than most calls do. One task runs call after call for as long as none of them waits; the moment one
does, the event loop comes to the spare task, which goes on with the next. So calls start in order, none waits for another, and a call
that waits has its task to itself. Must not know what a call is.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextvars import Context, copy_context

__all__ = ["Pump"]

Work = Callable[[], Awaitable[None]]


class Pump:
    """Runs whatever is added, in order, side by side. Belongs to one event loop. Holds nothing of what has ended."""

    def __init__(self) -> None:
        self._waiting: deque[Work] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._context: Context = copy_context()
        self._spare = False
        """Whether a task has been made that has not begun."""

    def add(self, work: Work) -> None:
        self._waiting.append(work)
        if not self._spare:
            self._make_spare()

    def _make_spare(self) -> None:
        self._spare = True
        self._tasks.add(asyncio.get_running_loop().create_task(self._work(), context=self._context.copy()))

    async def _work(self) -> None:
        self._spare = False
        task = asyncio.current_task()
        # A tool that cancelled the task it ran in must not end the next call too.
        while self._waiting and task is not None and not task.cancelling():
            work = self._waiting.popleft()
            if self._waiting and not self._spare:
                self._make_spare()
            await work()

    async def ended(self) -> None:
        """Wait for all that was added. Raises what a run raised: a bug of ours must not hide in a task."""
        failed: BaseException | None = None
        while self._tasks:
            done, _ = await asyncio.wait(self._tasks)
            self._tasks -= done
            failed = next((error for task in done if not task.cancelled() and (error := task.exception())), failed)
        if failed is not None:
            raise failed
