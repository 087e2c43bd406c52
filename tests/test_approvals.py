"""Approvals: each is valid for one call in its run, for its principal, actor and workspace, once, and until it expires."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from callgate import Allow, Ask, Engine, Limits, Modify, Scope, SqliteJournal, Suspended, Tool, UsageError, inbox, tool
from callgate.calls import Outcome
from callgate.protocols import Policy, Verdict
from callgate.stage_types import ValidatedCall
from callgate.testing import ManualClock
from tests.effect_ledger import Ledger
from tests.effect_tools import paying_amounts
from tests.engine_calls import call, result_of, said

PAY = call("pay", to="ann", amount=5)
SCOPE = Scope(run="r", principal="ann", actor="clerk", workspace="/srv/a")
QUESTION = Ask(question="Pay?", rule="big")


class Says:
    """A policy that always returns the same verdict."""

    def __init__(self, verdict: Verdict) -> None:
        self.verdict = verdict

    async def decide(self, call: ValidatedCall) -> Verdict:
        return self.verdict


class SaysAtOnce(Says):
    """The same policy, declared with `never_waits`."""

    never_waits = True

    def judge(self, call: ValidatedCall) -> Verdict:
        return self.verdict


LATER = {
    "an allow": Allow(rule="all"),
    "a change": Modify(arguments={"to": "ann", "amount": 5}, reason="it has to be so"),
    "another question": Ask(question="Really?"),
}


@pytest.mark.parametrize("kind", [Says, SaysAtOnce])
@pytest.mark.parametrize("later", LATER.values(), ids=LATER.keys())
async def test_an_ask_verdict_is_not_replaced_by_later_policies(kind: type[Says], later: Verdict, ledger: Ledger) -> None:
    policies: list[Policy] = [kind(QUESTION), kind(later)]
    async with Engine([paying_amounts(ledger)], policies=policies) as engine:
        outcome = await engine.call(PAY)
    assert isinstance(outcome, Suspended)
    assert (outcome.question, ledger.lines()) == ("Pay?", [])


@pytest.mark.parametrize("kind", [Says, SaysAtOnce])
async def test_an_ask_verdict_overrides_an_earlier_allow(kind: type[Says], ledger: Ledger) -> None:
    policies: list[Policy] = [kind(Allow()), kind(QUESTION)]
    async with Engine([paying_amounts(ledger)], policies=policies) as engine:
        assert isinstance(await engine.call(PAY), Suspended)
    assert ledger.lines() == []


@pytest.mark.parametrize("past_s", [0, 1])
async def test_an_approval_lets_the_call_run_only_before_it_expires(past_s: float, ledger: Ledger) -> None:
    clock = ManualClock()
    async with Engine([paying_amounts(ledger)], policies=[Says(QUESTION)], clock=clock, limits=Limits(approval_s=60)) as engine:
        for waits_s, paid in ((59.0, ["ann 5"]), (60.0 + past_s, ["ann 5"])):
            asked = await engine.call(PAY, SCOPE)
            assert isinstance(asked, Suspended)
            await engine.answer(asked.approval_id, allow=True, by="bob")
            clock.advance(waits_s)
            again = await engine.call(PAY, SCOPE)
            assert isinstance(again, Suspended) is (waits_s >= 60)
            assert ledger.lines() == paid


async def test_an_expired_approval_from_another_engine_does_not_let_the_call_run(tmp_path: Path, ledger: Ledger) -> None:
    """The expiry is recorded with the approval, so an engine that restores it from the journal applies it too."""
    clock, journal = ManualClock(), tmp_path / "journal.db"
    limits = Limits(approval_s=60)
    async with Engine(
        [paying_amounts(ledger)], policies=[Says(QUESTION)], clock=clock, limits=limits, journal=SqliteJournal(journal)
    ) as one:
        asked = await one.call(PAY, SCOPE)
        assert isinstance(asked, Suspended)
        await one.answer(asked.approval_id, allow=True, by="bob")
    clock.advance(60)
    async with Engine(
        [paying_amounts(ledger)], policies=[Says(QUESTION)], clock=clock, limits=limits, journal=SqliteJournal(journal)
    ) as two:
        assert isinstance(await two.call(PAY, SCOPE), Suspended)
    assert ledger.lines() == []


@pytest.mark.parametrize(
    "other",
    [
        Scope(run="other", principal="ann", actor="clerk", workspace="/srv/a"),
        Scope(run="r", principal="eve", actor="clerk", workspace="/srv/a"),
        Scope(run="r", principal="ann", actor="robot", workspace="/srv/a"),
        Scope(run="r", principal="ann", actor="clerk", workspace="/srv/b"),
    ],
    ids=["run", "principal", "actor", "workspace"],
)
async def test_an_approval_holds_for_one_run_principal_actor_and_workspace(other: Scope, ledger: Ledger) -> None:
    async with Engine([paying_amounts(ledger)], policies=[Says(QUESTION)]) as engine:
        asked = await engine.call(PAY, SCOPE)
        assert isinstance(asked, Suspended)
        await engine.answer(asked.approval_id, allow=True, by="bob")
        assert isinstance(await engine.call(PAY, other), Suspended)
        assert ledger.lines() == []
        assert (await said(engine, PAY, SCOPE)).success
    assert ledger.lines() == ["ann 5"]


async def test_a_nul_in_a_name_does_not_make_another_scope_the_approved_one(ledger: Ledger) -> None:
    """Where one name ends and the next one begins is part of what was approved, and of the key of the call."""
    asked_by, other = Scope(run="r", principal="p\0x", actor="y"), Scope(run="r", principal="p", actor="x\0y")
    async with Engine([paying_amounts(ledger)], policies=[Says(QUESTION)]) as engine:
        asked = await engine.call(PAY, asked_by)
        assert isinstance(asked, Suspended)
        await engine.answer(asked.approval_id, allow=True, by="bob")
        assert isinstance(await engine.call(PAY, other), Suspended)
        assert ledger.lines() == []
        assert (await said(engine, PAY, asked_by)).success
    assert ledger.lines() == ["ann 5"]


async def test_an_approval_is_not_valid_after_the_effect_of_the_tool_changed(tmp_path: Path, ledger: Ledger) -> None:
    """Another process whose tool of this name has a weaker effect asks again."""

    def changed() -> Tool:
        @tool(name="pay", effect="idempotent")
        async def pay(to: str, amount: float = 1) -> str:
            """Pay somebody."""
            ledger.write(f"changed {to}")
            return "paid"

        return pay

    journal = tmp_path / "journal.db"
    async with Engine([paying_amounts(ledger)], policies=[Says(QUESTION)], journal=SqliteJournal(journal)) as engine:
        asked = await engine.call(PAY, SCOPE)
        assert isinstance(asked, Suspended)
        await engine.answer(asked.approval_id, allow=True, by="bob")
    async with Engine([changed()], policies=[Says(QUESTION)], journal=SqliteJournal(journal)) as engine:
        assert isinstance(await engine.call(PAY, SCOPE), Suspended)
    assert ledger.lines() == []


@pytest.fixture(params=["same engine", "after a restart"])
def restarts(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "after a restart")


async def test_a_denial_outlasts_the_time_in_which_the_question_could_be_answered(tmp_path: Path, restarts: bool, ledger: Ledger) -> None:
    clock, limits = ManualClock(), Limits(approval_s=60)

    def opened() -> Engine:
        journal = SqliteJournal(tmp_path / "journal.db")
        return Engine([paying_amounts(ledger)], policies=[Says(QUESTION)], clock=clock, limits=limits, journal=journal)

    engine = opened()
    asked = await engine.call(PAY, SCOPE)
    assert isinstance(asked, Suspended)
    await engine.deny(asked.approval_id, by="bob")
    if restarts:
        await engine.close()
        engine = opened()
    clock.advance(61)
    async with engine:
        assert result_of(await engine.call(PAY, SCOPE)).code == "human_denied"


async def test_a_denial_that_was_sent_in_time_counts_when_the_run_is_served_later(tmp_path: Path, ledger: Ledger) -> None:
    clock, journal = ManualClock(time.time_ns()), tmp_path / "journal.db"

    def opened() -> Engine:
        return Engine([paying_amounts(ledger)], policies=[Says(QUESTION)], clock=clock, journal=SqliteJournal(journal))

    async with opened() as engine:
        asked = await engine.call(PAY, SCOPE)
        assert isinstance(asked, Suspended)
    await asyncio.to_thread(inbox.deny, journal, asked.approval_id, by="bob")
    clock.advance(engine.limits.approval_s + 1)
    async with opened() as engine:
        assert result_of(await engine.call(PAY, SCOPE)).code == "human_denied"


@pytest.mark.parametrize("allow", [True, False])
async def test_a_denial_counts_for_a_new_version_of_the_tool_and_an_approval_does_not(tmp_path: Path, allow: bool, ledger: Ledger) -> None:
    def opened(about: str) -> Engine:
        paying = paying_amounts(ledger, description=about)
        return Engine([paying], policies=[Says(QUESTION)], journal=SqliteJournal(tmp_path / "journal.db"))

    engine = opened("Pay somebody.")
    asked = await engine.call(PAY, SCOPE)
    assert isinstance(asked, Suspended)
    await engine.answer(asked.approval_id, allow=allow, by="bob")
    await engine.close()
    async with opened("Pay somebody at once.") as engine:
        again = await engine.call(PAY, SCOPE)
        assert isinstance(again, Suspended) if allow else result_of(again).code == "human_denied"
    assert ledger.lines() == []


async def test_a_question_says_why_an_earlier_yes_to_another_version_of_the_tool_does_not_count(tmp_path: Path, ledger: Ledger) -> None:
    """A deployment changes a tool while its question is open, and the human answers the question that they were shown before."""

    def opened(about: str) -> Engine:
        paying = paying_amounts(ledger, description=about)
        return Engine([paying], policies=[Says(QUESTION)], journal=SqliteJournal(tmp_path / "journal.db"))

    async with opened("Pay somebody.") as engine:
        asked = await engine.call(PAY, SCOPE)
        assert isinstance(asked, Suspended)
        again: Outcome = asked
    for _ in range(2):  # the second program has the question of the first from the record
        async with opened("Pay somebody at once.") as engine:
            await engine.approve(asked.approval_id, by="bob")
            again = await engine.call(PAY, SCOPE)
            assert isinstance(again, Suspended)
            assert again.question == "Pay? (The yes of bob does not count, because the tool has changed since it was asked about)"
    async with opened("Pay somebody at once.") as engine:
        assert isinstance(again, Suspended)
        await engine.approve(again.approval_id, by="bob")
        assert result_of(await engine.call(PAY, SCOPE)).success
    assert len(ledger.lines()) == 1


@pytest.mark.parametrize("allow", [True, False])
@pytest.mark.parametrize("early", [True, False], ids=["answered before", "answered too late"])
async def test_a_question_about_another_version_of_the_tool_is_over_when_the_call_is_decided(
    tmp_path: Path, allow: bool, early: bool, ledger: Ledger
) -> None:
    """Otherwise its yes would override a later no, or allow an equal call of another message, once the tool is as it was."""

    def opened(about: str) -> Engine:
        paying = paying_amounts(ledger, description=about)
        return Engine([paying], policies=[Says(QUESTION)], journal=SqliteJournal(tmp_path / "journal.db"))

    pay, other = (call("pay", id=call_id, to="ann", amount=5) for call_id in ("c1", "c2"))
    async with opened("Pay somebody.") as engine:
        first = await engine.call(pay, SCOPE)
        assert isinstance(first, Suspended)
        if early:
            await engine.approve(first.approval_id, by="bob")
    async with opened("Pay somebody at once.") as engine:
        second = await engine.call(pay, SCOPE)
        assert isinstance(second, Suspended)
        await engine.answer(second.approval_id, allow=allow, by="bob")
        assert result_of(await engine.call(pay, SCOPE)).code == (None if allow else "human_denied")
    async with opened("Pay somebody.") as engine:
        with pytest.raises(UsageError, match="is open"):
            await engine.approve(first.approval_id, by="bob")
        assert result_of(await engine.call(pay, SCOPE)).code == (None if allow else "human_denied")
        assert isinstance(await engine.call(other, SCOPE), Suspended)
    assert len(ledger.lines()) == (1 if allow else 0)
