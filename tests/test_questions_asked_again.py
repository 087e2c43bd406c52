"""Equal calls of different messages: a human is asked once after a restart, and a no withdraws the yes that no call has used."""

from __future__ import annotations

from pathlib import Path

import pytest

from callgate import Engine, Scope, SqliteJournal, Suspended, Tool, inbox, tool
from callgate.calls import Outcome
from callgate.replay.run_file import RunFile
from callgate.testing import RecordedRun
from tests.engine_calls import bodies, call, result_of


@pytest.fixture
def paid() -> list[str]:
    return []


@pytest.fixture
def tools(paid: list[str]) -> list[Tool]:
    @tool(requires_approval=True)
    def pay(to: str) -> str:
        """Pay."""
        paid.append(to)
        return "paid"

    return [pay]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "calls.db"


async def made(engine: Engine, message: str, *ids: str) -> list[Outcome]:
    """Hand in a message with equal calls."""
    calls = [call("pay", to="ann", id=id) for id in ids or [f"{message}_c1"]]
    return await engine.call_many(calls, Scope(run="chat", conversation="chat", message_id=message))


async def asked(engine: Engine, message: str, *ids: str) -> list[str]:
    outcomes = await made(engine, message, *ids)
    return [outcome.approval_id for outcome in outcomes if isinstance(outcome, Suspended)]


async def test_a_loop_that_asks_its_model_again_after_a_restart_asks_the_human_once(path: Path, tools: list[Tool], paid: list[str]) -> None:
    async with Engine(tools, journal=SqliteJournal(path)) as engine:
        (first,) = await asked(engine, "m1")
    async with Engine(tools, journal=SqliteJournal(path)) as engine:
        assert await asked(engine, "m2") == [first]
        assert [one.approval for one in inbox.waiting(path)] == [first]
        await engine.approve(first, by="ann")
        assert await engine.wait_for_answer(first) is not None
    async with Engine(tools, journal=SqliteJournal(path)) as engine:
        assert result_of((await made(engine, "m2"))[0]).structured == "paid"
        (another,) = await asked(engine, "m3")
        assert another != first
        kept = RunFile.of(engine.journal, "chat", engine.blobs)
    assert paid == ["ann"]
    assert (await RecordedRun(kept).played(tools)).differences == ()


async def test_a_message_that_is_handed_in_after_all_uses_the_yes_and_the_later_one_asks_again(
    path: Path, tools: list[Tool], paid: list[str]
) -> None:
    async with Engine(tools, journal=SqliteJournal(path)) as engine:
        (first,) = await asked(engine, "m1")
    async with Engine(tools, journal=SqliteJournal(path)) as engine:
        assert await asked(engine, "m2") == [first]
        await engine.approve(first, by="ann")
        assert result_of((await made(engine, "m1"))[0]).structured == "paid"
        (another,) = await asked(engine, "m2")
        assert another != first
    assert paid == ["ann"]


async def test_equal_calls_of_one_message_keep_their_questions_after_a_restart(path: Path, tools: list[Tool], paid: list[str]) -> None:
    async with Engine(tools, journal=SqliteJournal(path)) as engine:
        questions = await asked(engine, "m1", "c1", "c2")
    assert len(set(questions)) == 2
    async with Engine(tools, journal=SqliteJournal(path)) as engine:
        assert await asked(engine, "m1", "c1", "c2") == questions
        await engine.approve(questions[0], by="ann")
        await engine.deny(questions[1], by="bob")
        outcomes = [result_of(outcome).code for outcome in await made(engine, "m1", "c1", "c2")]
    assert outcomes == [None, "human_denied"]
    assert paid == ["ann"]


@pytest.mark.parametrize("restarted", [False, True])
async def test_a_no_withdraws_the_yes_to_an_equal_call_of_an_earlier_message(
    path: Path, tools: list[Tool], paid: list[str], restarted: bool
) -> None:
    engine = Engine(tools, journal=SqliteJournal(path))
    (first,), (second,) = await asked(engine, "m1"), await asked(engine, "m2")
    await engine.approve(first, by="ann")
    await engine.deny(second, by="bob")
    if restarted:
        await engine.close()
        engine = Engine(tools, journal=SqliteJournal(path))
    async with engine:
        assert result_of((await made(engine, "m2"))[0]).code == "human_denied"
        (another,) = await asked(engine, "m3")
        assert another not in (first, second)
        assert [body["reason"] for body in bodies(engine, "approval.closed")] == ["bob said no to an equal call of another message"]
    assert paid == []


async def test_a_yes_after_a_no_to_an_equal_call_counts(path: Path, tools: list[Tool], paid: list[str]) -> None:
    async with Engine(tools, journal=SqliteJournal(path)) as engine:
        (first,), (second,) = await asked(engine, "m1"), await asked(engine, "m2")
        await engine.deny(second, by="bob")
        await engine.approve(first, by="ann")
        assert result_of((await made(engine, "m1"))[0]).structured == "paid"
        assert result_of((await made(engine, "m2"))[0]).code == "human_denied"
    assert paid == ["ann"]
