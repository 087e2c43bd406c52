"""Run benches in interleaved rounds and keep what each round gave.

A bench takes a sample of all its rows in one round; every round visits every bench, so that whatever else the machine does falls on all
rows alike. Knows nothing of callgate.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Protocol

__all__ = ["QUICK", "Bench", "Counts", "Row", "Unavailable", "cpu", "run_rounds", "wall"]


@dataclass(frozen=True)
class Counts:
    """How much of everything one run does."""

    rounds: int = 9
    calls: int = 2_000
    """Sequential calls per sample of a cheap row."""
    parallel: int = 1_000
    threads: int = 64
    tasks: int = 300
    """Calls per sample of a row that costs tens of microseconds a call."""
    checks: int = 5_000
    processes: int = 100
    durable: int = 50
    events: int = 1_000
    """Events of one stream."""
    passes: int = 3
    """Streams per sample."""
    argument_bytes: int = 100_000
    long_journal: int = 1_000_000
    """Events of one journal."""
    imports: int = 11
    """Rounds of the import rows, each with a process of its own per row."""


QUICK = Counts(
    rounds=1,
    calls=20,
    parallel=20,
    threads=4,
    tasks=5,
    checks=20,
    processes=3,
    durable=3,
    long_journal=2_000,
    events=30,
    passes=1,
    argument_bytes=400,
    imports=1,
)
"""Enough to see that every row runs; the numbers mean nothing."""


@dataclass
class Row:
    """One line of the table: samples of one number, and what it should reach."""

    name: str
    unit: str = "×"  # noqa: RUF001
    most: float | None = None
    """The target: at most this much. None: reported only."""
    note: str = ""
    samples: list[float] = field(default_factory=list)
    ours_us: list[float] = field(default_factory=list)
    """What our side took, in microseconds, where the row is a ratio."""
    floor_us: list[float] = field(default_factory=list)
    skipped: str = ""
    """Why there is no number."""

    def ratio(self, ours_s: float, floor_s: float) -> None:
        """Add one round: both sides in seconds per operation."""
        self.samples.append(ours_s / floor_s)
        self.ours_us.append(ours_s * 1e6)
        self.floor_us.append(floor_s * 1e6)

    @property
    def median(self) -> float:
        return median(self.samples)

    @property
    def reached(self) -> bool | None:
        """Whether the median is within the target; None where there is no target or no number."""
        return None if self.most is None or not self.samples else self.median <= self.most


class Bench(Protocol):
    """A few rows that are measured together."""

    @property
    def rows(self) -> Sequence[Row]: ...

    async def open(self, counts: Counts) -> None:
        """Make what the rounds need; warm it up."""
        ...

    async def round(self, counts: Counts) -> None:
        """Add one sample to each row."""
        ...

    async def close(self) -> None: ...


async def cpu(work: Callable[[], Awaitable[object]], times: int = 1) -> float:
    """CPU seconds that `work` takes, per operation, where it does `times` operations. All threads of the process count."""
    gc.collect()
    began = time.process_time()
    await work()
    return (time.process_time() - began) / times


async def wall(work: Callable[[], Awaitable[object]]) -> float:
    gc.collect()
    began = time.perf_counter()
    await work()
    return time.perf_counter() - began


async def run_rounds(benches: Sequence[Bench], counts: Counts, rounds: int, say: Callable[[str], None]) -> None:
    """Open every bench, visit all of them `rounds` times, close them. A bench that cannot run says so in its rows."""
    opened: list[Bench] = []
    try:
        for bench in benches:
            try:
                await bench.open(counts)
                opened.append(bench)
            except Unavailable as reason:
                for row in bench.rows:
                    row.skipped = str(reason)
        for number in range(rounds):
            say(f"round {number + 1} of {rounds}")
            for bench in opened:
                await bench.round(counts)
    finally:
        for bench in opened:
            await bench.close()


class Unavailable(Exception):
    """A bench cannot run here; the text says why."""
