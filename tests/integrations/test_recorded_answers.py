"""Runs of Pydantic AI that go on with the answers that the engine's journal has, and with the developer's own to other questions."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter
from pydantic_ai.tools import Tool

from callgate import Ask, Engine, SqliteJournal, UsageError
from callgate.integrations.pydantic_ai import CallgateCapability, recorded_answers
from tests.integrations.contract import Call, WrittenPolicy
from tests.integrations.test_pydantic_ai_contract import scripted, told_in

_ran: list[str] = []


@pytest.fixture(autouse=True)
def _none_ran() -> None:
    _ran.clear()


def pay(order: str) -> str:
    """Pay an order."""
    _ran.append(order)
    return f"{order} paid"


def refund(order: str) -> str:
    """Refund an order."""
    _ran.append(order)
    return f"{order} refunded"


def look() -> str:
    """Look."""
    _ran.append("look")
    return "seen"


def _stored(result: Any) -> list[ModelMessage]:
    """Return the messages of a run as another process reads them."""
    return ModelMessagesTypeAdapter.validate_json(result.all_messages_json())


def _agent(engine: Engine) -> Agent[None, Any]:
    tools = [Tool(pay, requires_approval=True), Tool(refund)]
    model = scripted([Call("pay", {"order": "A7"}, id="c1"), Call("refund", {"order": "B8"}, id="c2")], "done")
    return Agent(model, tools=tools, capabilities=[CallgateCapability(engine)], output_type=[str, DeferredToolRequests])


def _engine() -> Engine:
    return Engine(policies=[WrittenPolicy({"refund": Ask(question="Refund it?", rule="ask")})])


_NO_JOURNAL = r"pay asks by its own requires_approval, which no journal answers: give True or ToolDenied for c1\."


async def test_a_call_that_pydantic_ai_asks_about_is_refused_with_what_to_give_because_no_journal_answers_it() -> None:
    async with _engine() as engine:
        first = await _agent(engine).run("go")
        with pytest.raises(UsageError, match=_NO_JOURNAL):
            recorded_answers(first.output)
        by_id = await _agent(engine).run(message_history=first.all_messages(), deferred_tool_results=recorded_answers(["c1", "c2"]))
        with pytest.raises(UsageError, match=_NO_JOURNAL):
            recorded_answers(by_id.output)
    assert _ran == []


async def test_a_call_that_pydantic_ai_asks_about_is_answered_beside_one_that_the_journal_answers() -> None:
    async with _engine() as engine:
        first = await _agent(engine).run("go")
        await engine.deny(first.output.metadata["c2"]["approval_id"], by="ann")
        go_on = recorded_answers(first.output, {"c1": True})
        second = await _agent(engine).run(message_history=first.all_messages(), deferred_tool_results=go_on)
    told = told_in(second.all_messages())
    assert told["c1"].text == "A7 paid"
    assert "ann said no" in told["c2"].text
    assert _ran == ["A7"]


@pytest.mark.parametrize("given", ["c0_0", 7, [7]], ids=["a text", "no list", "a list of numbers"])
def test_what_is_no_list_of_call_ids_is_refused_with_what_to_give(given: Any) -> None:
    with pytest.raises(UsageError, match=r"give result\.output, the run's messages, or a list of tool call ids \(not approval ids\)"):
        recorded_answers(given)


async def test_a_result_instead_of_its_output_is_refused_with_what_to_give() -> None:
    async with _engine() as engine:
        result: Any = await _agent(engine).run("go")
    with pytest.raises(UsageError, match=r"of the type AgentRunResult; give result\.output"):
        recorded_answers(result)


@pytest.mark.parametrize("answered", [("c2",), ("c1",), ("c1", "c2"), ()], ids=["the second", "the first", "both", "none"])
async def test_a_run_goes_on_from_its_stored_messages_until_no_call_of_it_waits(answered: tuple[str, ...]) -> None:
    """The messages have calls that were executed and calls that wait, first beside each other, then after one of them was answered."""
    calls = [Call("look", {}, id="c0"), Call("refund", {"order": "A7"}, id="c1"), Call("refund", {"order": "B8"}, id="c2")]
    async with _engine() as engine:

        def agent() -> Agent[None, Any]:
            tools = [Tool(refund), Tool(look)]
            capability = CallgateCapability(engine)
            return Agent(scripted(calls, "done"), tools=tools, capabilities=[capability], output_type=[str, DeferredToolRequests])

        first = await agent().run("go")
        for one in answered:
            await engine.approve(first.output.metadata[one]["approval_id"], by="ann")
        stored = _stored(first)
        second = await agent().run(message_history=stored, deferred_tool_results=recorded_answers(stored))
        assert _ran == ["look", *({"c1": "A7", "c2": "B8"}[one] for one in answered)]
        if len(answered) < 2:
            for call in second.output.approvals:
                await engine.deny(second.output.metadata[call.tool_call_id]["approval_id"], by="bob")
            stored = _stored(second)
            second = await agent().run(message_history=stored, deferred_tool_results=recorded_answers(stored))
    assert second.output == "done"
    assert len(_ran) == 1 + len(answered)
    with pytest.raises(UsageError, match="no call in these messages waits for an answer"):
        recorded_answers(second.all_messages())


async def test_a_yes_that_arrives_several_times_at_once_pays_once_and_every_model_reads_the_result(tmp_path: Path) -> None:
    """The user clicks again, or a queue delivers the answer again, while the first run uses it."""

    async def transfer(order: str) -> str:
        """Transfer money."""
        return refund(order)

    async with Engine(journal=SqliteJournal(tmp_path / "calls.db")) as engine:
        model = scripted([Call("transfer", {"order": "B8"}, id="c1")], "done")
        gate = CallgateCapability(engine, options={"transfer": {"requires_approval": True}})
        agent = Agent(model, tools=[Tool(transfer)], capabilities=[gate], output_type=[str, DeferredToolRequests])
        history, yes = _stored(await agent.run("go")), DeferredToolResults(approvals={"c1": True})

        runs = await asyncio.gather(*[agent.run(message_history=history, deferred_tool_results=yes) for _ in range(6)])
    assert {told_in(run.all_messages())["c1"].text for run in runs} == {"B8 refunded"}
    assert _ran == ["B8"]
