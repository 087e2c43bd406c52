"""What it takes to come back: a run whose process ended in the middle of a message with very many calls."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.floor import nth_text
from bench.measure import Counts, Row
from callgate import Agent, Engine, EventQuery, Limits, SqliteJournal, tool
from callgate.agent import Budget, Settings
from callgate.testing import Call, ScriptedModel

__all__ = ["Recovery"]

_ROOT = Path(__file__).resolve().parent.parent
_ENDED = 9
"""The exit code of a process that ended itself."""


class Recovery:
    """Resumes such a run: what the record says is read, every call runs again or for the first time, and the model is told."""

    def __init__(self) -> None:
        self.resumed = Row("a run with 10,000 open calls is resumed, all of them run, wall", unit="ms", most=10_000)
        self.rows = (self.resumed,)

    async def open(self, counts: Counts) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="callgate-bench-")
        self.calls = counts.calls * 5
        self.cut_off = Path(self.folder.name) / "cut-off"  # the record, and what is too large to be in it
        self.cut_off.mkdir()
        command = [sys.executable, "-m", "bench.recovery", str(self.cut_off / "journal.db"), str(self.calls)]
        paths = os.pathsep.join([str(_ROOT), *sys.path])
        ended = subprocess.run(command, env={**os.environ, "PYTHONPATH": paths}, check=False)  # noqa: ASYNC221
        if ended.returncode != _ENDED:
            raise RuntimeError(f"the process that was to end in the middle ended with {ended.returncode}")

    async def round(self, counts: Counts) -> None:
        again = Path(self.folder.name) / "again"
        shutil.rmtree(again, ignore_errors=True)
        shutil.copytree(self.cut_off, again)
        began = time.perf_counter()
        async with _engine(again / "journal.db", self.calls, ends=False) as engine, _agent([["done"]], engine) as agent:
            (first,) = engine.journal.find(EventQuery(kinds=("run.began",), limit=1))
            result = await agent.resume(first.run)
        self.resumed.samples.append((time.perf_counter() - began) * 1e3)
        if not result.completed or len(result.results) != self.calls or any(one.status != "ok" for one in result.results):
            raise RuntimeError(f"the recovery that is measured does not work: {result.turn_status} {result.reason}")

    async def close(self) -> None:
        self.folder.cleanup()


def _engine(path: Path, calls: int, *, ends: bool) -> Engine:
    begun: list[int] = []

    @tool(effect="idempotent", writes="day:{days}")
    async def no_op(city: str, days: int, metric: bool) -> str:
        """Look up nothing; where the process is to end, wait until all calls have begun, and end it."""
        begun.append(days)
        if ends and len(begun) == calls:
            os._exit(_ENDED)
        if ends:
            await asyncio.Event().wait()
        return "sunny"

    return Engine([no_op], journal=SqliteJournal(path), limits=Limits(parallel_calls=calls))


async def _cut_off(path: Path, calls: int) -> None:
    asked: list[Call | str] = [Call("no_op", nth_text(day), id=f"call_{day}") for day in range(calls)]
    async with _engine(path, calls, ends=True) as engine, _agent([asked], engine) as agent:
        await agent.run("Go.")


def _agent(script: list[list[Call | str]], engine: Engine) -> Agent:
    return Agent(ScriptedModel(script), engine, settings=Settings(budget=Budget(calls=None)))


if __name__ == "__main__":
    asyncio.run(_cut_off(Path(sys.argv[1]), int(sys.argv[2])))
