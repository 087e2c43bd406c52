"""Waiting in tests: how long a test waits for a condition, and a clock that a test moves forward.

Speed is measured by the benchmarks. A test that checks elapsed time fails on a slow or busy machine although nothing is wrong.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

__all__ = [
    "COMMAND_S",
    "DEADLINE_S",
    "HANGS_S",
    "PATIENCE_S",
    "LoopClock",
    "let_pass",
    "past_deadline",
    "slow_clock",
    "soon",
    "threads_since",
    "until",
]

T = TypeVar("T")

PATIENCE_S: Final = 60.0
"""Limit in seconds for what takes a moment. Whatever takes longer hangs."""
COMMAND_S: Final = 240.0
"""Limit in seconds for a whole program, which may do a lot."""
DEADLINE_S: Final = 300.0
"""Deadline in seconds of a call that is to reach it: half of `HANGS_S`, so that the two never coincide."""
HANGS_S: Final = 600.0
"""Seconds for which a tool hangs. A test may not take that long, so a test that passes has not waited for it."""


class LoopClock:
    """The event loop's time, so that an engine's deadline passes with the loop's timers; otherwise the system's clock."""

    wall_ns = staticmethod(time.time_ns)
    jitter = staticmethod(random.random)

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def new_id(self) -> str:
        return secrets.token_hex(8)


async def soon(condition: Callable[[], object], within_s: float = PATIENCE_S) -> bool:
    """Return whether `condition` becomes true in time. The event loop runs meanwhile."""
    until = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > until:
            return False
        await asyncio.sleep(0.005)
    return True


async def until(condition: Callable[[], object]) -> None:
    """Wait until `condition` is true. The event loop runs meanwhile."""
    assert await soon(condition), "the condition did not become true"


def let_pass(seconds: float) -> None:
    """Move the running event loop's clock forward: each of its timers that is due by then runs next."""
    loop = asyncio.get_running_loop()
    before = loop.time
    loop.time = lambda: before() + seconds  # type: ignore[method-assign]


@contextmanager
def slow_clock() -> Iterator[None]:
    """Slow the running event loop's clock down: a timer of three seconds takes `HANGS_S` during the block."""
    loop = asyncio.get_running_loop()
    before, began = loop.time, loop.time()
    loop.time = lambda: began + (before() - began) * 3.0 / HANGS_S  # type: ignore[method-assign]
    try:
        yield
    finally:
        loop.time = before  # type: ignore[method-assign]


async def past_deadline(call: Awaitable[T], begun: Callable[[], object]) -> T:
    """Return the result of a call whose deadline of at most `DEADLINE_S` passes after its tool has begun, however long that takes."""
    running = asyncio.ensure_future(call)
    assert await soon(lambda: begun() or running.done()), "the tool has not begun"
    assert not running.done(), "the call ended before its deadline"
    let_pass(DEADLINE_S)
    return await running


def threads_since(before: set[threading.Thread]) -> set[threading.Thread]:
    """Return the threads that were started since and do not end. Those that are about to end are waited for."""
    started = set(threading.enumerate()) - before
    for thread in started:
        thread.join(PATIENCE_S)
    return {thread for thread in started if thread.is_alive()}
