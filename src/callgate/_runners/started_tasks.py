"""Track the tasks that a tool's code starts on the event loop, so that those it leaves running can be counted and cancelled.

A task factory sees each task when it is created; a context variable, inherited by the task's context, identifies the running tool. A tool
that starts no task costs nothing here. A factory set by the host still creates the tasks, and is restored at the end. Must not know of
runners.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from functools import partial
from typing import Any

from callgate.protocols import RunRequest

__all__ = ["RUNNING_TOOLS", "StartedTasks", "TaskWatch", "exclude_from_started_tasks"]

RUNNING_TOOLS: ContextVar[tuple[RunRequest, ...]] = ContextVar("callgate_running", default=())
"""The requests of the tools that the current code belongs to, the outermost call first. A nested tool runs in its
caller's task, so the drivers of both step in that task. When the task is cancelled, this shows whether the
cancellation comes from a tool's own timer or from the host.
"""

Task = asyncio.Future[Any]


class StartedTasks:
    """The unfinished tasks that one run of a tool has started; exists only while there are any."""

    __slots__ = ("on_start", "request", "tasks")

    def __init__(self, request: RunRequest) -> None:
        self.request = request  # keeps it alive: its id is the key
        self.tasks: set[Task] = set()
        self.on_start: Callable[[Task], None] | None = None
        """Set once the tool has ended: called with tasks that its tasks start afterwards."""

    def uncancelled(self) -> list[Task]:
        """Return the tasks that nothing has cancelled."""
        return [task for task in self.tasks if not (task.done() or getattr(task, "cancelling", int)())]


def exclude_from_started_tasks(task: asyncio.Future[Any]) -> None:
    """Do not count a task as left running by its tool, because the tool's code ends only when the task does, and counts itself."""
    factory = task.get_loop().get_task_factory()
    if isinstance(factory, TaskWatch):
        factory.forget(task)


class TaskWatch:
    """The task factory of one event loop, shared by all engines on it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.started: dict[int, StartedTasks] = {}
        """The tasks that tools have started, by the id of the request."""
        self._loop = loop
        self._inner: Any = loop.get_task_factory()
        self._users = 0

    @classmethod
    def on(cls, loop: asyncio.AbstractEventLoop) -> TaskWatch:
        """Install the factory on `loop`, or share the installed one; undone by `release`."""
        factory = loop.get_task_factory()
        if not isinstance(factory, TaskWatch):
            factory = cls(loop)
            loop.set_task_factory(factory)
        factory._users += 1
        return factory

    def release(self) -> None:
        """Restore the host's factory when the last user releases it; a factory that the host has set in the meantime is kept."""
        self._users -= 1
        if not self._users and self._loop.get_task_factory() is self:
            self._loop.set_task_factory(self._inner)

    def __call__(self, loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> Any:
        task = asyncio.Task(coro, loop=loop, **options) if self._inner is None else self._inner(loop, coro, **options)
        context = options.get("context")
        inside = RUNNING_TOOLS.get() if context is None else context.get(RUNNING_TOOLS, ())
        if inside and not task.done():
            self._note(inside[-1], task)
        return task

    def _note(self, request: RunRequest, task: Task) -> None:
        key = id(request)
        started = self.started.get(key)
        if started is None:
            started = self.started[key] = StartedTasks(request)
        started.tasks.add(task)
        task.add_done_callback(partial(self._forget, key))
        if started.on_start is not None:
            started.on_start(task)

    def forget(self, task: Task) -> None:
        """Do not count a task that the running tool has started."""
        inside = RUNNING_TOOLS.get()
        if inside:
            self._forget(id(inside[-1]), task)

    def _forget(self, key: int, task: Task) -> None:
        started = self.started.get(key)
        if started is not None:
            started.tasks.discard(task)
            if not started.tasks:
                del self.started[key]
