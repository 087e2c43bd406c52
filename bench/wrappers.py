"""What an iteration of another framework's agent costs with callgate's wrapper, over the same without."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

from bench.measure import Counts, Row, Unavailable

__all__ = ["WRAPPERS", "Wrapper"]

_ROOT = Path(__file__).resolve().parent.parent
_MOST_ITERATIONS = 20
"""The iterations of a sample. With more, the frameworks' own costs grow."""


class Wrapper:
    """One framework, in a process of its own.

    Args:
        name: A key of `bench.wrapped_loops.LOOPS`.
        note: What the row is divided by, if not the bare agent.
    """

    def __init__(self, name: str, note: str = "") -> None:
        self.row = Row(f"{name}: an iteration of its agent with callgate's wrapper / without", most=1.02, note=note)
        self.rows = (self.row,)
        self._name = name

    async def open(self, counts: Counts) -> None:
        self.process = subprocess.Popen(  # noqa: ASYNC220
            [sys.executable, "-m", "bench.wrapped_loops", self._name],
            env={**os.environ, "PYTHONPATH": str(_ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        said = self._read()
        if said != "ready\n":
            await self.close()
            raise Unavailable(said.removeprefix("skipped").strip() or "its process did not come up")

    async def round(self, counts: Counts) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{min(counts.tasks, _MOST_ITERATIONS)}\n")
        self.process.stdin.flush()
        ours, bare = (float(number) for number in self._read().split())
        self.row.ratio(ours, bare)

    def _read(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    async def close(self) -> None:
        self.process.communicate()


_IDLE = "without: with middleware that does nothing"
WRAPPERS = (
    partial(Wrapper, "langchain", _IDLE),
    partial(Wrapper, "pydantic-ai"),
    partial(Wrapper, "openai-agents"),
    partial(Wrapper, "agent-framework", _IDLE),
)
