"""A rejection of a call that was started before, as by a second click on an older page: the model reads what became of the call."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from agents import Agent, Runner, RunState, function_tool

from callgate import Ask, Engine, NotDone, Scope, SqliteJournal
from callgate.integrations import import_tools
from callgate.integrations.openai_agents import callgate_tools
from tests.integrations.contract import Call, WrittenPolicy
from tests.integrations.test_openai_agents_contract import QUIET, agent_of, told_in

TOO_LATE = "The denial came too late: pay was started before"


class Payments:
    """An agent that pays once a human has approved it. Each run of its saved state is in an engine of its own."""

    def __init__(self, folder: Path, *, asks_itself: bool = False) -> None:
        self.made: list[int] = []
        self.fails: Exception | None = None
        self._file = folder / "calls.db"
        self._asks_itself = asks_itself
        self.saved: dict[str, Any] = {}
        self.redactor: Any = None

    def engine(self) -> Engine:
        policies = [] if self._asks_itself else [WrittenPolicy({"pay": Ask(question="Pay it?", rule="ask")})]
        return Engine(import_tools([self._tool()]), policies=policies, journal=SqliteJournal(self._file), redactor=self.redactor)

    def agent(self, engine: Engine) -> Agent[Any]:
        return agent_of(engine, [self._tool()], [Call("pay", {"amount": 5})], "done", "done")

    async def ask(self, agent: Agent[Any]) -> None:
        self.saved = (await Runner.run(agent, "go", run_config=QUIET)).to_state().to_json()

    async def resume(self, agent: Agent[Any], *, allow: bool, reason: str | None = "never") -> str:
        state = await RunState.from_json(agent, self.saved)
        (item,) = state.get_interruptions()
        if allow:
            state.approve(item)
        else:
            state.reject(item, rejection_message=reason)
        return told_in(await Runner.run(agent, state, run_config=QUIET))["c1"].text

    def _tool(self) -> Any:
        async def pay(amount: int) -> str:
            """Pay an amount."""
            if self.fails is not None:
                raise self.fails
            self.made.append(amount)
            return f"{amount} paid"

        return function_tool(pay, needs_approval=self._asks_itself)


@pytest.mark.parametrize("asks_itself", [False, True], ids=["a rule asks", "the tool needs approval"])
@pytest.mark.parametrize("reason", ["never", None])
async def test_a_rejection_after_the_payment_says_that_it_was_paid_each_time(tmp_path: Path, asks_itself: bool, reason: str | None) -> None:
    payments = Payments(tmp_path, asks_itself=asks_itself)
    async with payments.engine() as engine:
        agent = payments.agent(engine)
        await payments.ask(agent)
        await payments.resume(agent, allow=True)
        for _ in range(2):
            told = await payments.resume(payments.agent(engine), allow=False, reason=reason)
            assert told.startswith(reason or TOO_LATE)
            assert TOO_LATE in told
            assert told.endswith("and has succeeded. Its result:\n5 paid")
        assert await payments.resume(payments.agent(engine), allow=True) == "5 paid"
    assert payments.made == [5]


@pytest.mark.parametrize("asks_itself", [False, True], ids=["a rule asks", "the tool needs approval"])
async def test_a_rejection_in_another_process_than_the_payment_says_that_it_was_paid(tmp_path: Path, asks_itself: bool) -> None:
    payments = Payments(tmp_path, asks_itself=asks_itself)
    async with payments.engine() as engine:
        agent = payments.agent(engine)
        await payments.ask(agent)
        await payments.resume(agent, allow=True)
    async with payments.engine() as engine:
        assert TOO_LATE in await payments.resume(payments.agent(engine), allow=False)


@pytest.mark.parametrize("failure", [None, NotDone("the bank is closed")], ids=["not started", "not done"])
async def test_a_rejection_of_a_call_that_has_had_no_effect_is_told_alone(tmp_path: Path, failure: Exception | None) -> None:
    payments = Payments(tmp_path)
    payments.fails = failure
    async with payments.engine() as engine:
        agent = payments.agent(engine)
        await payments.ask(agent)
        if failure is not None:
            await payments.resume(agent, allow=True)
        assert await payments.resume(payments.agent(engine), allow=False) == "never"
    assert payments.made == []


class HidingIds:
    """Redacts what looks like a key: the SDK's id of a run, too."""

    def redact(self, text: bytes) -> bytes:
        return re.sub(rb"[0-9a-f]{32}", b"[key]", text)


async def test_a_rejection_says_that_it_was_paid_also_if_a_redactor_hides_the_id_of_the_run(tmp_path: Path) -> None:
    payments = Payments(tmp_path)
    payments.redactor = HidingIds()
    async with payments.engine() as engine:
        agent = payments.agent(engine)
        await payments.ask(agent)
        await payments.resume(agent, allow=True)
        assert TOO_LATE in await payments.resume(payments.agent(engine), allow=False)


async def test_the_rejection_of_a_call_is_told_for_that_call_also_if_another_tool_is_listed_first(tmp_path: Path) -> None:
    payments = Payments(tmp_path)

    @function_tool
    async def look(item: str) -> str:
        """Look at an item."""
        return item

    async with payments.engine() as engine:
        agent = payments.agent(engine)
        agent.tools = callgate_tools([look, payments._tool()], engine)
        await payments.ask(agent)
        await payments.resume(agent, allow=True)
        assert TOO_LATE in await payments.resume(agent, allow=False)


async def test_a_rejection_tells_of_no_other_run_whose_call_has_the_same_id(tmp_path: Path) -> None:
    payments = Payments(tmp_path)
    async with payments.engine() as engine:
        agents = [payments.agent(engine) for _ in range(2)]
        tools = callgate_tools([payments._tool()], engine, scope=Scope(run="case-7"))
        for agent in agents:
            agent.tools = list(tools)
        await payments.ask(agents[0])
        other = payments.saved
        await payments.ask(agents[1])
        await payments.resume(agents[1], allow=True)
        payments.saved = other
        assert await payments.resume(agents[0], allow=False) == "never"
    assert payments.made == [5]
