"""Closing an agent ends its runs: none of their calls starts after `close` has returned."""

from __future__ import annotations

import asyncio

import pytest

from callgate import Engine
from callgate.agent import Agent
from callgate.errors import UsageError
from callgate.tools import tool
from tests.agent.scripted_model import Script, call, says


class Bank:
    """Two tools: `look` takes long, `pay` has an effect."""

    def __init__(self) -> None:
        self.looking, self.done = asyncio.Event(), list[str]()

    def tools(self) -> list[object]:
        @tool(effect="none")
        async def look() -> str:
            """Look."""
            self.looking.set()
            await asyncio.sleep(3_600)
            return "seen"

        @tool(effect="once")
        async def pay() -> str:
            """Pay."""
            self.done.append("paid")
            return "paid"

        return [look, pay]


def script() -> Script:
    return Script(says(call("look", id="a")), says(call("pay", id="b")), says("Done."))


@pytest.mark.parametrize("own", [True, False], ids=["its own engine", "a shared engine"])
async def test_close_ends_the_runs_of_an_agent(own: bool) -> None:
    """The run's result says that the agent was closed, and the next call, which has an effect, does not start."""
    bank, engine = Bank(), Engine(tools=[])
    agent = Agent(script(), tools=bank.tools()) if own else Agent(script(), _with(engine, bank))  # type: ignore[arg-type]
    running = asyncio.ensure_future(agent.run("Do it."))
    await bank.looking.wait()
    await agent.close()
    assert running.done()
    result = await running
    assert (result.status, result.reason) == ("stopped", "the agent was closed")
    assert bank.done == []
    await engine.close()


def _with(engine: Engine, bank: Bank) -> Engine:
    for one in bank.tools():
        engine.tools.register(one)  # type: ignore[arg-type]
    return engine


async def test_close_prevents_a_queued_run_from_starting() -> None:
    bank = Bank()
    agent = Agent(script(), tools=bank.tools())  # type: ignore[arg-type]
    first = asyncio.ensure_future(agent.run("Do it.", conversation="c"))
    await bank.looking.wait()
    second = asyncio.ensure_future(agent.run("And this.", conversation="c"))
    await asyncio.sleep(0)
    await agent.close()
    assert first.done()
    assert (await second).status != "completed"
    assert bank.done == []


async def test_a_closed_agent_refuses_a_run() -> None:
    async with Engine() as engine:
        agent = Agent(Script(says("Never.")), engine)
        await agent.close()
        with pytest.raises(UsageError, match="closed"):
            await agent.run("Do it.")


async def test_closing_one_agent_leaves_other_agents_of_its_engine_usable() -> None:
    bank = Bank()
    async with Engine() as engine:
        agent, other = Agent(script(), _with(engine, bank)), Agent(Script(says("Still here.")), engine)
        running = asyncio.ensure_future(agent.run("Do it."))
        await bank.looking.wait()
        await agent.close()
        await running
        assert (await other.run("And you?")).text == "Still here."
