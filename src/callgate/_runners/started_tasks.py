"""Which tasks the code of a tool starts on the event loop, so that those it leaves running can be counted and cancelled.

A task factory sees each task as it is made; the context variable of the running tool, which a task's context inherits, says whose it is.
A tool that starts no task costs nothing here. A factory that the host has set makes the tasks as before, and is put back in the end.
Must not know of runners.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from functools import partial
from typing import Any

from callgate.protocols import RunRequest

__all__ = ["INSIDE", "StartedTask", "TaskWatch"]

INSIDE: ContextVar[tuple[RunRequest, ...]] = ContextVar("callgate_running", default=())
"""Whose tool the present code belongs to, the outermost call first: a tool that calls a tool shares its task, and with it the drives of
both. Tells the timers of a tool, and of any tool it called, from the host's when that task is cancelled."""

Task = asyncio.Future[Any]


class StartedTask:
    """The tasks of one tool's run that have not ended. There is none of these while there are none of those."""

    __slots__ = ("keep", "request", "tasks")

    def __init__(self, request: RunRequest) -> None:
        self.request = request  # kept: its id is the key
        self.tasks: set[Task] = set()
        self.keep: Callable[[Task], None] | None = None
        """Set once the tool has ended: takes what its tasks start now."""

    def left(self) -> list[Task]:
        """Those that nobody has asked to end."""
        return [task for task in self.tasks if not (task.done() or getattr(task, "cancelling", int)())]


class TaskWatch:
    """The task factory of one event loop, for all engines on it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.started: dict[int, StartedTask] = {}
        """By the id of the request."""
        self._loop = loop
        self._inner: Any = loop.get_task_factory()
        self._users = 0

    @classmethod
    def on(cls, loop: asyncio.AbstractEventLoop) -> TaskWatch:
        """Watch a loop; `release` ends it."""
        factory = loop.get_task_factory()
        if not isinstance(factory, TaskWatch):
            factory = cls(loop)
            loop.set_task_factory(factory)
        factory._users += 1
        return factory

    def release(self) -> None:
        """Put the host's factory back where nobody watches any more; one that it has set meanwhile stays."""
        self._users -= 1
        if not self._users and self._loop.get_task_factory() is self:
            self._loop.set_task_factory(self._inner)

    def __call__(self, loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> Any:
        task = asyncio.Task(coro, loop=loop, **options) if self._inner is None else self._inner(loop, coro, **options)
        context = options.get("context")
        inside = INSIDE.get() if context is None else context.get(INSIDE, ())
        if inside and not task.done():
            self._note(inside[-1], task)
        return task

    def _note(self, request: RunRequest, task: Task) -> None:
        key = id(request)
        started = self.started.get(key)
        if started is None:
            started = self.started[key] = StartedTask(request)
        started.tasks.add(task)
        task.add_done_callback(partial(self._ended, key))
        if started.keep is not None:
            started.keep(task)

    def _ended(self, key: int, task: Task) -> None:
        started = self.started.get(key)
        if started is not None:
            started.tasks.discard(task)
            if not started.tasks:
                del self.started[key]
