"""The list of demonstrations, and the function that runs one and shows whether its claims hold."""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from msgspec import Struct
from rich.console import Console

from callgate._call_summary import CallSummary
from callgate.demo._checks import Finding
from callgate.demo._concurrent_calls import side_by_side
from callgate.demo._demo_run import DemoRun, calls_in
from callgate.demo._early_started_reads import early
from callgate.demo._large_results import large
from callgate.demo._message_cut_off import cut_off
from callgate.demo._replay import replay
from callgate.demo._stoppable_tools import stop
from callgate.demo._undo import undo
from callgate.demo._user_folder import read_folder
from callgate.demo.crash import crash
from callgate.demo.eras import eras
from callgate.demo.repair import repair
from callgate.errors import UsageError

__all__ = ["DEMOS", "Demo", "Outcome", "run_demo"]


class Demo(Struct, frozen=True):
    title: str
    prove: Callable[[DemoRun], Awaitable[list[Finding]]] | None
    """Runs the demonstration and returns its findings. None for the demonstration that needs a folder."""
    tables: bool = True
    """Whether to show a table and a timeline of its calls."""


DEMOS: dict[str, Demo] = {
    "repair": Demo("An agent repairs a small repository, while calls fail, hang and are denied", repair),
    "stop": Demo("A tool can be stopped: exits, crashes and endless C loops harm nothing else", stop),
    "crash": Demo("Kill -9 at any moment: each effect happens once or is reported as unknown, never twice", crash, tables=False),
    "cut-off": Demo("Cut-off JSON never runs; lossless conversions are accepted and noted; true is not an integer", cut_off),
    "early": Demo("A read starts while the model still streams the rest of its message", early),
    "side-by-side": Demo("Calls of one message run in parallel where that is safe, and only there", side_by_side),
    "large": Demo("A result of a megabyte costs a small prompt and loses nothing", large),
    "undo": Demo("Every file write can be undone, exactly, or the undo refuses and says why", undo),
    "replay": Demo("Any log is a test: replay it, swap the policy or the model, and see what would have changed", replay),
    "eras": Demo("Old and new MCP clients and servers meet through the gateway, and nothing is lost on the way", eras),
    "folder": Demo("The read-only part on a folder of your own: callgate demo --dir PATH", None),
}


class Outcome(Struct, frozen=True, kw_only=True):
    """The result of a demonstration."""

    name: str
    root: Path
    journal: Path
    ledger: Path
    calls: list[CallSummary]
    problems: list[str]
    """The claims that did not hold; empty for a success."""
    proven: list[str]


def run_demo(name: str, *, folder: Path | None = None, screen: Console | None = None) -> Outcome:
    """Run one demonstration to its end.

    Args:
        name: A key of `DEMOS`.
        folder: The folder for the demonstration `folder`.
        screen: The console to show it on; None shows nothing.

    Raises:
        UsageError: There is no such demonstration, or its folder is missing.
    """
    demo = DEMOS.get(name)
    if demo is None:
        raise UsageError(f"There is no demonstration '{name[:40]}'. The demonstrations are: {', '.join(DEMOS)}.")
    prove = demo.prove or (partial(read_folder, folder=folder) if folder is not None else None)
    if prove is None:
        raise UsageError("The demonstration 'folder' needs one: callgate demo --dir PATH.")
    stage = DemoRun(name, screen)
    stage.screen.title(demo.title)
    findings = asyncio.run(_proven(prove, stage))
    outcome = _outcome(stage, findings)
    _show(stage, outcome, findings)
    return outcome


async def _proven(prove: Callable[[DemoRun], Awaitable[list[Finding]]], stage: DemoRun) -> list[Finding]:
    return await prove(stage)


def _outcome(stage: DemoRun, findings: list[Finding]) -> Outcome:
    return Outcome(
        name=stage.name,
        root=stage.root,
        journal=stage.journal,
        ledger=stage.ledger.path,
        calls=calls_in(stage.journal),
        problems=[str(one) for one in findings if not one.holds],
        proven=[str(one) for one in findings if one.holds],
    )


def _show(stage: DemoRun, outcome: Outcome, findings: list[Finding]) -> None:
    screen = stage.screen
    if DEMOS[stage.name].tables:
        screen.table(outcome.calls)
        screen.timeline(outcome.calls)
    screen.findings(findings)
    command, journal = _command(), f"--journal {outcome.journal}"
    lines = [
        ("journal", str(outcome.journal)),
        ("ledger", f"{outcome.ledger}" if outcome.ledger.exists() else "nothing had an effect"),
        ("look", f"{command} log list {journal}"),
    ]
    if outcome.calls:
        lines.append(("", f"{command} log show {_odd(outcome.calls)} {journal}"))
    screen.where([*lines, ("", f"{command} log verify {journal}")])


def _command() -> str:
    """Return how the command is called here: by its path if it is not in PATH, as in a virtual environment that is not activated."""
    beside = Path(sys.executable).with_name("callgate")
    return str(beside) if shutil.which("callgate") is None and beside.exists() else "callgate"


def _odd(calls: list[CallSummary]) -> str:
    """Return the id of the first call that is not ok, or of the last call if all are ok.

    The id is short if the short form is unique.
    """
    odd = next((call for call in calls if call.status != "ok"), calls[-1])
    return odd.short if sum(call.short == odd.short for call in calls) == 1 else odd.uid
