"""Keep and count code that still runs after its call has ended: coroutines that did not stop, and tasks that a tool left running.

Used by the inline and the thread runner. Results that such code returns are reported as late. Must not know of deadlines.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator, Mapping
from contextvars import Context
from functools import partial
from types import coroutine
from typing import Any

from callgate._runners.exception_results import execution_of_exception_on_loop
from callgate._runners.started_tasks import StartedTasks, TaskWatch
from callgate.protocols import Execution, RunRequest

__all__ = ["AbandonedCalls", "AbandonedCode", "OnLate"]

OnLate = Callable[[str, Execution], None]
"""Called with the uid of a call that has ended and the execution that its tool returned afterwards."""

_CLOSE_S = 0.2


class AbandonedCalls:
    """The calls of one engine that have ended while their code still runs, by uid.

    Args:
        on_gone: Called with a call's uid when the last of its code has ended.
    """

    def __init__(self, on_gone: Callable[[str], None] | None = None) -> None:
        self._counts: dict[str, int] = {}
        self._on_gone = on_gone

    def __contains__(self, uid: str) -> bool:
        return uid in self._counts

    def add(self, uid: str) -> None:
        self._counts[uid] = self._counts.get(uid, 0) + 1

    def remove(self, uid: str) -> None:
        self._counts[uid] -= 1
        if not self._counts[uid]:
            del self._counts[uid]
            if self._on_gone is not None:
                self._on_gone(uid)


class AbandonedCode:
    """The abandoned coroutines of one runner, and the tasks that its tools left running."""

    def __init__(self, on_late: OnLate | None = None, abandoned_calls: AbandonedCalls | None = None) -> None:
        self._tasks: set[asyncio.Future[Any]] = set()
        self._watch: TaskWatch | None = None
        self.started: Mapping[int, StartedTasks] = {}
        """Tasks that running tools have started, by the id of the request; empty before `watch`."""
        self._on_late = on_late
        self.abandoned_calls = abandoned_calls or AbandonedCalls()
        self.late = 0

    def __len__(self) -> int:
        return len(self._tasks)

    def adopt(self, uid: str, coro: Coroutine[Any, Any, object], waiting: object, context: Context) -> None:
        """Continue `coro`, which awaits `waiting`, in a new task."""
        task = asyncio.get_running_loop().create_task(_resume(coro, waiting), name=f"abandoned {uid}", context=context)
        self._tasks.add(task)
        self.abandoned_calls.add(uid)
        task.add_done_callback(partial(self._finish, uid))

    def watch(self) -> None:
        """Record the tasks that tools start on the running event loop from now on; required for `tasks_left`."""
        if self._watch is None:
            self._watch = TaskWatch.on(asyncio.get_running_loop())
            self.started = self._watch.started

    def tasks_left(self, request: RunRequest) -> int:
        """Return how many tasks the tool of this request has left running at its end; they are kept and counted from now on."""
        started = self.started.get(id(request))
        if started is None:
            return 0
        left = [task for task in started.uncancelled() if task not in self._tasks]
        started.on_start = partial(self._keep, request.context.uid)
        for task in left:
            started.on_start(task)
        return len(left)

    def _keep(self, uid: str, task: asyncio.Future[Any]) -> None:
        self._tasks.add(task)
        self.abandoned_calls.add(uid)
        task.add_done_callback(partial(self._forget, uid))

    def _forget(self, uid: str, task: asyncio.Future[Any]) -> None:
        self._tasks.discard(task)
        self.abandoned_calls.remove(uid)

    def _finish(self, uid: str, task: asyncio.Task[object]) -> None:
        self._forget(uid, task)
        if task.cancelled():
            return
        error = task.exception()
        self.report_late(uid, Execution(status="returned", value=task.result()) if error is None else execution_of_exception_on_loop(error))

    def report_late(self, uid: str, execution: Execution) -> None:
        """Count and report a result that arrived after its call had ended."""
        self.late += 1
        if self._on_late is not None:
            self._on_late(uid, execution)

    async def close(self) -> None:
        """Cancel all once more and wait briefly. What still runs then ends with the event loop."""
        tasks = [task for task in self._tasks if task.get_loop() is asyncio.get_running_loop()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_CLOSE_S)
        if self._watch is not None:
            self._watch.release()
            self._watch, self.started = None, {}


async def _resume(coro: Coroutine[Any, Any, object], waiting: object) -> object:
    return await _rest(coro, waiting)


@coroutine
def _rest(coro: Coroutine[Any, Any, object], waiting: Any) -> Generator[Any, None, object]:
    """Run the remaining steps of a coroutine that was started elsewhere."""
    if waiting is not None:
        waiting._asyncio_future_blocking = True  # the flag was consumed when the wait was taken over: set it for the new task
    try:
        while True:
            try:
                yield waiting
            except GeneratorExit:
                coro.close()
                raise
            except BaseException as error:
                waiting = coro.throw(error)
            else:
                waiting = coro.send(None)
    except StopIteration as end:
        return end.value
