"""Run plain functions in threads, where they would hold up the event loop: large work of the engine's own, and code of others.

Apart from the thread runner, because no tool runs here and nothing waits for its turn behind one. A thread cannot be stopped: a function
that does not end in its time is left behind and counted. Must not know what the functions do.
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
from callgate._limits import Limits
from callgate._runners.deadlines import Deadlines
from callgate._runners.failures import TimeBound
from callgate._runners.interruptible_wait import BoundedWait

__all__ = ["LARGE_BYTES", "LeftBehind", "Offload"]

T = TypeVar("T")
LARGE_BYTES: Final = 65_536
"""From this size on, work that grows with a value's size is done in a thread."""
_FOREVER_S: Final = 1e9


class LeftBehind(Exception):
    """A function did not end before its deadline or its kill, and still runs."""


class _Unbounded(Struct, frozen=True):
    """No deadline and no kill."""

    kill: AbortSignal
    timeout_s: float = _FOREVER_S


class _Answer(Struct, frozen=True):
    """What a function returned or raised."""

    value: Any = None
    error: BaseException | None = None


class _OffloadedWork:
    """One function, on its way through a thread."""

    def __init__(self, work: Callable[[], Any], time: TimeBound, alarms: Deadlines) -> None:
        self.work = work
        self.context = copy_context()
        self.wait: BoundedWait[_Answer] = BoundedWait(time, alarms)
        self.ended = False
        self.abandoned = False

    def run(self) -> _Answer:
        try:
            return _Answer(self.context.run(self.work))
        except BaseException as error:  # whoever waits for it gets it
            return _Answer(error=error)


class Offload:
    """The threads of one engine that run no tools. Belongs to one event loop, but for the functions."""

    def __init__(self, limits: Limits) -> None:
        self._most = limits.parallel_threads
        self._most_abandoned = limits.abandoned_threads
        self._alarms = Deadlines()
        self._waiting: deque[_OffloadedWork] = deque()
        self._busy = 0
        """Threads with a function that somebody waits for."""
        self.abandoned = 0
        """Functions that nobody waits for any more and that have not ended."""

    @property
    def refusal(self) -> str:
        """Why code of others is not run any more; empty where it is."""
        if self.abandoned < self._most_abandoned:
            return ""
        return f"{self.abandoned} threads are held by code that never returned; {self._most_abandoned} is the limit. Restart this program."

    async def run(self, work: Callable[[], T], time: TimeBound | None = None) -> T:
        """What `work` returns; raises what it raises.

        Raises:
            LeftBehind: The deadline or the kill of `time` came first.
        """
        answer = await self._answer(_OffloadedWork(work, time or _Unbounded(AbortSignal()), self._alarms))
        if answer is None:
            raise LeftBehind
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
            threading.Thread(target=_work, args=(job, loop, self._ended), name="callgate work", daemon=True).start()
        except RuntimeError:  # no thread can be started: better late than lost
            self._ended(job, job.run())

    def _leave(self, job: _OffloadedWork) -> None:
        """Go on without the job."""
        if job.ended:
            return
        if job in self._waiting:
            self._waiting.remove(job)
            return
        job.abandoned = True
        self.abandoned += 1
        self._next()

    def _ended(self, job: _OffloadedWork, answer: _Answer) -> None:
        job.ended = True
        if job.abandoned:
            self.abandoned -= 1
            return
        job.wait.finish(answer)
        self._next()

    def _next(self) -> None:
        """A thread is free."""
        self._busy -= 1
        if self._waiting:
            self._start(self._waiting.popleft())

    def close(self) -> None:
        """Let go of the event loop; functions that still run end with the program."""
        self._alarms.close()


def _work(job: _OffloadedWork, loop: asyncio.AbstractEventLoop, ended: Callable[[_OffloadedWork, _Answer], None]) -> None:
    answer = job.run()
    with suppress(RuntimeError):  # the event loop is closed: nobody waits any more
        loop.call_soon_threadsafe(ended, job, answer)
