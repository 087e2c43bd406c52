"""An engine in a process of its own, which can be killed as a machine kills: without a word.

The process is `python -m callgate.demo`, given one order. What it draws goes to the same screen, so that somebody who watches sees one
story. Must not know what the process does.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec
from msgspec import Struct
from rich.console import Console

__all__ = ["Order", "killed", "started", "until"]

_LOOK_S = 0.02
_PATIENCE_S = 120.0
"""However slow the machine is; what should have happened by then has not, and the findings say so."""


class Order(Struct, frozen=True, kw_only=True):
    """What a process is told."""

    root: str
    """The demonstration's folder."""
    url: str
    """Where the model is."""
    demo: str
    run: str
    goes_on: bool = False
    """Whether an earlier process has begun the run."""
    at: str = ""
    """Where to stop and say so, to be killed there."""
    shown: bool = False
    width: int | None = None
    """The screen's, where no terminal says it."""

    @property
    def console(self) -> Console | None:
        """The screen that the whole demonstration draws on."""
        return Console(markup=False, highlight=False, emoji=False, soft_wrap=True, width=self.width) if self.shown else None


@asynccontextmanager
async def started(order: Order, *, told: bool = False) -> AsyncIterator[asyncio.subprocess.Process]:
    """A process that carries out this order; it ends with the block at the latest.

    Args:
        told: Whether its output is read here, and not shown.
    """
    out = asyncio.subprocess.PIPE if told else None if order.shown else asyncio.subprocess.DEVNULL
    command = [sys.executable, "-m", "callgate.demo", msgspec.json.encode(order).decode()]
    process = await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.DEVNULL, stdout=out)
    try:
        yield process
        async with asyncio.timeout(_PATIENCE_S):
            await process.wait()
    finally:
        await killed(process)


async def killed(process: asyncio.subprocess.Process) -> int:
    """Kill -9, if it still runs; how it ended: below 0, the signal."""
    if process.returncode is None:
        process.kill()
    return await process.wait()


async def until(happened: Callable[[], bool], process: asyncio.subprocess.Process | None = None) -> bool:
    """Wait until something has happened; False where the process has ended first, or it takes too long."""
    loop = asyncio.get_running_loop()
    end = loop.time() + _PATIENCE_S
    while not happened():
        if loop.time() > end or (process is not None and process.returncode is not None):
            return False
        await asyncio.sleep(_LOOK_S)
    return True
