"""A stop reaches the agents that a tool of the stopped turn runs: they start nothing else."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from callgate import Engine, Scope, Tool, tool
from callgate.agent import Agent, RunResult
from tests.agent.scripted_model import Script, call, says

WORKER = (says(call("pay", {"to": "ann"}, id="1")), says(call("pay", {"to": "bob"}, id="2")), says("Paid."))


class Office:
    """A main agent whose tool `delegate` runs a worker, which pays twice. The first payment ends when the test lets it."""

    def __init__(self, *, own_engine: bool) -> None:
        self.paid: list[str] = []
        self.paying, self.may_end = asyncio.Event(), asyncio.Event()
        self.worked: list[RunResult] = []
        self.engine = Engine([*self._tools()])
        options: dict[str, Any] = {"tools": self._tools()} if own_engine else {"engine": self.engine}
        self.worker = Agent(Script(*WORKER), **options)
        self.main = Agent(Script(says(call("delegate")), says("Done."), says("Again.")), self.engine)

    def _tools(self) -> list[Tool]:
        @tool
        async def pay(to: str) -> str:
            """Pay somebody."""
            self.paid.append(to)
            self.paying.set()
            await self.may_end.wait()
            return f"paid {to}"

        @tool
        async def delegate() -> str:
            """Let the worker pay."""
            self.worked.append(await self.worker.run("Pay.", scope=Scope(principal="ann")))
            return self.worked[-1].text

        return [pay, delegate]


@pytest.mark.parametrize("own_engine", [False, True], ids=["same engine", "engine of its own"])
async def test_a_stop_reaches_the_worker_that_a_tool_runs(own_engine: bool) -> None:
    office = Office(own_engine=own_engine)
    async with office.engine, office.worker:
        running = asyncio.ensure_future(office.main.run("Delegate.", conversation="c"))
        await office.paying.wait()
        assert office.main.stop("c", "enough")
        office.may_end.set()
        result = await running
        assert office.paid == ["ann"]
        (worked,) = office.worked
        assert (worked.turn_status, [one.text for one in worked.results]) == ("stopped_by_user", ["paid ann"])
        assert result.turn_status == "stopped_by_user"
        assert (await office.main.run("Go on.", conversation="c")).text == "Done."


@pytest.mark.parametrize("end", ["stop", "kill"])
async def test_a_stop_from_a_thread_without_an_event_loop_reaches_the_worker(end: str) -> None:
    office = Office(own_engine=False)
    async with office.engine:
        running = asyncio.ensure_future(office.main.run("Delegate.", conversation="c"))
        await office.paying.wait()
        assert await asyncio.to_thread(getattr(office.main, end), "c", "enough")
        office.may_end.set()
        await running
        assert office.paid == ["ann"]


async def test_a_worker_whose_outer_turn_is_not_stopped_ends_its_work() -> None:
    office = Office(own_engine=False)
    office.may_end.set()
    async with office.engine:
        result = await office.main.run("Delegate.", conversation="c")
    assert (office.paid, office.worked[0].text, result.text) == (["ann", "bob"], "Paid.", "Done.")
