"""`python -m bench`: measure, show the table, write it down if asked to."""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from bench.calls import HookedCalls, ParallelCalls, SerialCalls, WaitingCalls
from bench.disks import Disk, SlowDisk
from bench.durable_loop import DurableIterations
from bench.gateway_calls import FastMcpCalls, GatewayCalls, HttpGatewayCalls
from bench.imports import Imports
from bench.journals import LongJournal
from bench.loop import FirstRun, Iterations, StreamedTurns
from bench.mcp_calls import IdleServers, McpCalls, StartedServers
from bench.measure import QUICK, Bench, Counts, Row, run_rounds
from bench.memory import IndexedSearch, Near, Recall
from bench.peers import PEER_NAMES, Peer, beside_the_best
from bench.plugins import PluginCalls
from bench.processes import Processes
from bench.record import Chain, Redaction
from bench.recovery import Recovery
from bench.report import Machine, readme, table
from bench.streams import Arguments, Streams
from bench.threads import HandOff, SleepingTools
from bench.undo import UndoCosts
from bench.validation import Compiling, Validation
from bench.wrappers import WRAPPERS

GROUPS: dict[str, tuple[Callable[[], Bench], ...]] = {
    "calls": (SerialCalls, HookedCalls, ParallelCalls, WaitingCalls),
    "threads": (HandOff, SleepingTools),
    "validation": (Validation, Compiling),
    "processes": (Processes,),
    "plugins": (PluginCalls,),
    "mcp": (McpCalls,),
    "gateway": (GatewayCalls,),
    "gateway-http": (HttpGatewayCalls,),
    "record": (Chain, Redaction),
    "disks": (Disk, SlowDisk, DurableIterations),
    "journals": (LongJournal, Recovery),
    "streams": (Streams, Arguments),
    "undo": (UndoCosts,),
    "memory": (IndexedSearch, Recall, Near),
    "loop": (Iterations, StreamedTurns),
    "wrappers": WRAPPERS,
}
SLOW_GROUPS: dict[str, tuple[Callable[[], Bench], ...]] = {"servers": (StartedServers, IdleServers)}
"""Measured only if they are asked for with `--only`, because a round takes a minute."""
_README = Path(__file__).with_name("README.md")


def _arguments(given: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure callgate against the least that the job takes.")
    parser.add_argument("--quick", action="store_true", help="tiny counts: see that every row runs; the numbers mean nothing")
    parser.add_argument("--write", action="store_true", help="write bench/README.md")
    parser.add_argument("--rounds", type=int, help="how often every row is measured")
    parser.add_argument(
        "--only", default="", help=f"some groups, with commas between: {', '.join((*GROUPS, 'imports', 'peers', *SLOW_GROUPS))}"
    )
    parser.add_argument("--peers", metavar="PYTHON", default=sys.executable, help="the interpreter that has the peers; default: this one")
    return parser.parse_args(given)


async def measure(arguments: argparse.Namespace) -> None:
    counts = QUICK if arguments.quick else Counts()
    counts = replace(counts, rounds=arguments.rounds or counts.rounds, imports=arguments.rounds or counts.imports)
    chosen = set(arguments.only.split(",")) if arguments.only else {*GROUPS, "imports", "peers"}
    benches: list[Bench] = [make() for group, makers in (GROUPS | SLOW_GROUPS).items() if group in chosen for make in makers]
    peers = [Peer(name, arguments.peers) for name in PEER_NAMES] if "peers" in chosen else []
    proxies: list[Bench] = [FastMcpCalls(arguments.peers)] if "peers" in chosen else []
    imports: list[Bench] = [Imports(), FirstRun(arguments.peers)] if "imports" in chosen else []
    await run_rounds([*benches, *peers, *proxies], counts, counts.rounds, _say)
    await run_rounds(imports, counts, counts.imports, _say)
    rows: list[Row] = [row for bench in (*benches, *imports, *peers, *proxies) for row in bench.rows]
    rows += [beside_the_best(bench.one, peers) for bench in benches if isinstance(bench, Iterations)]
    if arguments.quick:
        for row in rows:
            row.most = None  # nothing is judged by numbers that mean nothing
    print(table(rows))
    if arguments.write:
        versions = [f"{peer.name} {peer.version}" for peer in peers if peer.version]
        _README.write_text(readme(rows, counts, versions, Machine.here()), encoding="utf-8")


def _say(what: str) -> None:
    print(what, end="\r", file=sys.stderr, flush=True)


if __name__ == "__main__":
    logging.getLogger("callgate").setLevel(logging.ERROR)
    asyncio.run(measure(_arguments(sys.argv[1:])))
