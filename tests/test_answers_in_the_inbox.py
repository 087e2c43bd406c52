"""Answers that wait in the inbox while no process works on their run: which of several counts, and what a sender is told."""

from __future__ import annotations

import json

import pytest

from callgate import Engine, MemoryJournal, RawCall, Scope, Suspended, UsageError, inbox
from callgate._journal.inbox_sender import open_inbox
from tests.effect_ledger import Ledger
from tests.effect_tools import paying
from tests.engine_calls import call as raw_call
from tests.engine_calls import said
from tests.test_inbox import ASKS, IN_RUN, RUN, Where, asked, folded, of, opened, where

__all__ = ["where"]


async def waiting_question(where: Where, ledger: Ledger) -> str:
    """Ask a human about a payment to ann, close the engine, and return the question's id."""
    async with Engine([paying(ledger)], policies=[ASKS], journal=opened(where)) as engine:
        return (await asked(engine)).approval_id


async def paid_text(where: Where, ledger: Ledger) -> str:
    """Hand the payment in again in a new engine, and return what the model reads."""
    async with Engine([paying(ledger)], policies=[ASKS], journal=opened(where)) as engine:
        await engine.runs.open(IN_RUN)
        await folded(opened(where)) if isinstance(where, str) else await folded(engine.journal)  # type: ignore[arg-type]
        return (await said(engine, raw_call("pay", id="1", to="ann"), IN_RUN)).text


async def test_an_open_question_is_listed_however_many_newer_ones_are_answered(ledger: Ledger) -> None:
    journal = MemoryJournal(shared=True)
    async with Engine([paying(ledger)], policies=[ASKS], journal=journal) as engine:
        oldest = await asked(engine)
        for number in range(2_000):
            newer = await engine.call(
                RawCall(name="pay", arguments={"to": "bob"}, id=f"b{number}"), Scope(run=RUN, conversation=f"b{number}")
            )
            assert isinstance(newer, Suspended)
            await engine.deny(newer.approval_id)
        assert [one.approval for one in inbox.waiting(journal)] == [oldest.approval_id]


async def test_a_later_approval_with_other_arguments_replaces_one_that_nobody_has_taken(where: Where, ledger: Ledger) -> None:
    question = await waiting_question(where, ledger)
    first = inbox.approve(where, question, by="carol")
    second = inbox.approve(where, question, by="dave", arguments={"to": "bob"})
    assert (first.replaces, second.replaces and second.replaces.by) == (None, "carol")
    (waits,) = inbox.waiting(where)
    assert waits.sent is not None
    assert (waits.sent.allow, waits.sent.by, waits.sent.arguments) == (True, "dave", {"to": "bob"})
    assert "paid bob" in await paid_text(where, ledger)
    assert ledger.lines() == ["bob"]
    assert "A later answer to the same question has replaced it" in inbox.outcome(where, first.id, wait_s=60).refused
    assert not inbox.outcome(where, second.id, wait_s=60).refused


async def test_a_no_replaces_a_yes_that_nobody_has_taken_and_is_final(where: Where, ledger: Ledger) -> None:
    question = await waiting_question(where, ledger)
    inbox.approve(where, question, by="carol")
    assert inbox.deny(where, question, by="dave").replaces is not None
    for answer in (inbox.approve, inbox.deny):
        with pytest.raises(UsageError, match=r"answered with no already, by dave at 20.*A no is final"):
            answer(where, question, by="erin")
    assert "dave said no" in await paid_text(where, ledger)
    assert ledger.lines() == []


async def test_a_yes_that_is_sent_at_the_same_time_as_a_no_does_not_replace_it(where: Where, ledger: Ledger) -> None:
    question = await waiting_question(where, ledger)
    with open_inbox(where) as client:
        for kind in ("approve", "deny", "approve"):
            client.send(run=RUN, kind=kind, target=question, actor=kind, reason="", at_ns=1)
    assert "deny said no" in await paid_text(where, ledger)
    assert ledger.lines() == []


async def test_a_question_is_answered_by_the_id_of_its_call_that_was_handed_in_again(where: Where, ledger: Ledger) -> None:
    async with Engine([paying(ledger)], policies=[ASKS], journal=(journal := opened(where))) as engine:
        first, again = await asked(engine), await asked(engine)
        assert (first.approval_id, again.approval_id, again.uid != first.uid) == (first.uid, first.uid, True)
        await engine.approve(again.uid, by="ann")
        assert await engine.wait_for_answer(again.uid)
    inbox.deny(where, again.uid, by="carol")
    async with Engine([paying(ledger)], policies=[ASKS], journal=(journal := opened(where))) as engine:
        await engine.runs.open(IN_RUN)
        await folded(journal)
        assert [json.loads(one.body)["details"]["approval"] for one in of(journal, "approval.answered")] == [first.uid, first.uid]
        assert (await said(engine, raw_call("pay", id="1", to="ann"), IN_RUN)).code == "human_denied"
    assert ledger.lines() == []


@pytest.mark.parametrize("where", ["memory", "sqlite"], indirect=True)
async def test_arguments_that_the_tool_does_not_accept_are_refused_at_once_if_a_process_works_on_the_run(
    where: Where, ledger: Ledger
) -> None:
    async with Engine([paying(ledger)], policies=[ASKS], journal=(journal := opened(where))) as engine:
        question = await asked(engine)
        await journal.durable(of(journal, "call.suspended")[0].position)
        with pytest.raises(UsageError, match=r"lack to\. Give all of them"):
            inbox.approve(where, question.approval_id, by="carol", arguments={"whom": "bob"})
        sent = inbox.approve(where, question.approval_id, by="carol", arguments={"whom": "bob"}, leave_out=True)
        assert sent.left_out == ("to",)
        await folded(journal)
        assert "to: expected text, got nothing" in inbox.outcome(where, sent.id, wait_s=60).refused
        inbox.approve(where, question.approval_id, by="carol", arguments={"to": "bob"})
        assert await engine.wait_for_answer(question.approval_id)
        assert "paid bob" in (await said(engine, raw_call("pay", id="1", to="ann"), IN_RUN)).text
    assert ledger.lines() == ["bob"]


@pytest.mark.parametrize("where", ["memory", "sqlite"], indirect=True)
async def test_a_question_says_why_an_answer_with_other_arguments_could_not_be_used(where: Where, ledger: Ledger) -> None:
    """No process works on the run when it is sent, so only the next one can refuse it."""
    question = await waiting_question(where, ledger)
    sent = inbox.approve(where, question, by="carol", arguments={"whom": "bob"}, leave_out=True)
    async with Engine([paying(ledger)], policies=[ASKS], journal=opened(where)) as engine:
        await engine.runs.open(IN_RUN)
        assert "to: expected text, got nothing" in inbox.outcome(where, sent.id, wait_s=60).refused
        again = await asked(engine)
        assert (again.approval_id, again.question.splitlines()[0]) == (
            question,
            "Pay ann? (The answer of carol could not be used: The question stays open: pay does not accept the arguments of this approval.",
        )
    (waits,) = inbox.waiting(where)
    assert (waits.approval, waits.sent) == (question, None)
    assert waits.refused.startswith("the answer of carol could not be used")
    async with Engine([paying(ledger)], policies=[ASKS], journal=opened(where)) as engine:
        assert "could not be used" in (await asked(engine)).question
        await engine.approve(question, by="dave")
        assert (await said(engine, raw_call("pay", id="1", to="ann"), IN_RUN)).text == "paid ann"
    assert ledger.lines() == ["ann"]
