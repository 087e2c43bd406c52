"""Run blocking work in a thread, so that it does not hold up the event loop; right here where no thread can be started.

The thread is one of our own: those of the event loop's executor may all be held by code of the host's, and then whoever closes an engine
or ends a process would wait for that code. Must not know what the work is.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import copy_context
from functools import partial
from typing import TypeVar

__all__ = ["in_thread"]

T = TypeVar("T")


async def in_thread(work: Callable[[], T]) -> T:
    """Return what `work` returns; it runs exactly once, in a copy of this context."""
    done: Future[T] = Future()
    run = partial(copy_context().run, _run, work, done)
    try:
        threading.Thread(target=run, name="callgate work", daemon=True).start()
    except (RuntimeError, MemoryError):  # there is no thread to be had, or the interpreter is ending
        run()
    return await asyncio.wrap_future(done)


def _run(work: Callable[[], T], done: Future[T]) -> None:
    if not done.set_running_or_notify_cancel():
        return
    try:
        done.set_result(work())
    except BaseException as error:
        done.set_exception(error)
