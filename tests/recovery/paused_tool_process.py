"""A process whose tool pauses before it pays, so that a test can take over its run.

Its arguments are JOURNAL FOLDER RUNNER LEASE_S AGENT; AGENT is empty if no agent makes the call. The tool creates FOLDER/here, waits until
FOLDER/go exists, and pays by writing a line to FOLDER/paid. Its `verify` reads that file.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from callgate import Engine, PostgresJournal, RawCall, Scope, SqliteJournal, Tool, ToolResult, Verified, tool
from callgate.agent import Agent
from tests.agent.scripted_model import Script, call, says
from tests.effect_ledger import Ledger
from tests.forked_python import ChildProcess, child_process
from tests.waiting import soon

__all__ = ["RUN", "engine_over", "handed_in", "paying_late"]

RUN = "the-run"


def was_paid(arguments: dict[str, Any], key: str) -> Verified:
    return Verified(happened=bool(Ledger(Path(arguments["folder"]) / "paid").lines()), result="paid")


def _pay(folder: str) -> str:
    place = Path(folder)
    (place / "here").touch()
    while not (place / "go").exists():
        time.sleep(0.005)
    Ledger(place / "paid").write("paid")
    return "paid"


@tool(name="pay", runner="process", verify=was_paid)
def pay_in_process(folder: str) -> str:
    """Pay once FOLDER/go exists."""
    return _pay(folder)


@tool(name="pay", runner="thread", verify=was_paid)
def pay_in_thread(folder: str) -> str:
    """Pay once FOLDER/go exists."""
    return _pay(folder)


@tool(name="pay", verify=was_paid)
async def pay_inline(folder: str) -> str:
    """Pay once FOLDER/go exists."""
    return await asyncio.to_thread(_pay, folder)


TOOLS: dict[str, Tool] = {"process": pay_in_process, "thread": pay_in_thread, "inline": pay_inline}


def engine_over(place: str, runner: str, lease_s: float, **settings: Any) -> Engine:
    journal = PostgresJournal(place, lease_s=lease_s) if "://" in place else SqliteJournal(place, lease_s=lease_s)
    return Engine([TOOLS[runner]], journal=journal, **{"timeout_s": 30, **settings})


async def handed_in(engine: Engine, folder: Path, id: str) -> ToolResult:
    outcome = await engine.call(RawCall(id=id, name="pay", arguments={"folder": str(folder)}), Scope(run=RUN))
    assert hasattr(outcome, "result")
    result = outcome.result
    assert isinstance(result, ToolResult)
    return result


@contextmanager
def paying_late(place: str, folder: Path, runner: str, lease_s: float, *, by_agent: bool = False) -> Iterator[ChildProcess]:
    """Provide such a process, which ends with the block."""
    words = [place, str(folder), runner, str(lease_s), "agent" * by_agent]
    with child_process("tests.recovery.paused_tool_process", *words) as process:
        yield process


def main(words: list[str]) -> None:
    place, folder, runner, lease_s, by_agent = words

    async def work() -> None:
        async with engine_over(place, runner, float(lease_s)) as engine:
            if by_agent:
                model = Script(says(call("pay", {"folder": folder}, id="c1")), says("Done."))
                await Agent(model, engine).run("Pay.", scope=Scope(run=RUN))
            else:
                await handed_in(engine, Path(folder), "c1")

    asyncio.run(work())
    if runner == "thread" and (Path(folder) / "go").exists():  # its thread goes on as long as this process
        asyncio.run(soon(Ledger(Path(folder) / "paid").lines))
