"""Threads for the plain functions of a framework's tools, which do not delay the end of the program.

Frameworks run such functions in the default executor of the event loop, whose threads `asyncio.run` and the interpreter join when the
program ends. A function that still runs after its deadline would keep the program from ending, although its call has ended. So the event
loop gets an executor that runs the code of calls in daemon threads, and everything else as before. Must not know any framework.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar
from typing import Any, ParamSpec, TypeVar

from callgate._run_in_thread import run_in_daemon

__all__ = ["AbandonableThreads", "in_abandonable_threads"]

P = ParamSpec("P")
T = TypeVar("T")
_PREFIX = "asyncio"
"""How asyncio names the threads of an executor that it makes itself."""
_abandonable: ContextVar[bool] = ContextVar("callgate abandonable", default=False)


class AbandonableThreads(ThreadPoolExecutor):
    """Runs the code of calls in daemon threads, one each, and everything else in a pool of threads.

    Args:
        pool: The pool; None for one of its own.
    """

    def __init__(self, pool: ThreadPoolExecutor | None = None) -> None:
        super().__init__(thread_name_prefix=_PREFIX)
        self._pool = pool

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        if _abandonable.get():
            return run_in_daemon(lambda: fn(*args, **kwargs))
        return super().submit(fn, *args, **kwargs) if self._pool is None else self._pool.submit(fn, *args, **kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait, cancel_futures=cancel_futures)
        super().shutdown(wait, cancel_futures=cancel_futures)


def in_abandonable_threads(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Return a task of `work`. What it hands to the default executor of the event loop runs in daemon threads.

    An executor that the host has set stays, and gets it.
    """
    loop = asyncio.get_running_loop()
    known = getattr(loop, "_default_executor", loop)  # another kind of loop does not show it, so that it may be the host's
    if known is None or (type(known) is ThreadPoolExecutor and getattr(known, "_thread_name_prefix", "") == _PREFIX):
        loop.set_default_executor(AbandonableThreads(known))
    token = _abandonable.set(True)
    try:
        return asyncio.ensure_future(work)
    finally:
        _abandonable.reset(token)
