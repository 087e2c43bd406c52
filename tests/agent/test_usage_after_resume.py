"""The usage and failures of a run: the same numbers if it runs without a break, waits for approvals, or is interrupted and resumed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from callgate import Engine, Scope, SqliteJournal, Tool, tool
from callgate.agent import Agent, Budget, RunResult, Settings, Spent
from callgate.agent.loop_settings import Prices
from callgate.models.model_events import Usage
from tests.agent.scripted_model import Answer, Script, call, says
from tests.host_fakes import Asks

USED = Usage(input_tokens=100, output_tokens=10, cached_tokens=40)
ANSWERS: list[Answer] = [
    says("First.", call("look", id="0"), usage=USED),
    says(
        "Then.",
        call("look", id="1"),
        call("pay", {"to": "ann"}, id="2", position=1),
        call("fail", id="3", position=2),
        call("pay", {"to": "bob"}, id="4", position=3),
        call("look", id="5", position=4),
        call("look", id="6", position=5),  # one more than the budget allows
        usage=USED,
    ),
    says("At last.", call("look", id="7"), usage=USED),
    says("Done.", usage=USED),
]
SETTINGS = Settings(budget=Budget(calls_per_message=5), prices=Prices(input=1.0, output=2.0))


class ReopenableEngine:
    """Tools, and an engine over one file that can be closed and opened again."""

    def __init__(self, path: Path, *asks: str) -> None:
        path.mkdir(exist_ok=True)
        self.path, self.asks = path / "journal.db", asks
        self.paid: list[str] = []
        self.reached, self.hangs = asyncio.Event(), False
        self.model = Script(*ANSWERS)
        self._open()

    def _open(self) -> None:
        policies = [Asks(*self.asks)] if self.asks else []
        self.engine = Engine(self._tools(), policies=policies, journal=SqliteJournal(self.path))
        self.agent = Agent(self.model, self.engine, settings=SETTINGS, stuck=None)

    async def elsewhere(self) -> None:
        await self.engine.close()
        self._open()
        await self.engine.runs.open(Scope(run="till"))

    def _tools(self) -> list[Tool]:
        @tool(effect="once")
        async def pay(to: str) -> str:
            """Pay somebody."""
            self.paid.append(to)
            if self.hangs:
                self.reached.set()
                await asyncio.Event().wait()
            return f"paid {to}"

        @tool(effect="none")
        async def look() -> str:
            """Look."""
            return "saw it"

        @tool(effect="none")
        async def fail() -> str:
            """Fail."""
            raise ValueError("broken")

        return [pay, look, fail]

    async def run(self) -> RunResult:
        return await self.agent.run("Go.", scope=Scope(run="till"), conversation="c")


def counts(spent: Spent) -> dict[str, Any]:
    """Return all counts except the time."""
    fields = {name: getattr(spent, name) for name in spent.__struct_fields__ if name != "wall_s"}
    return fields | {"cost": round(spent.cost, 9)}


async def uninterrupted_run(path: Path) -> RunResult:
    till = ReopenableEngine(path)
    result = await till.run()
    await till.engine.close()
    assert (result.status, till.paid) == ("completed", ["ann", "bob"])
    return result


@pytest.mark.parametrize("elsewhere", [False, True], ids=["here", "in another process"])
@pytest.mark.parametrize("order", [[[0, 1]], [[0], [1]], [[1], [0]], [[], [0], [], [1]]], ids=str)
async def test_a_run_that_waited_for_approval_reports_the_usage_of_an_uninterrupted_run(
    order: list[list[int]], elsewhere: bool, tmp_path: Path
) -> None:
    wanted = await uninterrupted_run(tmp_path / "whole")
    till = ReopenableEngine(tmp_path, "pay")
    at = waiting = await till.run()
    for answers in order:
        assert counts(at.spent) == counts(replace(wanted.spent, iterations=2, passes=2, calls=6, input_tokens=200, output_tokens=20,
                                                  cached_tokens=80, cost=wanted.spent.cost / 2))  # fmt: skip
        if elsewhere:
            await till.elsewhere()
        assert waiting.pending is not None
        for one in answers:
            await till.engine.answer(waiting.pending.approvals[one].approval_id, allow=True)
        at = await till.agent.resume("till" if elsewhere else at)
    assert (at.status, sorted(till.paid)) == ("completed", ["ann", "bob"])
    assert counts(at.spent) == counts(wanted.spent)
    assert [(one.id, one.status, one.code) for one in at.results] == [(one.id, one.status, one.code) for one in wanted.results]
    await till.engine.close()


@pytest.mark.parametrize("elsewhere", [False, True], ids=["here", "in another process"])
async def test_a_call_denied_by_a_human_is_counted_once_and_as_failed(elsewhere: bool, tmp_path: Path) -> None:
    wanted = await uninterrupted_run(tmp_path / "whole")
    till = ReopenableEngine(tmp_path, "pay")
    waiting = await till.run()
    if elsewhere:
        await till.elsewhere()
    assert waiting.pending is not None
    for approval in waiting.pending.approvals:
        await till.engine.answer(approval.approval_id, allow=False)
    result = await till.agent.resume("till" if elsewhere else waiting)
    assert (result.status, till.paid, counts(result.spent)) == ("completed", [], counts(wanted.spent))
    assert [one.id for one in result.results if not one.success] == ["2", "3", "4", "6"]
    await till.engine.close()


@pytest.mark.parametrize("asks", [(), ("pay",)], ids=["before anybody was asked", "while it went on after an answer"])
async def test_an_interrupted_run_counts_each_call_once_after_resume(asks: tuple[str, ...], tmp_path: Path) -> None:
    """The run is interrupted in a message of several calls. The call that had started is unknown, and still counts once."""
    wanted = await uninterrupted_run(tmp_path / "whole")
    till = ReopenableEngine(tmp_path, *asks)
    till.hangs = True
    running = asyncio.ensure_future(till.run())
    if asks:
        waiting = await running
        assert waiting.pending is not None
        for approval in waiting.pending.approvals:
            await till.engine.answer(approval.approval_id, allow=True)
        running = asyncio.ensure_future(till.agent.resume(waiting))
    await till.reached.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    till.hangs = False
    await till.elsewhere()
    result = await till.agent.resume("till")
    assert result.status == "completed"
    assert counts(result.spent) == counts(wanted.spent)
    assert sorted(one.id for one in result.results) == [one.id for one in wanted.results]
    await till.engine.close()
