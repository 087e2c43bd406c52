"""An own loop waits for a human's answer with `wait_for_answer` instead of asking again and again."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from callgate import Engine, RawCall, Scope, SqliteJournal, Suspended, UsageError, inbox
from callgate.testing import ManualClock
from tests.effect_ledger import Ledger
from tests.effect_tools import paying
from tests.engine_calls import said
from tests.host_fakes import Asks
from tests.waiting import soon

SCOPE = Scope(run="order-7")
PAY = RawCall(id="1", name="pay", arguments={"to": "ann"})


def engine_at(path: Path, ledger: Ledger) -> Engine:
    return Engine([paying(ledger)], policies=[Asks("pay")], journal=SqliteJournal(path))


async def asked(engine: Engine) -> str:
    outcome = await engine.call(PAY, SCOPE)
    assert isinstance(outcome, Suspended)
    return outcome.approval_id


async def test_waiting_ends_when_the_same_process_answers(tmp_path: Path, ledger: Ledger) -> None:
    async with engine_at(tmp_path / "j.db", ledger) as engine:
        question = await asked(engine)
        waiting = asyncio.ensure_future(engine.wait_for_answer(question))
        await engine.deny(question, by="ann", reason="too much")
        answer = await waiting
        assert answer is not None
        assert (answer.allowed, answer.by, answer.reason) == (False, "ann", "too much")
        assert (await said(engine, PAY, SCOPE)).code == "human_denied"


async def test_waiting_ends_when_another_process_answers(tmp_path: Path, ledger: Ledger) -> None:
    path = tmp_path / "j.db"
    async with engine_at(path, ledger) as engine:
        question = await asked(engine)
        waiting = asyncio.ensure_future(engine.wait_for_answer(question))
        command = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "callgate.cli", "approve", question, "--by", "bob", "--journal", str(path)), env=os.environ
        )
        answer = await waiting
        assert answer is not None
        assert (await command.wait(), answer.allowed, answer.by) == (0, True, "bob")
        assert (await said(engine, PAY, SCOPE)).text == "paid ann"
    assert ledger.lines() == ["ann"]


async def test_an_answer_that_was_sent_while_no_process_worked_on_the_run_ends_the_wait_of_the_next_one(
    tmp_path: Path, ledger: Ledger
) -> None:
    path = tmp_path / "j.db"
    async with engine_at(path, ledger) as engine:
        question = await asked(engine)
    inbox.approve(path, question, by="bob")
    async with engine_at(path, ledger) as engine:
        answer = await engine.wait_for_answer(question)
        assert answer is not None
        assert answer.allowed
        assert (await said(engine, PAY, SCOPE)).success


def test_waiting_works_from_synchronous_code(tmp_path: Path, ledger: Ledger) -> None:
    engine = engine_at(tmp_path / "j.db", ledger)
    outcome = engine.call_sync(PAY, SCOPE)
    assert isinstance(outcome, Suspended)
    assert engine.wait_for_answer_sync(outcome.approval_id, timeout_s=0) is None
    engine.approve_sync(outcome.approval_id)
    answer = engine.wait_for_answer_sync(outcome.approval_id)
    assert answer is not None
    assert answer.allowed
    engine.close_sync()


async def test_waiting_ends_without_an_answer_when_the_question_expires(ledger: Ledger) -> None:
    clock = ManualClock()
    async with Engine([paying(ledger)], policies=[Asks("pay")], clock=clock) as engine:
        question = await asked(engine)
        waiting = asyncio.ensure_future(engine.wait_for_answer(question))
        assert await soon(lambda: clock.sleeping > 0)
        clock.advance(engine.limits.approval_s)
        assert await waiting is None


async def test_waiting_ends_with_an_error_when_the_engine_is_closed(tmp_path: Path, ledger: Ledger) -> None:
    engine = engine_at(tmp_path / "j.db", ledger)
    waiting = asyncio.ensure_future(engine.wait_for_answer(await asked(engine)))
    await asyncio.sleep(0)
    await engine.close()
    with pytest.raises(UsageError, match="closed"):
        await waiting


async def test_a_question_that_is_used_up_or_was_never_asked_cannot_be_waited_for(tmp_path: Path, ledger: Ledger) -> None:
    async with engine_at(tmp_path / "j.db", ledger) as engine:
        question = await asked(engine)
        await engine.approve(question)
        assert await engine.wait_for_answer(question)
        await engine.call(PAY, SCOPE)
        for missing in (question, "order-7/0/9"):
            with pytest.raises(UsageError, match="used up"):
                await engine.wait_for_answer(missing)


# With several engines on one journal


async def test_a_run_whose_answer_is_awaited_can_be_served_by_another_engine(tmp_path: Path, ledger: Ledger) -> None:
    path = tmp_path / "j.db"
    async with engine_at(path, ledger) as engine, engine_at(path, ledger) as other:
        question = await asked(engine)
        waiting = asyncio.ensure_future(engine.wait_for_answer(question))
        other_call = RawCall(id="2", name="look", arguments={})
        assert (await said(other, other_call, SCOPE)).code != "run_held"
        await other.approve(question, by="bob")
        assert (await said(other, PAY, SCOPE)).text == "paid ann"
        answer = await waiting
        assert answer is not None
        assert (answer.allowed, answer.by) == (True, "bob")
        assert (await said(engine, PAY, SCOPE)).metadata.replayed
    assert ledger.lines() == ["ann"]


async def test_the_answer_is_awaited_while_another_engine_holds_the_run_and_after_that_has_ended(tmp_path: Path, ledger: Ledger) -> None:
    path = tmp_path / "j.db"
    async with engine_at(path, ledger) as engine:
        async with engine_at(path, ledger) as other:
            question = await asked(other)
            with other.runs.at_work("order-7"):
                await other.runs.open(SCOPE)
                waiting = asyncio.ensure_future(engine.wait_for_answer(question))
                assert await engine.wait_for_answer(question, timeout_s=0) is None
        inbox.approve(path, question, by="bob")
        answer = await waiting
        assert answer is not None
        assert (answer.allowed, answer.by) == (True, "bob")


async def test_the_question_shows_the_answer_that_another_engine_recorded(tmp_path: Path, ledger: Ledger) -> None:
    path = tmp_path / "j.db"
    async with engine_at(path, ledger) as engine, engine_at(path, ledger) as other:
        question = await asked(engine)
        await other.approve(question, by="bob")
        shown = engine.approval(question)
        assert shown is not None
        assert (shown.allowed, shown.by) == (True, "bob")
        assert (await said(other, PAY, SCOPE)).success
        assert engine.approval(question) is None
