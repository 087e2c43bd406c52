"""Run coroutines for synchronous code: on the engine's event loop, if that runs in another thread, or else on one in a thread of its own.

Beside the lifecycle, which knows nothing of threads. Refuses to wait where that would block the event loop of the calling thread.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import warnings
from collections.abc import Callable, Coroutine
from concurrent.futures import wait
from typing import Any, TypeVar, cast

from callgate._pipeline.engine_lifecycle import FORKED
from callgate._run_in_thread import LoopEnded, wait_for_loop
from callgate._runners.thread_runner import while_thread_waits
from callgate.errors import UsageError

__all__ = ["LoopThread", "SyncRunner", "refuse_inside_loop"]

log = logging.getLogger("callgate")
T = TypeVar("T")
_PATIENCE_S = 1.0
_BLOCKED_S = 30.0
"""Seconds that synchronous code waits until the engine's event loop takes its work on."""
_LOOK_S = 1.0
_END_S = 5.0


def refuse_inside_loop() -> None:
    """Raise `UsageError` if the calling thread has a running event loop, which waiting would block."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise UsageError(
        "A method that ends in _sync waits, and would hold up the event loop that runs here. Await the method without that ending instead:"
        " 'await engine.respond(...)', 'await engine.call(...)', 'await agent.run(...)'."
    )


class LoopThread:
    """One daemon thread that runs an event loop until it is closed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._closed = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run_loop, name="callgate-loop", daemon=True)
        try:
            self._thread.start()
        except (RuntimeError, MemoryError) as error:
            self._loop.close()
            raise UsageError(
                f"No thread can be started for the engine's event loop ({error}). End other threads, or raise the limit of them."
            ) from error

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` on the loop and wait for it.

        Raises:
            UsageError: The loop is closed, or its thread is in another process, because a fork does not copy threads.
        """
        if self._process != os.getpid():
            work.close()
            raise UsageError(FORKED)
        with self._lock:
            if self._closed:
                work.close()
                raise UsageError("This engine is closed. Make a new one.")
            running = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return wait_for_loop(running, lambda: self.has_ended)
        except LoopEnded:
            raise UsageError("The thread that ran this engine's event loop has ended. Close the engine, and make a new one.") from None

    @property
    def has_ended(self) -> bool:
        """Whether the thread has ended in this process. False in a forked child."""
        return self._process == os.getpid() and not self._thread.is_alive()

    def _run_loop(self) -> None:
        while not (self._closed or self._loop.is_closed()):
            try:
                self._loop.run_forever()
            except BaseException as error:  # a sys.exit of a tool or host, which its caller gets; the loop must continue for the others
                log.error("The event loop of call_sync was left by %s: %s; it goes on", type(error).__name__, error)

    def close(self) -> None:
        """Wait for work that has begun, then stop the loop."""
        if self._process != os.getpid():
            return
        with self._lock:
            self._closed = True
        if self._thread.is_alive():
            wait((asyncio.run_coroutine_threadsafe(_wait_for_others(), self._loop),), _END_S)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(_END_S)
        if not self._thread.is_alive():
            self._loop.close()


class _HandedOver:
    """Work that a thread hands to an event loop in another thread. It begins in time, or never."""

    def __init__(self, work: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._work = work
        self._decided = threading.Lock()
        self._begun = threading.Event()

    async def run(self) -> Any:
        if self._decided.acquire(blocking=False):
            self._begun.set()
            return await while_thread_waits(self._work)
        return None  # nobody waits for it any more

    def has_begun(self, within_s: float) -> bool:
        return self._begun.wait(within_s)

    def give_up(self) -> bool:
        """Prevent the work from beginning; return False if it has begun."""
        return self._decided.acquire(blocking=False)


def _is_idle_here(loop: asyncio.AbstractEventLoop) -> bool:
    """Return whether a loop is this thread's own between two uses, as the `run_sync` of some frameworks leaves it."""
    if loop.is_running() or loop.is_closed():
        return False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            return asyncio.get_event_loop() is loop
        except RuntimeError:
            return False


def _run_on(loop: asyncio.AbstractEventLoop, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run `work` on an event loop that runs in another thread, or that is this thread's own and idle, and wait for it.

    Raises:
        UsageError: The loop does not run, or waits for this thread.
    """
    if _is_idle_here(loop):
        return loop.run_until_complete(work())
    if not loop.is_running():
        raise UsageError(
            "This engine belongs to an event loop that no longer runs. Make a new engine: one for each loop, and one for code without a"
            " loop, such as call_sync or the invoke of a graph."
        )
    handed = _HandedOver(work)
    running = asyncio.run_coroutine_threadsafe(handed.run(), loop)
    left_s = _BLOCKED_S
    while not handed.has_begun(_LOOK_S):
        left_s -= _LOOK_S
        if (left_s <= 0 or not loop.is_running()) and handed.give_up():
            raise UsageError(
                f"The engine's event loop has taken nothing on for {_BLOCKED_S - left_s:.3g} s: it is blocked, perhaps because it waits for"
                " this thread. Nothing was run. Await 'engine.call(...)' there, or 'ctx.call(...)' in a tool."
            )
    try:
        return wait_for_loop(running, lambda: not loop.is_running())  # type: ignore[no-any-return]
    except LoopEnded:
        raise UsageError("The engine's event loop has ended before the work did. Make a new engine.") from None


class SyncRunner:
    """Runs coroutines for synchronous code: on the engine's event loop if that runs in another thread, and otherwise on an event loop in a
    thread that is started on first use.

    Args:
        loop: Returns the event loop that the engine belongs to; None if it belongs to none yet.
        check: Raises an exception if nothing can be run any more.
    """

    def __init__(self, loop: Callable[[], asyncio.AbstractEventLoop | None], check: Callable[[], None]) -> None:
        self._loop = loop
        self._check = check
        self._guard = threading.Lock()
        self._thread: LoopThread | None = None

    def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run `work` and wait for it."""
        refuse_inside_loop()
        with self._guard:
            self._check()
            loop = self._loop() if self._thread is None else None
            thread = self._thread = None if loop is not None else self._thread or LoopThread()
        return thread.run(while_thread_waits(work)) if thread is not None else _run_on(cast("asyncio.AbstractEventLoop", loop), work)

    def close(self, shut: Callable[[], None], work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run `work` as the last coroutine, and end the thread. If any was run before, `shut` is called first, to refuse new work."""
        refuse_inside_loop()
        with self._guard:
            if self._thread is not None:
                shut()
            thread, self._thread = self._thread, None
        if thread is None or thread.has_ended:
            thread = _thread_or_none()
        if thread is None:
            asyncio.run(work())
            return
        try:
            thread.run(work())
        finally:
            thread.close()


def _thread_or_none() -> LoopThread | None:
    try:
        return LoopThread()
    except UsageError:
        return None


async def _wait_for_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    if others:
        await asyncio.wait(others, timeout=_PATIENCE_S)
        for task in others:
            task.cancel()
        await asyncio.wait(others, timeout=_PATIENCE_S)
