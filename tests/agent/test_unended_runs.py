"""A new task in a run of the same name is refused while a call of the run can only be taken up by resuming it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path

import apsw
import pytest

from callgate import Engine, Scope, SqliteJournal, Tool, UsageError, tool
from callgate.agent import Agent
from callgate.protocols import Policy
from tests.agent.scripted_model import Answer, Script, call, says
from tests.host_fakes import Asks
from tests.waiting import until

CHAT = Scope(run="chat-ann")
PAYS = says(call("pay", {"to": "ann"}, id="1"))


class Shop:
    """A tool `pay`, whose first call hangs if the shop is slow."""

    def __init__(self, path: Path, *, slow: bool = False) -> None:
        self.path = path
        self.paid: list[str] = []
        self._slow = slow

    def agent(self, *answers: Answer, policies: Iterable[Policy] = ()) -> Agent:
        return Agent(Script(*answers), tools=[self._pay()], policies=list(policies), journal=SqliteJournal(self.path))

    def _pay(self) -> Tool:
        @tool
        async def pay(to: str) -> str:
            """Pay somebody."""
            self.paid.append(to)
            if self._slow:
                await asyncio.Event().wait()
            return f"paid {to}"

        return pay


def recorded(engine: Engine) -> list[int]:
    return [event.position for event in engine.journal.read(run=CHAT.run)]


@pytest.mark.parametrize("elsewhere", [False, True], ids=["same process", "another process"])
async def test_a_run_that_waits_for_a_human_takes_no_new_task(elsewhere: bool, tmp_path: Path) -> None:
    """The waiting call could never run: only the latest turn of a run can be resumed."""
    shop = Shop(tmp_path / "journal.db")
    agent = shop.agent(PAYS, says("Paid."), says("Yes."), policies=[Asks("pay")])
    waiting = await agent.run("Pay.", scope=CHAT)
    assert waiting.status == "waiting"
    if elsewhere:
        await agent.close()
        agent = shop.agent(says("Paid."), says("Yes."), policies=[Asks("pay")])
    async with agent:
        before = recorded(agent.engine)
        with pytest.raises(UsageError, match=r"Run 'chat-ann' has not ended: chat-ann/0/0 waits for a human\. Resume it with") as refused:
            await agent.run("And now?", scope=CHAT)
        assert refused.value.code == "run_not_ended"
        assert recorded(agent.engine) == before
        await agent.engine.answer("chat-ann/0/0", allow=True, by="bob")
        assert (await agent.resume(CHAT.run)).status == "completed"
        assert shop.paid == ["ann"]
        assert (await agent.run("Thanks.", scope=CHAT)).status == "completed"


async def test_a_run_whose_process_ended_during_a_call_takes_no_new_task(tmp_path: Path) -> None:
    shop, copy = Shop(tmp_path / "journal.db", slow=True), tmp_path / "copy.db"
    async with shop.agent(PAYS) as agent:
        running = asyncio.ensure_future(agent.run("Pay.", scope=CHAT))
        await until(lambda: shop.paid)
        _copy_journal(shop.path, copy)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    async with Shop(copy).agent(says("I see."), says("Hello.")) as agent:
        before = recorded(agent.engine)
        with pytest.raises(UsageError, match="Run 'chat-ann' has not ended: its process ended before the calls") as refused:
            await agent.run("And now?", scope=CHAT)
        assert refused.value.code == "run_not_ended"
        assert recorded(agent.engine) == before
        assert [one.status for one in (await agent.resume(CHAT.run)).results] == ["unknown"]
        assert (await agent.run("Hello.", scope=CHAT)).status == "completed"


async def test_a_run_that_was_cancelled_takes_a_new_task(tmp_path: Path) -> None:
    """A web server cancels a run when its client leaves; the calls have ended then."""
    shop = Shop(tmp_path / "journal.db", slow=True)
    async with shop.agent(PAYS, says("Hello.")) as agent:
        running = asyncio.ensure_future(agent.run("Pay.", scope=CHAT))
        await until(lambda: shop.paid)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert (await agent.run("Hello.", scope=CHAT)).status == "completed"


async def test_a_tool_may_run_an_agent_in_its_own_run_in_another_conversation(tmp_path: Path) -> None:
    inner = Script(says("Inner."))

    @tool(effect="none")
    async def ask() -> str:
        """Ask another agent."""
        return (await Agent(inner, engine).run("Think.", conversation="inner", scope=CHAT)).text

    async with Engine([ask], journal=SqliteJournal(tmp_path / "journal.db")) as engine:
        result = await Agent(Script(says(call("ask")), says("Done.")), engine).run("Ask.", scope=CHAT)
    assert [one.text for one in result.results] == ["Inner."]


def _copy_journal(source: Path, target: Path) -> None:
    """Copy the journal as another process finds it after the end of this one."""
    connection = apsw.Connection(str(source))
    connection.execute("VACUUM INTO ?", (str(target),))
    connection.close()
