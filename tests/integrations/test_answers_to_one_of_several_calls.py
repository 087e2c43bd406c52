"""Another process answers the question about one call of a message; the framework answers those about all of them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from agents import Runner, RunState, function_tool

from callgate import Ask, Engine, SqliteJournal, inbox
from callgate.integrations import import_tools
from tests.integrations.contract import Call, WrittenPolicy
from tests.integrations.test_openai_agents_contract import QUIET, agent_of, told_in


@pytest.mark.parametrize(
    ("answers", "paid"),
    [([{"amount": "many"}], [6]), ([{"amount": "many"}, {"amount": 7}], [7, 6]), ([{"amount": 8}, {"amount": 7}], [7, 6])],
)
async def test_an_answer_of_another_process_counts_for_the_call_that_it_names(
    answers: list[dict[str, Any]], paid: list[int], tmp_path: Path
) -> None:
    made = []

    @function_tool
    async def pay(amount: int) -> str:
        """Pay somebody."""
        made.append(amount)
        return f"{amount} paid"

    def engine_on_disk() -> Engine:
        policy = WrittenPolicy({"pay": Ask(question="Pay?", rule="ask")})
        return Engine(import_tools([pay]), policies=[policy], journal=SqliteJournal(tmp_path / "calls.db"))

    async with engine_on_disk() as engine:
        agent = agent_of(engine, [pay], [Call("pay", {"amount": 5}, "c1"), Call("pay", {"amount": 6}, "c2")])
        saved = (await Runner.run(agent, "go", run_config=QUIET)).to_state().to_json()
        asked = next(event.call for event in engine.journal.read() if event.kind == "call.suspended")
    for arguments in answers:
        await asyncio.to_thread(inbox.approve, tmp_path / "calls.db", asked, by="ann", arguments=arguments)
    async with engine_on_disk() as engine:
        agent = agent_of(engine, [pay], "done")
        state = await RunState.from_json(agent, saved)
        for item in state.get_interruptions():
            state.approve(item)
        told = told_in(await Runner.run(agent, state, run_config=QUIET))
    assert sorted(made) == sorted(paid)
    assert told["c2"].text == "6 paid"
    assert ("ann could not be used" in told["c1"].text) == (len(answers) == 1)
