"""Run blocking work in a thread, so that it does not hold up the event loop; right here where no thread can be started.

`asyncio.to_thread` raises where the system has no thread to give, and may run the work later all the same. Must not know what the work is.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import copy_context
from typing import Generic, TypeVar

__all__ = ["in_thread"]

T = TypeVar("T")


async def in_thread(work: Callable[[], T]) -> T:
    """Return what `work` returns; it runs exactly once, in a copy of this context."""
    once = _Once(work)
    try:
        asyncio.get_running_loop().run_in_executor(None, once)
    except (RuntimeError, MemoryError, OSError, ImportError):  # no thread, no memory or no file for one; or the interpreter is ending
        once()
    return await asyncio.wrap_future(once.future)


class _Once(Generic[T]):
    """Work that two may try to run: the executor that queued it and raised, and whoever could not wait for that."""

    def __init__(self, work: Callable[[], T]) -> None:
        self.future: Future[T] = Future()
        self._work = work
        self._context = copy_context()
        self._ticket = threading.Lock()

    def __call__(self) -> None:
        if not self._ticket.acquire(blocking=False) or not self.future.set_running_or_notify_cancel():
            return
        try:
            self.future.set_result(self._context.run(self._work))
        except BaseException as error:
            self.future.set_exception(error)
