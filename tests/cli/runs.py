"""Runs at a terminal: started, waiting for approval, ended, and their payments."""

from __future__ import annotations

import asyncio
import json
from asyncio.subprocess import DEVNULL, Process
from pathlib import Path
from typing import Any

from callgate.testing import Call, Item, ScriptedServer
from tests.cli.command_process import CommandProcess, start_command
from tests.cli.shell import Ended, shell

__all__ = ["CRM", "DONE", "PAYS", "begun_run", "ended", "paid", "told", "waiting_run"]

CRM = ("--tools", "crm.py")
PAYS: list[Item] = ["I pay.", Call("refund", {"order": "A7", "cents": 12})]
DONE: list[Item] = ["Done."]


async def ended(folder: Path, *words: str) -> Ended:
    return await asyncio.to_thread(shell, folder, *words)


def paid(folder: Path) -> list[str]:
    ledger = folder / "paid.txt"
    return ledger.read_text().splitlines() if ledger.exists() else []


def told(done: Ended, event: str) -> dict[str, Any]:
    (found,) = (line for line in done.lines if line["event"] == event)
    return dict(found)


async def waiting_run(folder: Path, server: ScriptedServer) -> dict[str, Any]:
    """Run until a payment needs approval, without a terminal to ask at; return the `run_ended` event."""
    done = await ended(folder, "run", "Pay.", "--model", "any", "--base-url", server.url, *CRM, "--json")
    assert done.code == 4
    return told(done, "run_ended")


async def begun_run(folder: Path, server: ScriptedServer, task: str) -> tuple[Process | CommandProcess, str]:
    """Start a run in a process of its own; return once a tool reports progress, with the process and the run's id."""
    words = ("run", task, "--model", "any", "--base-url", server.url, *CRM, "--yes", "--json")
    process = await start_command(folder, *words, stderr=DEVNULL)
    assert process.stdout is not None
    run = ""
    while (line := json.loads(await process.stdout.readline()))["event"] != "call_progress":
        run = line.get("run", run)
    return process, run
