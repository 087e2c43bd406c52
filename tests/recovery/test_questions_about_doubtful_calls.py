"""If an identical earlier call has an unknown outcome, the question to a human says so, and only a yes to that question starts the call."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from callgate import Engine, RawCall, Scope, SqliteJournal, Suspended, Tool, Verified, inbox, tool
from tests.effect_ledger import Ledger
from tests.engine_calls import result_of

SCOPE = Scope(run="r")
ANSWERS_LOST = 10


def call(id: str) -> RawCall:
    return RawCall(id=id, name="pay", arguments={"to": "ann"})


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "ledger")


def paying(ledger: Ledger, *, lost: int = ANSWERS_LOST, **settings: Any) -> Tool:
    """Return `pay(to)`, which needs a human's approval. The answers of the first `lost` payments are lost."""

    @tool(requires_approval=True, **settings)
    async def pay(to: str) -> str:
        """Pay somebody."""
        ledger.write(to)
        if len(ledger.lines()) <= lost:
            raise ConnectionResetError("the answer was lost")
        return f"paid {to}"

    return pay


async def asked(engine: Engine, id: str) -> Suspended:
    outcome = await engine.call(call(id), SCOPE)
    assert isinstance(outcome, Suspended), outcome
    return outcome


async def allowed(engine: Engine, id: str) -> Any:
    """Ask about the call, allow it, and return its result."""
    await engine.approve((await asked(engine, id)).approval_id, by="ann")
    return result_of(await engine.call(call(id), SCOPE))


@pytest.fixture(params=[False, True], ids=["same engine", "after a restart"])
def continued(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Return a function that returns the engine with which a test goes on: the same, or another one on its journal."""

    async def go_on(engine: Engine, tools: list[Tool], path: Path) -> Engine:
        if not request.param:
            return engine
        await engine.close()
        return Engine(tools, journal=SqliteJournal(path))

    return go_on


async def test_the_question_tells_of_the_earlier_call_and_a_yes_then_starts_it(
    tmp_path: Path, ledger: Ledger, continued: Callable[..., Any]
) -> None:
    tools, path = [paying(ledger, lost=1)], tmp_path / "j.db"
    engine = Engine(tools, journal=SqliteJournal(path))
    first = await allowed(engine, "a")
    assert first.status == "unknown"
    engine = await continued(engine, tools, path)
    question = await asked(engine, "b")
    assert first.uid in question.question
    assert "may have taken effect" in question.question
    (waiting,) = inbox.waiting(path)
    assert first.uid in waiting.question
    engine = await continued(engine, tools, path)
    await engine.approve(question.approval_id, by="ann")
    assert result_of(await engine.call(call("b"), SCOPE)).text == "paid ann"
    assert ledger.lines() == ["ann", "ann"]
    await engine.close()


async def test_an_earlier_call_still_waits_to_be_settled_after_a_human_has_allowed_an_equal_one(
    tmp_path: Path, ledger: Ledger, continued: Callable[..., Any]
) -> None:
    tools, path = [paying(ledger)], tmp_path / "j.db"
    engine = Engine(tools, journal=SqliteJournal(path))
    first, second = [await allowed(engine, id) for id in ("a", "b")]
    assert [first.status, second.status] == ["unknown", "unknown"]
    engine = await continued(engine, tools, path)
    await engine.settle(first.uid, happened=True, by="ann")
    assert second.uid in (await asked(engine, "c")).question
    await engine.settle(second.uid, happened=False, by="ann")
    assert "may have" not in (await asked(engine, "d")).question
    await engine.close()


async def test_an_earlier_call_is_told_again_once_the_equal_one_that_was_allowed_after_it_is_settled(
    tmp_path: Path, ledger: Ledger, continued: Callable[..., Any]
) -> None:
    tools, path = [paying(ledger)], tmp_path / "j.db"
    engine = Engine(tools, journal=SqliteJournal(path))
    first, second = [await allowed(engine, id) for id in ("a", "b")]
    await engine.settle(second.uid, happened=False, by="ann")
    engine = await continued(engine, tools, path)
    assert first.uid in (await asked(engine, "c")).question
    await engine.settle(first.uid, happened=True, by="ann")
    engine = await continued(engine, tools, path)
    assert "did happen" in result_of(await engine.call(call("c"), SCOPE)).text
    assert ledger.lines() == ["ann", "ann"]
    await engine.close()


async def test_nobody_is_asked_about_a_call_whose_equal_has_happened_according_to_an_operator(
    tmp_path: Path, ledger: Ledger, continued: Callable[..., Any]
) -> None:
    tools, path = [paying(ledger)], tmp_path / "j.db"
    engine = Engine(tools, journal=SqliteJournal(path))
    first = await allowed(engine, "a")
    await engine.settle(first.uid, happened=True, by="ann")
    engine = await continued(engine, tools, path)
    assert not await engine.asks_human(call("b"), SCOPE)
    told = result_of(await engine.call(call("b"), SCOPE))
    assert told.status == "ok"
    assert "did happen" in told.text
    engine = await continued(engine, tools, path)
    assert result_of(await engine.call(call("b"), SCOPE)).text == told.text
    assert ledger.lines() == ["ann"]
    assert isinstance(await engine.call(call("c"), SCOPE), Suspended)  # a new call, about which a human decides
    await engine.close()


async def test_a_yes_to_a_call_does_not_start_it_once_its_equal_has_happened(ledger: Ledger) -> None:
    async with Engine([paying(ledger)]) as engine:
        first = await allowed(engine, "a")
        question = await asked(engine, "b")
        await engine.settle(first.uid, happened=True, by="ann")
        await engine.approve(question.approval_id, by="bob")
        assert "did happen" in result_of(await engine.call(call("b"), SCOPE)).text
    assert ledger.lines() == ["ann"]


async def test_a_yes_that_was_given_before_the_outcome_was_unknown_starts_nothing(ledger: Ledger) -> None:
    async with Engine([paying(ledger)]) as engine:
        for question in [await asked(engine, "a"), await asked(engine, "b")]:
            await engine.approve(question.approval_id, by="ann")
        first, second = [result_of(await engine.call(call(id), SCOPE)) for id in ("a", "b")]
        assert first.status == second.status == "unknown"
        assert "was not run" in second.text
        assert first.uid in second.text
        assert first.uid in (await asked(engine, "c")).question
    assert ledger.lines() == ["ann"]


async def test_an_open_question_is_asked_again_when_an_equal_call_may_have_taken_effect(
    tmp_path: Path, ledger: Ledger, continued: Callable[..., Any]
) -> None:
    tools, path = [paying(ledger, lost=1)], tmp_path / "j.db"
    engine = Engine(tools, journal=SqliteJournal(path))
    before = await asked(engine, "b")
    first = await allowed(engine, "a")
    engine = await continued(engine, tools, path)
    again = await asked(engine, "b")
    assert again.approval_id != before.approval_id
    assert first.uid in again.question
    assert [one.approval for one in inbox.waiting(path)] == [again.approval_id]
    await engine.approve(again.approval_id, by="ann")
    assert result_of(await engine.call(call("b"), SCOPE)).text == "paid ann"
    await engine.close()


async def test_the_tool_is_asked_before_a_human_is(ledger: Ledger) -> None:
    found: list[Verified] = []

    async def verify(arguments: dict[str, object], key: str) -> Verified:
        return found[-1]

    async with Engine([paying(ledger, lost=1, verify=verify)]) as engine:
        found.append(Verified(happened=None))
        first = await allowed(engine, "a")
        assert first.uid in (await asked(engine, "b")).question
        found.append(Verified(happened=True, result="paid ann"))
        assert result_of(await engine.call(call("c"), SCOPE)).text == "paid ann"
    assert ledger.lines() == ["ann"]


async def test_a_human_is_not_told_of_a_call_that_did_not_happen_according_to_the_tool(ledger: Ledger) -> None:
    found = [Verified(happened=None)]

    async def verify(arguments: dict[str, object], key: str) -> Verified:
        return found[-1]

    async with Engine([paying(ledger, lost=1, verify=verify)]) as engine:
        assert (await allowed(engine, "a")).status == "unknown"
        found.append(Verified(happened=False))
        assert "may have" not in (await asked(engine, "b")).question
