"""Run blocking work in daemon threads, so that a hanging file system delays only the calls that need it.

The event loop's own pool is not used: its threads are shared with the host and joined at the end of the program. Knows nothing of rules.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

__all__ = ["BlockingPool"]

T = TypeVar("T")

_IDLE_S = 10.0


class BlockingPool:
    """A pool of threads that are started on demand and end when they are idle for a while.

    Args:
        most: The maximum number of threads. If all of them hang, further work waits until its caller's deadline.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._jobs: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._threads = 0
        self._idle = 0

    async def run(self, function: Callable[[], T]) -> T:
        """Run `function` in a thread; return or raise what it does."""
        future: Future[T] = Future()
        with self._lock:
            if self._idle <= self._jobs.qsize() and self._threads < self._most:
                threading.Thread(target=self._work, name="callgate policy", daemon=True).start()
                self._threads += 1
            self._jobs.put((future, function))
        return await asyncio.wrap_future(future)

    def _work(self) -> None:
        while True:
            job = self._next()
            if job is None:
                return
            future, function = job
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(function())
            except BaseException as error:
                future.set_exception(error)
            del job, future, function

    def _next(self) -> tuple[Future[Any], Callable[[], Any]] | None:
        with self._lock:
            self._idle += 1
        try:
            return self._jobs.get(timeout=_IDLE_S)
        except queue.Empty:
            pass
        finally:
            with self._lock:
                self._idle -= 1
        with self._lock:
            try:
                return self._jobs.get_nowait()
            except queue.Empty:
                self._threads -= 1
                return None
