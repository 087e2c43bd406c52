"""End what a request waits for: when one of its deadlines passes, or when its pass is aborted.

One timer for a whole request, moved by looking again, so that a byte costs a comparison and no timer. Cancels its own task in the middle of
a wait and takes the cancel back, as `asyncio.timeout` does, and never while the consumer of the events has the turn: a generator may be
suspended in one task's hands for as long as that task likes. Knows nothing of HTTP.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import copy_context
from functools import partial
from typing import Literal, TypeVar

from msgspec.structs import replace

from callgate._abort_signals import AbortSignal
from callgate._environment_limits import silence_from_environment
from callgate._options import Options, Seconds

__all__ = ["Deadline", "RequestDeadlines", "RequestInterrupted", "Timeouts"]

Deadline = Literal["connect", "headers", "idle", "total"]
_T = TypeVar("_T")
_HEADERS_S = 300.0
_REST_S = 0.5
_GRACE_S = 0.05
"""What a deadline that has passed still waits: where it was the program that stood still, the bytes are there by then."""


class Timeouts(Options, frozen=True, kw_only=True):
    """How long a request to a provider may take; seconds, and for `connect_s` and `total_s` None for no limit."""

    connect_s: Seconds | None = 10.0
    """Until the connection stands; once more for TLS."""
    headers_s: Seconds | None = None
    """From the beginning of an attempt until the answer's headers have come. An answer that is not streamed sends them when it is done.
    None: 300 s, or `idle_s` where that is longer."""
    idle_s: Seconds | None = None
    """Between any two bytes of the answer, while somebody waits for them. None: as long as the stream may be silent, which is what
    `StreamLimits` says in a pass of an agent, and elsewhere what `STREAM_SDK_CALL_TIMEOUT_MS` says, or 120 s."""
    total_s: Seconds | None = 3_600.0
    """The whole request, retries and the waits between them included: what an answer may take that goes on without an end, as one of
    nothing but comments does."""

    def for_stream(self, silence_s: float | None) -> Timeouts:
        """The deadlines of one request, none of which is open.

        Args:
            silence_s: How long its stream may be silent; None: nobody said.
        """
        idle_s = self.idle_s or silence_s or silence_from_environment()
        return replace(self, idle_s=idle_s, headers_s=self.headers_s or max(_HEADERS_S, idle_s))


class RequestInterrupted(Exception):
    """A wait was ended: a deadline has passed, or (`deadline` None) the pass was aborted."""

    def __init__(self, deadline: Deadline | None, limit_s: float | None = None) -> None:
        super().__init__(deadline or "aborted")
        self.deadline = deadline
        self.limit_s = limit_s
        """How long the deadline was."""


class RequestDeadlines:
    """Of one request. Enter it, wait for everything through `over`, leave it.

    Args:
        timeouts: The deadlines, as `Timeouts.for_stream` gives them.
        signal: Aborts the request.
    """

    __slots__ = (
        "_abort",
        "_cancelled",
        "_grace",
        "_loop",
        "_phase",
        "_remove",
        "_signal",
        "_task",
        "_timeouts",
        "_timer",
        "_total_at",
        "_until",
    )

    def __init__(self, timeouts: Timeouts, signal: AbortSignal | None) -> None:
        self._timeouts = timeouts
        self._signal = signal
        self._loop = asyncio.get_running_loop()
        self._total_at = math.inf if timeouts.total_s is None else self._loop.time() + timeouts.total_s
        self._until = math.inf
        self._phase: Deadline = "headers"
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[object] | None = None
        """Who waits; None while nobody does."""
        self._cancelled: int | None = None
        """How many cancels the task had before ours."""
        self._grace = False
        self._abort = False
        self._remove: Callable[[], object] | None = None

    def __enter__(self) -> RequestDeadlines:
        if self._signal is not None:
            # In the waiter's own context: whoever drives its task tells by it whose cancel this is.
            self._remove = self._signal.on_abort(partial(copy_context().run, self._aborted))
        return self

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._remove is not None:
            self._remove()

    def headers(self, work: Callable[[], Awaitable[_T]]) -> Coroutine[object, object, _T]:
        """Wait for an answer to begin."""
        return self._over(work, "headers", self._timeouts.headers_s)

    def idle(self, work: Callable[[], Awaitable[_T]]) -> Coroutine[object, object, _T]:
        """Wait for more of it."""
        return self._over(work, "idle", self._timeouts.idle_s)

    def rest(self, work: Callable[[], Awaitable[_T]]) -> Coroutine[object, object, _T]:
        """Wait a moment for what nobody needs."""
        return self._over(work, "idle", _REST_S)

    def pause(self, work: Callable[[], Awaitable[_T]]) -> Coroutine[object, object, _T]:
        """Wait on purpose: only the whole request's end and the abort count."""
        return self._over(work, "total", None)

    # Inside

    async def _over(self, work: Callable[[], Awaitable[_T]], phase: Deadline, seconds: float | None) -> _T:
        self._begin(phase, seconds)
        try:
            done = await work()
        except BaseException:
            if self._end():
                raise self._interrupted() from None
            raise
        if self._end():
            raise self._interrupted()
        return done

    def _begin(self, phase: Deadline, seconds: float | None) -> None:
        now = self._loop.time()
        if self._abort or now >= self._total_at:
            raise self._interrupted()
        self._phase = phase
        self._grace = True
        self._until = until = min(self._total_at, math.inf if seconds is None else now + seconds)
        if self._timer is None or self._timer.when() > until:
            self._arm()
        self._task = asyncio.current_task()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if self._until == math.inf else self._loop.call_at(self._until, self._look)

    def _look(self) -> None:
        self._timer = None
        if self._task is None:
            return
        if self._loop.time() < self._until:
            self._arm()
        elif self._grace:
            self._grace = False
            self._timer = self._loop.call_later(_GRACE_S, self._look)
        else:
            self._interrupt()

    def _aborted(self) -> None:
        self._abort = True
        self._interrupt()

    def _interrupt(self) -> None:
        if self._task is not None and self._cancelled is None:
            self._cancelled = self._task.cancelling()
            self._task.cancel()

    def _end(self) -> bool:
        """The wait is over; tells whether it was ended from here, and by nobody else."""
        task, self._task = self._task, None
        before, self._cancelled = self._cancelled, None
        return task is not None and before is not None and task.uncancel() <= before

    def _interrupted(self) -> RequestInterrupted:
        if self._abort:
            return RequestInterrupted(None)
        deadline: Deadline = "total" if self._until == self._total_at or self._loop.time() >= self._total_at else self._phase
        return RequestInterrupted(deadline, getattr(self._timeouts, f"{deadline}_s"))
