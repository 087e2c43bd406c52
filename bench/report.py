"""Show what was measured: a table on the screen, and `bench/README.md`."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench.measure import Counts, Row

__all__ = ["Machine", "readme", "table"]

_WIDTH = 66


@dataclass(frozen=True)
class Machine:
    """What the numbers were taken on."""

    cpu: str
    cores: int
    kernel: str
    python: str
    versions: str

    @classmethod
    def here(cls) -> Machine:
        names = ("msgspec", "jsonschema-rs", "apsw", "psutil")
        return cls(
            cpu=_cpu_model(),
            cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
            kernel=f"{platform.system()} {platform.release().split('-')[0]}",
            python=f"{platform.python_implementation()} {platform.python_version()}",
            versions=", ".join(f"{name} {importlib.metadata.version(name)}" for name in names),
        )


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def table(rows: Sequence[Row]) -> str:
    """The rows for a screen."""
    lines = [f"{'':{_WIDTH}} {'median':>9} {'min..max':>17} {'target':>8}  verdict"]
    for row in rows:
        if not row.samples:
            lines.append(f"{row.name:{_WIDTH}} skipped: {row.skipped}")
            continue
        target = "" if row.most is None else f"≤ {row.most:,g}"
        lines.append(f"{row.name:{_WIDTH}} {_number(row.median):>7} {row.unit:2} {_range(row):>16} {target:>8}  {verdict(row)}")
    return "\n".join(lines)


def verdict(row: Row) -> str:
    return "" if row.reached is None else "reached" if row.reached else "MISSED"


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _range(row: Row) -> str:
    return f"{_number(min(row.samples))}..{_number(max(row.samples))}"


def readme(rows: Sequence[Row], counts: Counts, peers: Sequence[str], machine: Machine) -> str:
    """`bench/README.md`."""
    missed = [row for row in rows if row.reached is False]
    skipped = [f"- {row.name}: {row.skipped}" for row in rows if not row.samples]
    targets = [row for row in rows if row.most is not None]
    parts = [
        "# Benchmarks",
        "Written by `python -m bench --write`; do not edit.",
        _HOW,
        _METHOD.format(rounds=counts.rounds, imports=counts.imports, calls=f"{counts.calls:,}"),
        f"## Results\n\n{_measured_on(peers, machine)}\n{_missed(len(missed), len(targets))}",
        _markdown(rows),
        "\n".join(["Not measured:", *skipped]) if skipped else "",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _missed(missed: int, targets: int) -> str:
    return f"{missed} of {targets} targets are missed; [reasons.md](reasons.md) says why."


def _measured_on(peers: Sequence[str], machine: Machine) -> str:
    facts = (machine.cpu, f"{machine.cores} cores", machine.kernel, machine.python, machine.versions, *peers)
    return f"Measured on {datetime.date.today().isoformat()}: {', '.join(facts)}."


def _markdown(rows: Sequence[Row]) -> str:
    lines = ["| what | median | min..max | target | verdict | ours | floor |", "|---|---|---|---|---|---|---|"]
    for row in rows:
        if row.samples:
            target = "" if row.most is None else f"≤ {row.most:,g}"
            name = f"{row.name} ({row.note})" if row.note else row.name
            cells = (
                f"{_number(row.median)} {row.unit}".strip(),
                _range(row),
                target,
                verdict(row),
                _time(row.ours_us),
                _time(row.floor_us),
            )
            lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _time(samples_us: list[float]) -> str:
    if not samples_us:
        return ""
    value = median(samples_us)
    return f"{value / 1000:.1f} ms" if value >= 10_000 else f"{_number(value)} µs"


_METHOD = """## Method

The table shows ratios between rows of one run: medians of {rounds} rounds ({imports} for the imports, each in a new interpreter) with their
range. Every round measures every row once, so that load from elsewhere affects all rows alike. Times are CPU time of the whole process,
unless a row says wall. Medians of whole runs differed by up to 15 % for calls and 30 % for threads and disk on a shared machine.

The floor is `json.loads` + `await fn(**arguments)` + append, {calls} times a sample, measured in the same process just before the row that
is divided by it. The call is an async no-op with three typed arguments as JSON text. The record and the lists of results keep everything,
and the garbage collector runs as usual.

Each peer runs in a process of its own with its own floor, without telemetry. For one call, its bare dispatch below the agent loop parses
the same text, without record or policy. For iterations, its agent loop runs over a model with prepared answers that ignores the history.

For MCP, a client that only writes requests and reads responses calls a server of the official SDK over stdio, directly and through the
gateway. Its CPU times are those of the whole server side, with all processes; the calls of the gateway have effects.

Each framework that callgate has a wrapper for runs in a process of its own, with the wrapper and without, 20 iterations a sample.

Targets are the project's own; 10 ms for the event loop stands for "never blocked"."""

_HOW = """## How to run

    make bench                                   the table on the screen, about a minute
    python -m bench --write                      the same, and this file
    python -m bench --only calls,threads         some of the rows
    python -m bench --only servers --rounds 1    ten MCP servers: how they start, and what they cost while idle; takes a minute
    python -m bench --quick                      check that every row runs; the numbers mean nothing
    python -m bench --peers PYTHON               with the peers that this interpreter has: `pip install -r bench/peers.txt`"""
