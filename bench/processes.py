"""The process runner: a warm call, a cold one, and the end of a tree that hangs."""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import time

import psutil

from bench.floor import TEXT
from bench.measure import Counts, Row, Unavailable
from bench.tools import hang, process_no_op
from callgate import Engine, RawCall, Scope
from callgate.events import Progress

__all__ = ["Processes"]

_numbers = itertools.count(random.randrange(10**6))
_PATIENCE_S = 10.0


class Processes:
    """Wall time throughout: this is what a caller waits."""

    def __init__(self) -> None:
        self.warm = Row("process runner: warm call, wall, p50", unit="ms", most=2.0)
        self.slow = Row("process runner: warm call, wall, p99", unit="ms")
        self.cold = Row("process runner: first call of an engine, wall", unit="ms")
        self.end = Row(
            "process runner: end of a hung tree, wall",
            unit="ms",
            most=1_000.0,
            note="a child with its own session, a double fork; none is left",
        )
        self.rows = (self.warm, self.slow, self.cold, self.end)

    async def open(self, counts: Counts) -> None:
        if os.name != "posix":
            raise Unavailable("process tools need a POSIX system")
        self.engine = Engine([process_no_op, hang], run="bench")
        await _call(self.engine)

    async def round(self, counts: Counts) -> None:
        await _call(self.engine)  # the last round ended the worker
        waits = sorted([await _call(self.engine) for _ in range(counts.processes)])
        self.warm.samples.append(waits[len(waits) // 2])
        self.slow.samples.append(waits[int(len(waits) * 0.99)])
        async with Engine([process_no_op], run="bench") as fresh:
            self.cold.samples.append(await _call(fresh))
        self.end.samples.append(await self._end_of_a_tree())

    async def _end_of_a_tree(self) -> float:
        """Milliseconds from the kill until the call has returned and none of what the tool started lives."""
        seconds = f"{30_000 + next(_numbers) / 1e6:.6f}"
        begun = asyncio.Event()
        silence = self.engine.bus.subscribe(lambda _, item: begun.set() if isinstance(item, Progress) else None, "call.progress")
        scope = Scope(conversation=seconds)
        call = asyncio.create_task(self.engine.call(RawCall(name="hang", arguments=f'{{"seconds": "{seconds}"}}'), scope))
        await asyncio.wait_for(begun.wait(), _PATIENCE_S)
        silence()
        await _until_there(seconds)
        killed = time.perf_counter()
        self.engine.control.kill(scope.conversation)
        await call
        took = time.perf_counter() - killed
        while _sleepers(seconds):
            took = time.perf_counter() - killed
            if took > _PATIENCE_S:
                raise RuntimeError("processes outlived their call")
        return took * 1000

    async def close(self) -> None:
        await self.engine.close()


async def _call(engine: Engine) -> float:
    """Milliseconds of one call."""
    began = time.perf_counter()
    await engine.call(RawCall(name="process_no_op", arguments=TEXT))
    return (time.perf_counter() - began) * 1000


async def _until_there(seconds: str) -> None:
    async with asyncio.timeout(_PATIENCE_S):
        while len(_sleepers(seconds)) < 3:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def _sleepers(seconds: str) -> list[psutil.Process]:
    return [process for process in psutil.process_iter(["cmdline"]) if seconds in (process.info["cmdline"] or [])]
