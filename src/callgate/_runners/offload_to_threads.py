"""Run plain functions in threads if they would block the event loop: large work of the engine itself, and code of others.

Separate from the thread runner, because no tool runs here and no tool waits for one of these functions. A thread cannot be stopped: a
function that does not end in time is abandoned and counted. Must not know what the functions do.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from typing import Any, Final, TypeVar

from msgspec import Struct

from callgate._abort_signals import AbortSignal
from callgate._deadlines import Deadlines
from callgate._engine_limits import Limits
from callgate._runners.exception_results import TimeBound
from callgate._runners.interruptible_wait import BoundedWait

__all__ = ["LARGE_BYTES", "Offload", "WorkAbandoned"]

T = TypeVar("T")
LARGE_BYTES: Final = 65_536
"""The size from which work that grows with a value's size is done in a thread."""
_FOREVER_S: Final = 1e9


class WorkAbandoned(Exception):
    """A function did not end before its deadline or its kill, and is still running."""


class _Unbounded(Struct, frozen=True):
    """A time bound without a deadline. The kill signal never fires."""

    kill: AbortSignal
    timeout_s: float = _FOREVER_S


class _Answer(Struct, frozen=True):
    """The return value of a function, or its exception."""

    value: Any = None
    error: BaseException | None = None


class _OffloadedWork:
    """One function that is run in a thread."""

    def __init__(self, work: Callable[[], Any], time: TimeBound, deadlines: Deadlines) -> None:
        self.work = work
        self.context = copy_context()
        self.wait: BoundedWait[_Answer] = BoundedWait(time, deadlines)
        self.ended = False
        self.abandoned = False

    def run(self) -> _Answer:
        try:
            return _Answer(self.context.run(self.work))
        except BaseException as error:  # raised again where the result is awaited
            return _Answer(error=error)


class Offload:
    """The threads of one engine that run no tools. All methods belong to one event loop; the functions run in the threads.

    Args:
        deadlines: Those of the engine.
    """

    def __init__(self, limits: Limits, deadlines: Deadlines) -> None:
        self._most = limits.parallel_threads
        self._most_abandoned = limits.abandoned_threads
        self._deadlines = deadlines
        self._waiting: deque[_OffloadedWork] = deque()
        self._busy = 0
        """The number of threads with a function whose result is awaited."""
        self.abandoned = 0
        """The number of functions that are still running although their result is no longer awaited."""

    @property
    def refusal(self) -> str:
        """Why no further code of others is run; empty if it is.

        The reason is that code which did not return holds too many threads.
        """
        if self.abandoned < self._most_abandoned:
            return ""
        return f"{self.abandoned} threads are held by code that never returned; {self._most_abandoned} is the limit. Restart this program."

    async def run(self, work: Callable[[], T], time: TimeBound | None = None) -> T:
        """Run `work` in a thread and return its result. An exception of `work` is raised.

        Raises:
            WorkAbandoned: The deadline or the kill of `time` came before the end of `work`.
        """
        answer = await self._answer(_OffloadedWork(work, time or _Unbounded(AbortSignal()), self._deadlines))
        if answer is None:
            raise WorkAbandoned
        if answer.error is not None:
            raise answer.error
        return answer.value  # type: ignore[no-any-return]

    async def _answer(self, job: _OffloadedWork) -> _Answer | None:
        if self._busy < self._most:
            self._start(job)
        else:
            self._waiting.append(job)
        try:
            return await job.wait.get()
        finally:
            if job.wait.value is None:
                self._leave(job)

    def _start(self, job: _OffloadedWork) -> None:
        self._busy += 1
        loop = asyncio.get_running_loop()
        try:
            threading.Thread(target=_work, args=(job, loop, self._finish), name="callgate work", daemon=True).start()
        except RuntimeError:  # no thread can be started: blocking the event loop is better than losing the work
            self._finish(job, job.run())

    def _leave(self, job: _OffloadedWork) -> None:
        """Abandon a job, or remove it from the queue."""
        if job.ended:
            return
        if job in self._waiting:
            self._waiting.remove(job)
            return
        job.abandoned = True
        self.abandoned += 1
        self._start_next()

    def _finish(self, job: _OffloadedWork, answer: _Answer) -> None:
        job.ended = True
        if job.abandoned:
            self.abandoned -= 1
            return
        job.wait.finish(answer)
        self._start_next()

    def _start_next(self) -> None:
        """Start the next job, because a thread is free."""
        self._busy -= 1
        if self._waiting:
            self._start(self._waiting.popleft())


def _work(job: _OffloadedWork, loop: asyncio.AbstractEventLoop, ended: Callable[[_OffloadedWork, _Answer], None]) -> None:
    answer = job.run()
    with suppress(RuntimeError):  # the event loop is closed, so the result is no longer awaited
        loop.call_soon_threadsafe(ended, job, answer)
