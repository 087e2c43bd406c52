"""Run blocking work in threads, so that it does not block the event loop.

If no thread can be started, the work runs in the caller. `in_thread` starts a thread for each piece of work;
`BlockingPool` shares a few threads among many small pieces. They are daemon threads of their own, because the threads
of the event loop's executor are shared with the host and joined when the program ends, so that closing an engine would
wait for the host's work. Work that may be abandoned at a deadline uses `_runners.offload_to_threads`. Must not know
what the work is.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import copy_context
from functools import partial
from typing import Any, TypeVar

__all__ = ["BlockingPool", "LoopEnded", "in_thread", "run_in_daemon", "wait_for_loop"]

T = TypeVar("T")
_IDLE_S = 10.0
_LOOK_S = 1.0
_CANNOT_START = (RuntimeError, MemoryError)
"""The exceptions of a thread that cannot be started, because the system has none left or the interpreter is ending."""


async def in_thread(work: Callable[[], T]) -> T:
    """Run `work` in a thread and return its result. It runs exactly once, in a copy of the current context."""
    return await asyncio.wrap_future(run_in_daemon(work))


def run_in_daemon(work: Callable[[], T]) -> Future[T]:
    """Run `work` as `in_thread` does, and return the future of its result."""
    done: Future[T] = Future()
    run = partial(copy_context().run, _run, work, done)
    try:
        threading.Thread(target=run, name="callgate work", daemon=True).start()
    except _CANNOT_START:
        run()
    return done


class BlockingPool:
    """A few threads that are started when there is work, and end when there has been none for a while.

    Args:
        name: The name of the threads.
        most: The maximum number of threads. If all of them hang, further work waits until its caller's deadline.
    """

    def __init__(self, name: str, most: int) -> None:
        self._name = name
        self._most = most
        self._jobs: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = queue.SimpleQueue()
        """The work, and None for each thread that has to end."""
        self._lock = threading.Lock()
        self._threads = 0
        self._idle = 0

    async def run(self, work: Callable[[], T]) -> T:
        """Run `work` in a thread of the pool and return its result."""
        done: Future[T] = Future()
        with self._lock:
            if self._idle <= self._jobs.qsize() and self._threads < self._most:
                self._start()
            works = self._threads > 0
            if works:
                self._jobs.put((work, done))
        if not works:
            _run(work, done)
        return await asyncio.wrap_future(done)

    def close(self) -> None:
        """End each thread when its work is done, without waiting. No work may be handed in after that."""
        with self._lock:
            for _ in range(self._threads):
                self._jobs.put(None)
            self._threads = 0

    def _start(self) -> None:
        try:
            threading.Thread(target=self._work, name=self._name, daemon=True).start()
        except _CANNOT_START:
            return
        self._threads += 1

    def _work(self) -> None:
        while (job := self._next()) is not None:
            _run(*job)
            del job

    def _next(self) -> tuple[Callable[[], Any], Future[Any]] | None:
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


class LoopEnded(Exception):
    """Raised in a thread that waits for an event loop, if the loop has ended before it could return the result."""


def wait_for_loop(running: Future[T], has_ended: Callable[[], bool]) -> T:
    """Return the result of `running`, which an event loop in another thread sets.

    Args:
        has_ended: Returns whether that event loop has ended; called every second.

    Raises:
        LoopEnded: The event loop has ended.
    """
    while True:
        try:
            return running.result(_LOOK_S)
        except TimeoutError:
            if running.done():
                return running.result()
        if has_ended():
            raise LoopEnded


def _run(work: Callable[[], T], done: Future[T]) -> None:
    if not done.set_running_or_notify_cancel():
        return
    try:
        done.set_result(work())
    except StopIteration as error:  # a future of asyncio refuses it, and would never be done
        failed = RuntimeError("blocking work raised StopIteration")
        failed.__cause__ = error
        done.set_exception(failed)
    except BaseException as error:
        done.set_exception(error)
