"""An event loop in a thread, for callers that have none. Knows nothing of calls."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import wait
from typing import Any, TypeVar

from callgate._in_thread import LoopEnded, wait_for_loop
from callgate.errors import UsageError

__all__ = ["LoopThread", "SyncDoor", "refuse_inside_loop"]

log = logging.getLogger("callgate")
T = TypeVar("T")
_PATIENCE_S = 1.0
_END_S = 5.0


def refuse_inside_loop() -> None:
    """Raises `UsageError` where the calling thread has a running event loop, which waiting would hold up."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise UsageError(
        "A method that ends in _sync waits, and would hold up the event loop that runs here. Await the method without that ending instead:"
        " 'await agent.run(...)', 'await engine.call(...)', 'await engine.close()'."
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
            UsageError: The loop is closed, or its thread is in another process: a fork copies no threads.
        """
        if self._process != os.getpid():
            work.close()
            raise UsageError("This engine was made before this process was forked, and cannot work in it. Make a new one here.")
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
        """Whether the thread has ended in this very process."""
        return self._process == os.getpid() and not self._thread.is_alive()

    def _run_loop(self) -> None:
        while not (self._closed or self._loop.is_closed()):
            try:
                self._loop.run_forever()
            except BaseException as error:  # a tool's or a host's sys.exit, which its caller is told: no end for all the others
                log.error("The event loop of call_sync was left by %s: %s; it goes on", type(error).__name__, error)

    def close(self) -> None:
        """Let what was begun come to its end, and end the loop: nobody is left waiting for what will never run."""
        if self._process != os.getpid():
            return
        with self._lock:
            self._closed = True
        if self._thread.is_alive():
            wait((asyncio.run_coroutine_threadsafe(_others_ended(), self._loop),), _END_S)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(_END_S)
        if not self._thread.is_alive():
            self._loop.close()


class SyncDoor:
    """A door for plain code to what works on an event loop: the thread with that loop is made when it is first used."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._thread: LoopThread | None = None

    def run(self, check: Callable[[], None], work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run `work` and wait for it, unless `check` raises."""
        refuse_inside_loop()
        with self._guard:
            check()
            thread = self._thread = self._thread or LoopThread()
        return thread.run(work())

    def close(self, shut: Callable[[], None], work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run `work` last, and end the thread. `shut` is called before, where the door was ever used: nobody comes in any more."""
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


async def _others_ended() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    if others:
        await asyncio.wait(others, timeout=_PATIENCE_S)
        for task in others:
            task.cancel()
        await asyncio.wait(others, timeout=_PATIENCE_S)
