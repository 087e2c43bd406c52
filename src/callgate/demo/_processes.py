"""Start an engine in its own process, so that it can be killed with kill -9.

The process runs `python -m callgate.demo` with an `Order` and prints to the same terminal. This module does not know
what the process does.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec
from msgspec import Struct
from rich.console import Console

__all__ = ["Order", "kill_process", "start_process", "until"]

_LOOK_S = 0.02
_PATIENCE_S = 120.0
"""The maximum time to wait, in seconds; long enough for a slow machine. After it, a finding fails."""


class Order(Struct, frozen=True, kw_only=True):
    """The instructions for an engine process."""

    root: str
    """The demonstration's folder."""
    url: str
    """The model's URL."""
    demo: str
    run: str
    goes_on: bool = False
    """Whether to resume a run that an earlier process started."""
    at: str = ""
    """The moment at which the process reports and then waits to be killed; empty: never."""
    shown: bool = False
    width: int | None = None
    """The screen's width, if standard output is not a terminal."""

    @property
    def console(self) -> Console | None:
        """The console to show the demonstration on; None if nothing is shown."""
        return Console(markup=False, highlight=False, emoji=False, soft_wrap=True, width=self.width) if self.shown else None


@asynccontextmanager
async def start_process(order: Order, *, told: bool = False) -> AsyncIterator[asyncio.subprocess.Process]:
    """Start a process with this order, and wait for its end when the block ends. Kill it if it does not end in time.

    Args:
        told: Whether the caller reads the process's output, which is then not shown.
    """
    out = asyncio.subprocess.PIPE if told else None if order.shown else asyncio.subprocess.DEVNULL
    command = [sys.executable, "-m", "callgate.demo", msgspec.json.encode(order).decode()]
    process = await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.DEVNULL, stdout=out)
    try:
        yield process
        async with asyncio.timeout(_PATIENCE_S):
            await process.wait()
    finally:
        await kill_process(process)


async def kill_process(process: asyncio.subprocess.Process) -> int:
    """Kill the process with SIGKILL if it runs. Return its exit code, which is negative if a signal ended it."""
    if process.returncode is None:
        process.kill()
    return await process.wait()


async def until(happened: Callable[[], bool], process: asyncio.subprocess.Process | None = None) -> bool:
    """Wait until a condition is true; return False if the process ends first or the wait takes too long."""
    loop = asyncio.get_running_loop()
    end = loop.time() + _PATIENCE_S
    while not happened():
        if loop.time() > end or (process is not None and process.returncode is not None):
            return False
        await asyncio.sleep(_LOOK_S)
    return True
