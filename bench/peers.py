"""The peers' rows: each peer in a process of its own together with its own floor, asked for one sample a round."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.measure import Counts, Row, Unavailable

__all__ = ["PEER_NAMES", "Peer", "beside_the_best"]

PEER_NAMES = ("openai-agents", "agent-framework", "pydantic-ai")
_ROOT = Path(__file__).resolve().parent.parent


class Peer:
    """One peer: its bare dispatch of a tool call, and its agent loop.

    Args:
        name: One of `PEER_NAMES`.
        python: The interpreter that has the peers installed.
    """

    def __init__(self, name: str, python: str = sys.executable) -> None:
        self.name = name
        self.version = ""
        self.one = Row(f"{name}: one call, bare dispatch / floor")
        self.many = Row(f"{name}: 1,000 parallel no-ops / bare gather")
        self.iteration = Row(f"{name}: one more iteration of its agent loop / bare loop", note="the first 50; ours does not grow")
        self.growth = Row(f"{name}: iteration 300 / iteration 10: CPU", note="measured once")
        self.rows = (self.one, self.many, self.iteration, self.growth)
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
        self._ask(self.one, "serial", counts.calls)
        self._ask(self.many, "gather", counts.parallel)
        self._ask(self.iteration, "iteration", min(counts.tasks, 50))
        if not self.growth.samples:  # it takes seconds
            self._ask(self.growth, "growth", counts.tasks)

    def _ask(self, row: Row, kind: str, count: int) -> None:
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


def beside_the_best(ours: Row, peers: Sequence[Peer]) -> Row:
    """Our iteration over that of the peer whose median is lowest, round by round, each over the bare loop of its own process."""
    row = Row("one more iteration of the agent loop / the best peer's", most=0.125)
    measured = [peer.iteration for peer in peers if peer.iteration.samples]
    if not measured or not ours.samples:
        row.skipped = "no peer was measured beside it"
        return row
    best = min(measured, key=lambda iteration: iteration.median)
    row.note = best.name.partition(":")[0]
    row.samples = [mine / theirs for mine, theirs in zip(ours.samples, best.samples, strict=True)]
    return row
