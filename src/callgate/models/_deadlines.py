"""The deadlines of one HTTP request: interrupt a wait when a deadline passes or the pass is aborted.

Uses one timer per request and checks again when it fires, so that each chunk costs a comparison and no timer. Cancels its own task during a
wait and takes the cancellation back, as `asyncio.timeout` does, but never while the consumer of the events runs: an async generator may
stay suspended in any task for any time. Knows nothing of HTTP.
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
from callgate._limits_from_environment import silence_from_environment
from callgate._option_checks import Options, Seconds

__all__ = ["Deadline", "RequestDeadlines", "RequestInterrupted", "Timeouts"]

Deadline = Literal["connect", "headers", "idle", "total"]
_T = TypeVar("_T")
_DEFAULT_HEADERS_S = 300.0
_DRAIN_S = 0.5
_GRACE_S = 0.05
"""The extra wait after a deadline has passed. If the program itself was blocked, the bytes can still be read."""


class Timeouts(Options, frozen=True, kw_only=True):
    """How long a request to a provider may take, in seconds; for `connect_s` and `total_s`, None means no limit."""

    connect_s: Seconds | None = 10.0
    """The maximum time to establish the connection, and again for the TLS handshake."""
    headers_s: Seconds | None = None
    """The maximum time from the start of an attempt until the response headers arrive. If the response is not
    streamed, the headers are sent when it is complete. None: 300 s, or `idle_s` if that is longer.
    """
    idle_s: Seconds | None = None
    """The maximum time between two chunks of the body, while the consumer waits for them. None: the limit on the
    stream's silence, which in a pass of an agent is set by `StreamLimits`, and otherwise is
    `STREAM_SDK_CALL_TIMEOUT_MS` or 120 s.
    """
    total_s: Seconds | None = 3_600.0
    """The maximum time of the whole request, including retries and the waits between them. Ends a response that
    never ends, such as one that only sends comments.
    """

    def for_stream(self, silence_s: float | None) -> Timeouts:
        """Return the deadlines of one request, with the defaults filled in.

        Args:
            silence_s: How long the stream may be silent; None if not specified.
        """
        idle_s = self.idle_s or silence_s or silence_from_environment()
        return replace(self, idle_s=idle_s, headers_s=self.headers_s or max(_DEFAULT_HEADERS_S, idle_s))


class RequestInterrupted(Exception):
    """A wait was interrupted because a deadline passed, or because the pass was aborted (`deadline` is None)."""

    def __init__(self, deadline: Deadline | None, limit_s: float | None = None) -> None:
        super().__init__(deadline or "aborted")
        self.deadline = deadline
        self.limit_s = limit_s
        """The length of the deadline."""


class RequestDeadlines:
    """The deadlines of one request, as a context manager. All waits of the request go through its `wait_*` methods.

    Args:
        timeouts: The deadlines, as `Timeouts.for_stream` returns them.
        signal: Aborts the request.
    """

    __slots__ = (
        "_cancels_before",
        "_deadline_at",
        "_grace_left",
        "_is_aborted",
        "_loop",
        "_phase",
        "_remove_listener",
        "_signal",
        "_task",
        "_timeouts",
        "_timer",
        "_total_at",
    )

    def __init__(self, timeouts: Timeouts, signal: AbortSignal | None) -> None:
        self._timeouts = timeouts
        self._signal = signal
        self._loop = asyncio.get_running_loop()
        self._total_at = math.inf if timeouts.total_s is None else self._loop.time() + timeouts.total_s
        self._deadline_at = math.inf
        self._phase: Deadline = "headers"
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[object] | None = None
        """The waiting task; None while no task waits."""
        self._cancels_before: int | None = None
        """The number of the task's cancellation requests before this object cancelled it. None: this object has not
        cancelled it.
        """
        self._grace_left = False
        self._is_aborted = False
        self._remove_listener: Callable[[], object] | None = None

    def __enter__(self) -> RequestDeadlines:
        if self._signal is not None:
            # Run in the waiter's context: the code that drives its task recognises by it who cancelled.
            self._remove_listener = self._signal.on_abort(partial(copy_context().run, self._on_abort))
        return self

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._remove_listener is not None:
            self._remove_listener()

    def wait_headers(self, work: Callable[[], Awaitable[_T]]) -> Coroutine[object, object, _T]:
        """Wait for the response headers."""
        return self._wait(work, "headers", self._timeouts.headers_s)

    def wait_bytes(self, work: Callable[[], Awaitable[_T]]) -> Coroutine[object, object, _T]:
        """Wait for the next chunk of the body."""
        return self._wait(work, "idle", self._timeouts.idle_s)

    def wait_drain(self, work: Callable[[], Awaitable[_T]]) -> Coroutine[object, object, _T]:
        """Wait briefly for the end of a body that is no longer needed."""
        return self._wait(work, "idle", _DRAIN_S)

    def wait_retry(self, work: Callable[[], Awaitable[_T]]) -> Coroutine[object, object, _T]:
        """Wait before a retry: only the total deadline and the abort signal interrupt it."""
        return self._wait(work, "total", None)

    async def _wait(self, work: Callable[[], Awaitable[_T]], phase: Deadline, limit_s: float | None) -> _T:
        self._start_wait(phase, limit_s)
        try:
            result = await work()
        except BaseException:
            if self._end_wait():
                raise self._interrupted_error() from None
            raise
        if self._end_wait():
            raise self._interrupted_error()
        return result

    def _start_wait(self, phase: Deadline, limit_s: float | None) -> None:
        now = self._loop.time()
        if self._is_aborted or now >= self._total_at:
            raise self._interrupted_error()
        self._phase = phase
        self._grace_left = True
        self._deadline_at = deadline_at = min(self._total_at, math.inf if limit_s is None else now + limit_s)
        if self._timer is None or self._timer.when() > deadline_at:
            self._start_timer()
        self._task = asyncio.current_task()

    def _start_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if self._deadline_at == math.inf else self._loop.call_at(self._deadline_at, self._check_deadline)

    def _check_deadline(self) -> None:
        self._timer = None
        if self._task is None:
            return
        if self._loop.time() < self._deadline_at:
            self._start_timer()
        elif self._grace_left:
            self._grace_left = False
            self._timer = self._loop.call_later(_GRACE_S, self._check_deadline)
        else:
            self._interrupt()

    def _on_abort(self) -> None:
        self._is_aborted = True
        self._interrupt()

    def _interrupt(self) -> None:
        if self._task is not None and self._cancels_before is None:
            self._cancels_before = self._task.cancelling()
            self._task.cancel()

    def _end_wait(self) -> bool:
        """End the wait. Return whether only this object cancelled it."""
        task, self._task = self._task, None
        cancels_before, self._cancels_before = self._cancels_before, None
        return task is not None and cancels_before is not None and task.uncancel() <= cancels_before

    def _interrupted_error(self) -> RequestInterrupted:
        if self._is_aborted:
            return RequestInterrupted(None)
        deadline: Deadline = "total" if self._deadline_at == self._total_at or self._loop.time() >= self._total_at else self._phase
        return RequestInterrupted(deadline, getattr(self._timeouts, f"{deadline}_s"))
