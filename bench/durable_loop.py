"""What an iteration of the agent loop costs on disk: with a read, which takes one commit, and with an effect, which takes two."""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median

from bench.bare_record import BareRecord
from bench.floor import no_op
from bench.loop import RULES, Stamped
from bench.measure import Counts, Row
from callgate import Agent, Engine, Rules, SqliteJournal, tool
from callgate.agent import Budget, Settings
from callgate.events import Event
from callgate.tools import Tool

__all__ = ["DurableIterations"]

READ = tool(effect="none")(no_op)
EFFECT = tool(effect="once", writes="city:{city}")(no_op)
_LAST_OF_ITERATION = "call.completed"
_WARM = 10
"""Iterations that a new record is given before the clock runs."""


@dataclass
class _Kind:
    """Iterations of one kind, and the commits that each makes."""

    row: Row
    tool: Tool
    commits: tuple[int, ...]


class DurableIterations:
    """An agent over an SQLite record. The floor makes the same commits of the same rows, and nothing else."""

    def __init__(self) -> None:
        name = "/ a bare loop making the same commits, wall"
        read = Row(f"a durable iteration with a read {name}", most=1.3, note="one commit: the results, before the model is told")
        effect = Row(f"a durable iteration with an effect {name}", most=1.3, note="two: the intent before it starts, and the result")
        self._kinds = (_Kind(read, READ, (6,)), _Kind(effect, EFFECT, (5, 1)))
        self._growth = Row("durable iteration 1,000 / iteration 10: wall", most=1.15, note="with a read; medians of 100 at either end")
        self.rows = (read, effect, self._growth)

    async def open(self, counts: Counts) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="callgate-bench-")
        self.number = 0
        self.bare = [BareRecord(self._path(), await self._sample(kind.tool)) for kind in self._kinds]

    async def round(self, counts: Counts) -> None:
        for kind, bare in zip(self._kinds, self.bare, strict=True):
            began = time.perf_counter()
            bare.write(counts.durable, commits=kind.commits)
            floor = (time.perf_counter() - began) / counts.durable
            steps = (await self._steps(kind.tool, counts.durable + _WARM))[_WARM:]
            kind.row.ratio(sum(steps) / len(steps), floor)
        if not self._growth.samples:
            steps = await self._steps(READ, counts.calls // 2)
            few = max(1, min(100, len(steps) // 3))
            self._growth.samples.append(median(steps[-few:]) / median(steps[few // 10 : few // 10 + few]))

    async def _sample(self, made: Tool) -> list[Event]:
        """The events that one iteration in the middle of a run writes, from one commit's end to the next's."""
        path = self._path()
        await self._steps(made, 3, path)
        journal = SqliteJournal(path)
        events = list(journal.read())
        await journal.close()
        first, second, *_ = (place for place, event in enumerate(events) if event.kind == _LAST_OF_ITERATION)
        return events[first + 1 : second + 1]

    async def _steps(self, made: Tool, iterations: int, path: Path | None = None) -> list[float]:
        """The seconds that each iteration takes, in a record of its own."""
        model = Stamped(iterations, time.perf_counter)
        engine = Engine([made], policies=[Rules.parse(RULES)], journal=SqliteJournal(path or self._path()))
        async with engine, Agent(model, engine, settings=Settings(budget=Budget(iterations=None))) as agent:
            result = await agent.run("Go.")
        if not result.completed or result.spent.iterations != iterations:
            raise RuntimeError(f"the run that is measured does not work: {result.turn_status} {result.reason}")
        return [after - before for before, after in pairwise(model.stamps)]

    def _path(self) -> Path:
        self.number += 1
        return Path(self.folder.name) / f"{self.number}.db"

    async def close(self) -> None:
        for bare in self.bare:
            bare.close()
        self.folder.cleanup()
