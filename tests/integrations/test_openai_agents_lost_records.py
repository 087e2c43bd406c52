"""A `RunState` of the OpenAI Agents SDK is run again in another process whose engine has no record of the first: the log says so."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from agents import Runner, RunState, function_tool

from callgate import Engine, MemoryJournal, SqliteJournal
from callgate.integrations import import_tools
from tests.integrations.contract import Call
from tests.integrations.test_openai_agents_contract import QUIET, agent_of, told_in
from tests.recovery.child_process import child_process
from tests.waiting import COMMAND_S


def refunds(folder: Path, *, dies: bool) -> Any:
    async def refund(order: str) -> str:
        """Refund an order."""
        with (folder / "ledger").open("a") as ledger:
            ledger.write(f"{order}\n")
        if dies:
            os.kill(os.getpid(), signal.SIGKILL)
        return f"{order} refunded"

    return function_tool(refund, needs_approval=True)


async def run_saved(folder: Path, engine: Engine, tool: Any) -> str:
    """Run the saved state with a yes, and return what the model reads."""
    agent = agent_of(engine, [tool], "done")
    state = await RunState.from_string(agent, (folder / "state.json").read_text(encoding="utf-8"))
    state.approve(state.get_interruptions()[0])
    return told_in(await Runner.run(agent, state, run_config=QUIET))["c1"].text


async def save_state(folder: Path, engine: Engine, tool: Any) -> None:
    agent = agent_of(engine, [tool], [Call("refund", {"order": "A7"})], "done")
    (folder / "state.json").write_text((await Runner.run(agent, "go", run_config=QUIET)).to_state().to_string(), encoding="utf-8")


def engine_with(tool: Any, journal: Any, effect: Any = "once") -> Engine:
    return Engine(import_tools([tool], options={"refund": {"effect": effect}}), journal=journal)


async def die_within_the_tool(folder: Path, where: str) -> None:
    tool = refunds(folder, dies=True)
    async with engine_with(tool, journal_in(folder, where)()) as engine:
        await save_state(folder, engine, tool)
        await run_saved(folder, engine, tool)


def main(words: list[str]) -> None:
    asyncio.run(die_within_the_tool(Path(words[0]), words[1]))


def journal_in(folder: Path, where: str) -> Callable[[], Any]:
    return MemoryJournal if where == "memory" else lambda: SqliteJournal(folder / "calls.db")


def warned(log: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in log.records if "RunState" in one.getMessage()]


@pytest.mark.slow
@pytest.mark.parametrize(("where", "times", "payments"), [("memory", 1, 2), ("file", 0, 1)])
async def test_the_log_says_that_a_call_of_a_killed_process_is_made_again_only_if_its_record_is_lost(
    caplog: pytest.LogCaptureFixture, tmp_path: Path, where: str, times: int, payments: int
) -> None:
    caplog.set_level(logging.WARNING, "callgate")
    with child_process(__name__, str(tmp_path), where) as process:
        await asyncio.to_thread(process.communicate, timeout=COMMAND_S)
    assert process.returncode == -signal.SIGKILL
    tool = refunds(tmp_path, dies=False)
    async with engine_with(tool, journal_in(tmp_path, where)()) as engine:
        await run_saved(tmp_path, engine, tool)
    assert len(warned(caplog)) == times
    assert all("of refund is from another process" in one and "SqliteJournal('calls.db')" in one for one in warned(caplog))
    assert len((tmp_path / "ledger").read_text().splitlines()) == payments


async def test_nothing_is_said_of_a_state_of_this_process(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    caplog.set_level(logging.WARNING, "callgate")
    tool = refunds(tmp_path, dies=False)
    async with engine_with(tool, MemoryJournal()) as engine:
        await save_state(tmp_path, engine, tool)
        assert await run_saved(tmp_path, engine, tool) == "A7 refunded"
    assert not warned(caplog)
