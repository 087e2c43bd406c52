"""What `import callgate` costs, each time in an interpreter of its own, beside `import asyncio, json`."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import callgate
from bench.measure import Counts, Row, Unavailable

__all__ = ["Imports"]

_PROBE = """
import sys, time
def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1])
before, began = resident(), time.process_time()
{statement}
print(time.process_time() - began, resident() - before)
"""
_FLOOR = "import asyncio, json"
_DOOR = "import callgate"
_USED = "from callgate import Engine, tool"
_ROOT = Path(__file__).resolve().parent.parent


class Imports:
    """Growth over a bare interpreter, relative to the growth by `import asyncio, json`."""

    def __init__(self) -> None:
        self.cpu = Row(f"{_DOOR}: CPU / {_FLOOR}", most=2.0)
        self.memory = Row(f"{_DOOR}: memory / {_FLOOR}", most=2.0)
        self.used_cpu = Row(f"{_USED}: CPU / {_FLOOR}", note="callgate imports asyncio too")
        self.used_memory = Row(f"{_USED}: memory / {_FLOOR}")
        self.count = Row("distributions that the core install needs", unit="", most=10)
        self.rows = (self.cpu, self.memory, self.used_cpu, self.used_memory, self.count)

    async def open(self, counts: Counts) -> None:
        if sys.platform != "linux":
            raise Unavailable("resident memory is read from /proc, which this system does not have")
        for statement in (_FLOOR, _DOOR, _USED):
            probe(statement)  # writes the byte code

    async def round(self, counts: Counts) -> None:
        floor_s, floor_pages = probe(_FLOOR)
        for statement, times, sizes in ((_DOOR, self.cpu, self.memory), (_USED, self.used_cpu, self.used_memory)):
            seconds, pages = probe(statement)
            times.ratio(seconds, floor_s)
            sizes.samples.append(pages / floor_pages)
        self.count.samples = [len(required(_declared()))]

    async def close(self) -> None: ...


def probe(statement: str) -> tuple[float, int]:
    """CPU seconds and pages of memory that a statement takes in a fresh interpreter."""
    paths = [str(Path(callgate.__file__).parent.parent), os.environ.get("PYTHONPATH", "")]
    ran = subprocess.run(
        [sys.executable, "-c", _PROBE.format(statement=statement)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        capture_output=True,
        text=True,
        check=True,
    )
    seconds, pages = ran.stdout.split()
    return float(seconds), int(pages)


def _declared() -> list[str]:
    with (_ROOT / "pyproject.toml").open("rb") as file:
        found: list[str] = tomllib.load(file)["project"]["dependencies"]
    return found


def required(requirements: list[str]) -> set[str]:
    """The distributions that these need, and what those need, as installed here."""
    found: set[str] = set()
    waiting = list(requirements)
    while waiting:
        requirement = waiting.pop()
        name = re.split(r"[^\w.-]", requirement, maxsplit=1)[0].replace("_", "-").lower()
        if "extra ==" in requirement or name in found:
            continue
        try:
            waiting += importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue
        found.add(name)
    return found
