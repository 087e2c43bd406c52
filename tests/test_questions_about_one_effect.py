"""Equal calls of a message with the same key of their effect: a human is asked once, and the first call's outcome answers the others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from callgate import Agent, Allow, Answered, Deny, Engine, Scope, SqliteJournal, Suspended
from callgate.protocols import Verdict
from callgate.stage_types import ValidatedCall
from tests.agent.scripted_model import Script, says
from tests.agent.scripted_model import call as model_call
from tests.effect_ledger import Ledger
from tests.effect_tools import failing, paying, refunding
from tests.engine_calls import call, result_of

SCOPE = Scope(run="chat", conversation="chat", message_id="m1")
TWO = [call("refund", id="a", order="A7"), call("refund", id="b", order="A7")]


async def asked(engine: Engine, calls: Any = TWO) -> list[str]:
    outcomes = await engine.call_many(calls, SCOPE)
    assert all(isinstance(one, Suspended) for one in outcomes)
    return [one.approval_id for one in outcomes if isinstance(one, Suspended)]


@pytest.mark.parametrize("settings", [{}, {"writes": ()}, {"effect": "idempotent"}], ids=str)
async def test_a_yes_lets_the_first_call_run_and_the_second_gets_its_result(settings: dict[str, Any], ledger: Ledger) -> None:
    async with Engine([refunding(ledger, requires_approval=True, **settings)]) as engine:
        first, second = await asked(engine)
        assert first == second
        await engine.approve(first, by="ann")
        one, two = (result_of(outcome) for outcome in await engine.call_many(TWO, SCOPE))
    assert (one.structured, two.structured, two.id) == ("refunded A7", "refunded A7", "b")
    assert (one.metadata.replayed, two.metadata.replayed, ledger.lines()) == (False, True, ["A7 100"])


async def test_a_no_answers_both(ledger: Ledger, tmp_path: Path) -> None:
    """In this engine, and in a later one."""
    for is_first in (True, False):
        async with Engine([refunding(ledger, requires_approval=True)], journal=SqliteJournal(tmp_path / "j.db")) as engine:
            if is_first:
                (approval, _) = await asked(engine)
                await engine.deny(approval, by="ann", reason="too late")
            results = [result_of(outcome) for outcome in await engine.call_many(TWO, SCOPE)]
            assert [(one.id, one.code) for one in results] == [("a", "human_denied"), ("b", "human_denied")]
    assert ledger.lines() == []


async def test_an_answer_that_another_engine_gets_is_about_both(ledger: Ledger, tmp_path: Path) -> None:
    async with Engine([refunding(ledger, requires_approval=True)], journal=SqliteJournal(tmp_path / "j.db")) as engine:
        (approval, _) = await asked(engine)
    async with Engine([refunding(ledger, requires_approval=True)], journal=SqliteJournal(tmp_path / "j.db")) as engine:
        await engine.approve(approval, by="ann")
        assert [type(one) for one in await engine.call_many(TWO, SCOPE)] == [Answered, Answered]
    assert ledger.lines() == ["A7 100"]


async def test_calls_that_are_not_equal_or_whose_tool_has_no_key_are_asked_about_one_by_one(ledger: Ledger) -> None:
    others = [call("refund", id="a", order="A7", cents=1), call("refund", id="b", order="A7", cents=2)]
    pays = [call("pay", id="c", to="ann"), call("pay", id="d", to="ann")]
    async with Engine([refunding(ledger, requires_approval=True), paying(ledger, requires_approval=True)]) as engine:
        assert len(set(await asked(engine, [*others, *pays]))) == 4


async def test_a_yes_that_cannot_start_the_first_call_is_no_question_about_the_second(ledger: Ledger) -> None:
    """Another principal's call with the same key has an unknown outcome. A host that hands the message in again comes to an end."""
    async with Engine([failing(ledger, ConnectionResetError("lost"), requires_approval=True)]) as engine:
        elsewhere = Scope(run="other", conversation="other", principal="bob")
        lost = await engine.call(TWO[0], elsewhere)
        assert isinstance(lost, Suspended)
        await engine.approve(lost.approval_id, by="ann")
        assert result_of(await engine.call(TWO[0], elsewhere)).status == "unknown"
        (approval, _) = await asked(engine)
        await engine.approve(approval, by="ann")
        results = [result_of(outcome) for outcome in await engine.call_many(TWO, SCOPE)]
        assert [(one.id, one.status) for one in results] == [("a", "unknown"), ("b", "unknown")]
    assert ledger.lines() == ["A7"]


@pytest.mark.parametrize("allow", [True, False])
async def test_an_agent_asks_once_and_both_calls_have_a_result(allow: bool, ledger: Ledger) -> None:
    model = Script(says(*(model_call("refund", {"order": "A7"}, id=one) for one in "ab")), says("done"))
    async with Agent(model, tools=[refunding(ledger, requires_approval=True)]) as agent:
        waiting = await agent.run("Refund.")
        assert waiting.pending is not None
        (approval,) = {one.approval_id for one in waiting.pending.approvals}
        await agent.engine.answer(approval, allow=allow)
        result = await agent.resume(waiting)
    assert (result.status, len(result.results), ledger.lines()) == ("completed", 2, ["A7 100"] if allow else [])
    assert [one.status for one in result.results] == ["ok" if allow else "error"] * 2


async def test_an_edit_of_the_first_call_leaves_the_second_to_be_asked_about(ledger: Ledger) -> None:
    """It would have another effect than the one that the human chose."""
    async with Engine([refunding(ledger, requires_approval=True)]) as engine:
        (approval, _) = await asked(engine)
        await engine.approve(approval, by="ann", arguments={"order": "B8"})
        one, two = await engine.call_many(TWO, SCOPE)
        assert (result_of(one).structured, type(two)) == ("refunded B8", Suspended)
    assert ledger.lines() == ["B8 100"]


class DeniesSecond:
    """Judges equal calls differently, as a model may."""

    async def decide(self, call: ValidatedCall) -> Verdict:
        return Deny(reason="not twice") if call.raw.id == "b" else Allow()


async def test_a_refusal_of_the_second_call_leaves_the_question_about_the_first_open(ledger: Ledger) -> None:
    async with Engine([refunding(ledger, requires_approval=True)], policies=[DeniesSecond()]) as engine:
        suspended, refused = await engine.call_many(TWO, SCOPE)
        assert isinstance(suspended, Suspended)
        assert result_of(refused).code == "policy_denied"
        await engine.approve(suspended.approval_id, by="ann")
        assert [result_of(one).status for one in await engine.call_many(TWO, SCOPE)] == ["ok", "error"]
    assert ledger.lines() == ["A7 100"]
