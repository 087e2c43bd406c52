"""The peers' rows: each peer in a process of its own together with its own floor, asked for one sample a round."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from bench.measure import Counts, Row, Unavailable

__all__ = ["PEER_NAMES", "Peer"]

PEER_NAMES = ("openai-agents", "agent-framework", "pydantic-ai")
_ROOT = Path(__file__).resolve().parent.parent


class Peer:
    """One peer's bare dispatch of a tool call.

    Args:
        name: One of `PEER_NAMES`.
        python: The interpreter that has the peers installed.
    """

    def __init__(self, name: str, python: str = sys.executable) -> None:
        self.name = name
        self.version = ""
        self.one = Row(f"{name}: one call, bare dispatch / floor")
        self.many = Row(f"{name}: 1,000 parallel no-ops / bare gather")
        self.rows = (self.one, self.many)
        self._python = python

    async def open(self, counts: Counts) -> None:
        self.process = subprocess.Popen(  # noqa: ASYNC220
            [self._python, "-m", "bench.peer", self.name],
            env={**os.environ, "PYTHONPATH": str(_ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        word, _, rest = self._read().partition(" ")
        if word != "ready":
            await self.close()
            raise Unavailable(rest.strip() or "its process did not come up")
        self.version = rest.strip()

    async def round(self, counts: Counts) -> None:
        for row, kind, count in ((self.one, "serial", counts.calls), (self.many, "gather", counts.parallel)):
            assert self.process.stdin is not None
            self.process.stdin.write(f"{kind} {count}\n")
            self.process.stdin.flush()
            floor, peer = (float(number) for number in self._read().split())
            row.ratio(peer, floor)

    def _read(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    async def close(self) -> None:
        self.process.communicate()
