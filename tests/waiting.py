"""Waiting without a stopwatch: how long a test waits for what must come, and time that passes when the test says so.

How fast something is, belongs to the benchmarks: a machine may be slow or busy, and a test that looks at the time then fails for nothing.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

__all__ = ["COMMAND_S", "DEADLINE_S", "HANGS_S", "PATIENCE_S", "LoopClock", "let_pass", "past_deadline", "soon", "threads_since", "until"]

T = TypeVar("T")

PATIENCE_S: Final = 60.0
"""For what takes a moment: whoever needs longer, hangs."""
COMMAND_S: Final = 240.0
"""For a whole program, which may do a lot."""
DEADLINE_S: Final = 300.0
"""For a call whose deadline is to pass: half of what a tool that hangs would take, so that the two never fall together."""
HANGS_S: Final = 600.0
"""For a tool that hangs. Longer than a test may take, so that whoever comes back has not waited for it."""


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
    """Whether `condition` becomes true; the event loop goes on meanwhile."""
    until = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > until:
            return False
        await asyncio.sleep(0.005)
    return True


async def until(condition: Callable[[], object]) -> None:
    """Let the event loop go on until `condition` is true."""
    assert await soon(condition), "it never came"


def let_pass(seconds: float) -> None:
    """Move the running event loop's clock on: each of its timers that is due by then goes off next."""
    loop = asyncio.get_running_loop()
    before = loop.time
    loop.time = lambda: before() + seconds  # type: ignore[method-assign]


async def past_deadline(call: Awaitable[T], begun: Callable[[], object]) -> T:
    """What comes of a call whose deadline, `DEADLINE_S` at most, passes once its tool has begun, however long that took."""
    running = asyncio.ensure_future(call)
    assert await soon(lambda: begun() or running.done()), "the tool has not begun"
    assert not running.done(), "it ended before its deadline"
    let_pass(DEADLINE_S)
    return await running


def threads_since(before: set[threading.Thread]) -> set[threading.Thread]:
    """The threads that were started since and do not end. One that has done its work may still be on its way out: it is waited for."""
    started = set(threading.enumerate()) - before
    for thread in started:
        thread.join(PATIENCE_S)
    return {thread for thread in started if thread.is_alive()}
