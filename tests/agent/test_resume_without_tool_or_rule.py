"""A waiting run is resumed where the tool of its call, or the rule that asked about it, is missing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import apsw
import pytest

from callgate import Scope, SqliteJournal, Tool, UsageError, inbox, tool
from callgate.agent import Agent
from callgate.protocols import Policy, ToolCatalogue, ToolServer
from tests.agent.scripted_model import Answer, Script, call, says
from tests.host_fakes import Asks

IN_RUN = Scope(run="case-7")
DOWN = "The server shop cannot be started: its program is missing."


class ShopServer:
    """A tool server with the tool `pay`, or one that cannot be started."""

    layer: Literal["mcp"] = "mcp"

    def __init__(self, *tools: Tool, name: str = "shop") -> None:
        self.name = name
        self._tools = tools

    async def start(self, catalogue: ToolCatalogue) -> None:
        if self._tools:
            catalogue.offer(self.name, self._tools)
        else:
            catalogue.withdraw(self.name, {"": DOWN})

    async def close(self) -> None:
        pass


class Case:
    """A run whose call of `pay` waits for a human."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "journal.db"
        self.paid: list[str] = []

        @tool
        async def pay(to: str) -> str:
            """Pay somebody."""
            self.paid.append(to)
            return f"paid {to}"

        self.pay: Tool = pay

    def agent(self, *answers: Answer, tools: Iterable[Tool | ToolServer], policies: Iterable[Policy] = (Asks("pay"),)) -> Agent:
        return Agent(Script(*answers), tools=list(tools), policies=list(policies), journal=SqliteJournal(self.path))

    async def waits(self, *tools: Tool | ToolServer) -> None:
        async with self.agent(says(call("pay", {"to": "ann"}, id="1")), tools=tools) as agent:
            assert (await agent.run("Pay ann.", scope=IN_RUN)).status == "waiting"


@pytest.mark.parametrize("answered", [True, False], ids=["approved", "not answered"])
async def test_a_run_is_not_resumed_without_the_tool_of_its_waiting_call(answered: bool, tmp_path: Path) -> None:
    """It would go on without the call, and the approval would be lost."""
    case = Case(tmp_path)
    await case.waits(case.pay)
    if answered:
        inbox.approve(case.path, "case-7/0/0", by="bob")
    async with case.agent(says("Never."), tools=[]) as agent:
        with pytest.raises(UsageError, match=r"^The call case-7/0/0 waits to run, but there is no tool 'pay' here\. Nothing was run\."):
            await agent.resume("case-7")
    async with case.agent(says("Paid."), tools=[case.pay]) as agent:
        assert (await agent.resume("case-7")).status == ("completed" if answered else "waiting")
    assert case.paid == (["ann"] if answered else [])


async def test_a_run_is_not_resumed_while_the_server_of_its_waiting_call_is_down(tmp_path: Path) -> None:
    case = Case(tmp_path)
    await case.waits(ShopServer(case.pay))
    inbox.approve(case.path, "case-7/0/0", by="bob")
    async with case.agent(says("Never."), tools=[ShopServer()]) as agent:
        with pytest.raises(UsageError, match=f"there is no tool 'pay' here. {DOWN} Nothing was run"):
            await agent.resume("case-7")
    async with case.agent(says("Paid."), tools=[ShopServer(case.pay)]) as agent:
        assert (await agent.resume("case-7")).status == "completed"
    assert case.paid == ["ann"]


async def test_a_run_is_resumed_without_the_tool_of_a_denied_call(tmp_path: Path) -> None:
    case = Case(tmp_path)
    await case.waits(case.pay)
    inbox.deny(case.path, "case-7/0/0", by="bob")
    async with case.agent(says("I see."), tools=[]) as agent:
        result = await agent.resume("case-7")
    assert (result.status, [one.code for one in result.results]) == ("completed", ["human_denied"])


async def test_a_resumed_call_that_no_policy_asks_about_any_more_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    case = Case(tmp_path)
    await case.waits(case.pay)
    async with case.agent(says("Paid."), tools=[case.pay], policies=[]) as agent:
        assert (await agent.resume("case-7")).status == "completed"
    warned = [record.getMessage() for record in caplog.records if "without an answer" in record.getMessage()]
    assert warned == ["case-7/0/1 runs pay without an answer to question case-7/0/0: no policy asks it now"]


async def test_an_approved_call_that_no_policy_asks_about_any_more_is_not_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    case = Case(tmp_path)
    await case.waits(case.pay)
    inbox.approve(case.path, "case-7/0/0", by="bob")
    async with case.agent(says("Paid."), tools=[case.pay], policies=[]) as agent:
        assert (await agent.resume("case-7")).status == "completed"
    assert "without an answer" not in caplog.text


class Interrupted(Case):
    """A run whose process ended during its call of `pay`."""

    async def is_cut(self) -> None:
        begun = asyncio.Event()

        @tool(effect="idempotent")
        async def pay(to: str) -> str:
            """Pay somebody."""
            begun.set()
            await asyncio.Event().wait()
            return f"paid {to}"

        written = self.path
        async with self.agent(says(call("pay", {"to": "ann"}, id="1")), tools=[ShopServer(pay)], policies=()) as agent:
            running = asyncio.ensure_future(agent.run("Pay ann.", scope=IN_RUN))
            await begun.wait()
            self.path = written.with_name("copy.db")
            connection = apsw.Connection(str(written))
            connection.execute("VACUUM INTO ?", (str(self.path),))
            connection.close()
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


def idempotent(case: Case) -> Tool:
    @tool(effect="idempotent")
    async def pay(to: str) -> str:
        """Pay somebody."""
        case.paid.append(to)
        return f"paid {to}"

    return pay


async def test_a_run_is_not_resumed_while_the_server_of_its_interrupted_call_is_down(tmp_path: Path) -> None:
    """The call would end as unknown, although it can run again as soon as the server does."""
    case = Interrupted(tmp_path)
    await case.is_cut()
    async with case.agent(says("Never."), tools=[ShopServer()], policies=()) as agent:
        with pytest.raises(
            UsageError, match=f"^The call case-7/0/0 has not ended, and its tool 'pay' is not there. {DOWN} Nothing was run"
        ):
            await agent.resume("case-7")
    async with case.agent(says("Paid."), tools=[ShopServer(idempotent(case))], policies=()) as agent:
        assert [one.text for one in (await agent.resume("case-7")).results] == ["paid ann"]
    assert case.paid == ["ann"]


async def test_a_run_is_resumed_if_the_tool_of_its_interrupted_call_was_removed(tmp_path: Path) -> None:
    case = Interrupted(tmp_path)
    await case.is_cut()
    async with case.agent(says("I see."), tools=[], policies=()) as agent:
        assert [one.status for one in (await agent.resume("case-7")).results] == ["unknown"]


async def test_an_interrupted_call_does_not_run_at_another_server_that_has_the_name_now(tmp_path: Path) -> None:
    case = Interrupted(tmp_path)
    await case.is_cut()
    async with case.agent(says("I see."), tools=[ShopServer(idempotent(case), name="bazaar")], policies=()) as agent:
        assert [one.status for one in (await agent.resume("case-7")).results] == ["unknown"]
    assert not case.paid
