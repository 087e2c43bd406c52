"""A question to a human is over when its call has gone on without the answer: a late yes lets no other call run."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from callgate import Allow, Ask, Deny, Engine, Policy, RawCall, Scope, SqliteJournal, Suspended, Tool, inbox, tool
from callgate.errors import UsageError
from callgate.protocols import Verdict
from callgate.stage_types import ValidatedCall
from tests.engine_calls import bodies, result_of
from tests.waiting import PATIENCE_S

SCOPE = Scope(run="r")
PAY = RawCall(id="a", name="pay", arguments={"amount": 100})
AN_EQUAL_ONE = RawCall(id="b", name="pay", arguments={"amount": 100})
ASK = Ask(question="Pay?", rule="payments")
CHANGES = [
    pytest.param(Allow(rule="default"), "paid", id="allows"),
    pytest.param(Deny(reason="closed for today"), "closed for today", id="denies"),
]


class Changing(Policy):
    """A policy whose verdict the operator changes."""

    def __init__(self, verdict: Verdict = ASK) -> None:
        self.verdict = verdict

    async def decide(self, call: ValidatedCall) -> Verdict:
        return self.verdict


@pytest.fixture
def paid() -> list[int]:
    return []


@pytest.fixture
def tools(paid: list[int]) -> list[Tool]:
    @tool
    def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return "paid"

    return [pay]


async def asked(engine: Engine, raw: RawCall = PAY) -> Suspended:
    outcome = await engine.call(raw, SCOPE)
    assert isinstance(outcome, Suspended), outcome
    return outcome


@pytest.mark.parametrize("elsewhere", [False, True], ids=["same process", "after a restart"])
@pytest.mark.parametrize(("change", "said"), CHANGES)
async def test_a_call_that_goes_on_without_an_answer_closes_its_question(
    tmp_path: Path, tools: list[Tool], paid: list[int], change: Verdict, said: str, elsewhere: bool
) -> None:
    policy, path = Changing(), tmp_path / "j.db"
    engine = Engine(tools, policies=[policy], journal=SqliteJournal(path))
    question = await asked(engine)
    policy.verdict = change
    assert said in result_of(await engine.call(PAY, SCOPE)).text
    if elsewhere:
        await engine.close()
        engine = Engine(tools, policies=[policy], journal=SqliteJournal(path))
    before = list(paid)
    assert inbox.waiting(path) == []
    with pytest.raises(UsageError, match="Nothing was sent"):
        inbox.approve(path, question.approval_id, by="ann")
    with pytest.raises(UsageError, match="is open"):
        await engine.approve(question.approval_id, by="ann")
    policy.verdict = ASK
    assert (await asked(engine, AN_EQUAL_ONE)).approval_id != question.approval_id
    (closed,) = bodies(engine, "approval.closed")
    await engine.close()
    assert closed["details"] == {"approval": question.approval_id}
    assert paid == before


@pytest.mark.parametrize("elsewhere", [False, True], ids=["same process", "after a restart"])
async def test_a_yes_that_was_not_needed_lets_no_equal_call_run(
    tmp_path: Path, tools: list[Tool], paid: list[int], elsewhere: bool
) -> None:
    policy, path = Changing(), tmp_path / "j.db"
    engine = Engine(tools, policies=[policy], journal=SqliteJournal(path))
    question = await asked(engine)
    await engine.approve(question.approval_id, by="ann")
    policy.verdict = Allow(rule="default")
    assert result_of(await engine.call(PAY, SCOPE)).status == "ok"
    policy.verdict = ASK
    if elsewhere:
        await engine.close()
        engine = Engine(tools, policies=[policy], journal=SqliteJournal(path))
    assert (await asked(engine, AN_EQUAL_ONE)).approval_id != question.approval_id
    await engine.close()
    assert paid == [100]


async def test_whoever_waits_for_the_answer_is_told_that_the_question_is_over(tools: list[Tool]) -> None:
    policy = Changing()
    async with Engine(tools, policies=[policy]) as engine:
        question = await asked(engine)
        waiting = asyncio.create_task(engine.wait_for_answer(question.approval_id))
        await asyncio.sleep(0)
        policy.verdict = Allow(rule="default")
        await engine.call(PAY, SCOPE)
        async with asyncio.timeout(PATIENCE_S):
            with pytest.raises(UsageError, match="is open"):
                await waiting


async def test_another_call_that_is_allowed_leaves_the_question_open(tools: list[Tool], paid: list[int]) -> None:
    policy = Changing()
    async with Engine(tools, policies=[policy]) as engine:
        question = await asked(engine)
        policy.verdict = Allow(rule="default")
        assert result_of(await engine.call(AN_EQUAL_ONE, SCOPE)).status == "ok"
        policy.verdict = ASK
        await engine.approve(question.approval_id, by="ann")
        assert result_of(await engine.call(PAY, SCOPE)).status == "ok"
    assert paid == [100, 100]
