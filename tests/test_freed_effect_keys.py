"""An operator frees the key of an effect whose call ended with a failure that its tool returned, or with a success that had no effect."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from callgate import Engine, RawCall, Scope, SqliteJournal, Tool, UsageError, inbox, tool
from callgate._run_state.event_bodies import Reason
from callgate.events import Draft
from tests.cli.shell import shell
from tests.effect_ledger import Ledger
from tests.engine_calls import call, kinds, said

FIRST, AGAIN, OTHER = (Scope(run=run, message_id="m1") for run in ("a", "a", "b"))


def refunding(ledger: Ledger, failures: Sequence[str] = ("the bank is closed",)) -> Tool:
    """Return a tool that returns each of these failures once, and succeeds after that."""
    left: Iterator[str] = iter(failures)

    @tool(key="refund:{order}")
    async def refund(order: str) -> dict[str, object]:
        """Refund an order."""
        ledger.write(order)
        failure = next(left, None)
        return {"success": True, "output": "refunded"} if failure is None else {"success": False, "error": failure}

    return refund


def asked() -> RawCall:
    return call("refund", id="c1", order="A7")


async def test_a_settled_failure_answers_neither_the_same_call_nor_another_run(ledger: Ledger) -> None:
    async with Engine([refunding(ledger, ["closed", "blocked"])]) as engine:
        first = await said(engine, asked(), FIRST)
        replayed = await said(engine, asked(), OTHER)
        assert (replayed.code, f"`callgate settle {first.uid} --not-happened`" in replayed.text) == ("tool_declared", True)
        await engine.settle(replayed.uid, happened=False, by="ann", reason="no such refund at the bank")
        second = await said(engine, asked(), AGAIN)
        assert (second.error, second.metadata.replayed) == ("blocked", False)
        await engine.settle(second.uid, happened=False)
        third = await said(engine, asked(), OTHER)
    assert (third.status, len(ledger.lines())) == ("ok", 3)


async def test_a_stored_failure_names_the_command_that_frees_its_key(ledger: Ledger) -> None:
    async with Engine([refunding(ledger)]) as engine:
        first = await said(engine, asked(), FIRST)
        again = await said(engine, asked(), AGAIN)
    assert any(f"`callgate settle {first.uid} --not-happened`" in note.text for note in again.metadata.notes)


async def test_only_a_failure_that_keeps_its_key_can_be_settled_and_only_as_not_happened(ledger: Ledger) -> None:
    async with Engine([refunding(ledger)]) as engine:
        first = await said(engine, asked(), FIRST)
        with pytest.raises(UsageError, match="settled only as not happened"):
            await engine.settle(first.uid, happened=True)
        await engine.settle(first.uid, happened=False)
        with pytest.raises(UsageError, match="it was settled already, as not happened, by operator"):
            await engine.settle(first.uid, happened=False)
        done = await said(engine, asked(), OTHER)
        with pytest.raises(UsageError, match="give the reason, which is recorded"):
            await engine.settle(done.uid, happened=False)
        with pytest.raises(UsageError, match=r"its status is 'ok'.*settled only as not happened"):
            await engine.settle(done.uid, happened=True, reason="it did")
    assert len(ledger.lines()) == 2


async def test_the_record_frees_the_key_for_later_engines(ledger: Ledger, tmp_path: Path) -> None:
    refund, path = refunding(ledger), tmp_path / "calls.db"
    for happened in (None, False, None):
        async with Engine([refund], journal=SqliteJournal(path)) as engine:
            if happened is False:
                await engine.settle("a/0/0", happened=False)
            else:
                result = await said(engine, asked(), FIRST)
    assert (result.status, result.metadata.replayed, len(ledger.lines())) == ("ok", False, 2)


async def test_the_engine_that_works_on_the_run_takes_the_settlement_from_the_inbox(ledger: Ledger, tmp_path: Path) -> None:
    path = tmp_path / "calls.db"
    async with Engine([refunding(ledger)], journal=SqliteJournal(path)) as engine:
        first = await said(engine, asked(), FIRST)
        with pytest.raises(UsageError, match="settled only as not happened"):
            inbox.settle(path, first.uid, happened=True, by="ann")
        sent = inbox.settle(path, first.uid, happened=False, by="ann")
        while not inbox.outcome(path, sent.id).position:
            await said(engine, call("refund", order="other"), Scope(run="c"))
        again = await said(engine, asked(), AGAIN)
        recorded = kinds(engine, first.uid)
    assert (again.status, recorded.count("fact.settled")) == ("ok", 1)


@pytest.mark.process
async def test_the_command_frees_the_key(ledger: Ledger, tmp_path: Path) -> None:
    path = tmp_path / "calls.db"
    async with Engine([refund := refunding(ledger)], journal=SqliteJournal(path)) as engine:
        await said(engine, asked(), FIRST)
    freed = shell(tmp_path, "settle", "a/0/0", "--not-happened", "--journal", "calls.db")
    assert (freed.code, "with the same key of its effect may be sent again, in any run" in freed.err) == (0, True)
    async with Engine([refund], journal=SqliteJournal(path)) as engine:
        assert (await said(engine, asked(), OTHER)).status == "ok"


# A success without an effect


def asking_itself(ledger: Ledger) -> Tool:
    """Return a tool that returns a human's no as its result, once, and refunds after that."""
    answers = iter(["a human said no"])

    @tool(key="refund:{order}")
    async def refund(order: str) -> str:
        """Refund an order."""
        said_no = next(answers, None)
        if said_no is None:
            ledger.write(order)
        return said_no or "refunded"

    return refund


@pytest.mark.parametrize("again", [AGAIN, OTHER], ids=["the same call", "another run"])
@pytest.mark.parametrize("restarted", [False, True])
async def test_a_success_that_an_operator_takes_back_answers_no_later_call(
    ledger: Ledger, tmp_path: Path, again: Scope, restarted: bool
) -> None:
    refund, path = asking_itself(ledger), tmp_path / "calls.db"
    async with Engine([refund], journal=SqliteJournal(path)) as engine:
        first = await said(engine, asked(), FIRST)
        replayed = await said(engine, asked(), Scope(run="c", message_id="m2"))
        await engine.settle(replayed.uid, happened=False, by="ann", reason="the human said no")
        with pytest.raises(UsageError, match="it was settled already, as not happened, by ann"):
            await engine.settle(first.uid, happened=False, reason="again")
        if not restarted:
            second = await said(engine, asked(), again)
    if restarted:
        async with Engine([refund], journal=SqliteJournal(path)) as engine:
            second = await said(engine, asked(), again)
    assert (first.text, second.text, second.metadata.replayed) == ("a human said no", "refunded", False)
    async with Engine([refund], journal=SqliteJournal(path)) as engine:
        third = await said(engine, asked(), Scope(run="d"))
    assert ("refunded" in third.text, third.metadata.replayed, ledger.lines()) == (True, True, ["A7"])


async def test_a_success_without_a_key_of_its_effect_is_never_taken_back(ledger: Ledger) -> None:
    @tool
    async def pay(order: str) -> str:
        """Pay an order."""
        ledger.write(order)
        return "paid"

    async with Engine([pay]) as engine:
        done = await said(engine, call("pay", id="c1", order="A7"), FIRST)
        with pytest.raises(UsageError, match="is not in doubt: its status is 'ok'"):
            await engine.settle(done.uid, happened=False, reason="it did not")


async def test_no_message_takes_a_success_back_because_the_call_may_have_been_in_doubt_when_it_was_sent(
    ledger: Ledger, tmp_path: Path
) -> None:
    path = tmp_path / "calls.db"
    async with Engine([asking_itself(ledger)], journal=SqliteJournal(path)) as engine:
        first = await said(engine, asked(), FIRST)
        with pytest.raises(UsageError, match="only as not happened, while no other process works on its run"):
            inbox.settle(path, first.uid, happened=False, by="ann", reason="the human said no")


async def test_what_a_tool_has_verified_takes_no_success_back(ledger: Ledger, tmp_path: Path) -> None:
    """Another engine may have verified the call before it succeeded, and recorded that after it."""
    refund, path = asking_itself(ledger), tmp_path / "calls.db"
    async with Engine([refund], journal=SqliteJournal(path)) as engine:
        first = await said(engine, asked(), FIRST)
        body = Reason(reason="the tool verified it", status="not_happened")
        engine.journal.append(Draft(kind="fact.settled", run="a", body=body, call=first.uid))
    for scope in (AGAIN, OTHER):
        async with Engine([refund], journal=SqliteJournal(path)) as engine:
            assert (await said(engine, asked(), scope)).metadata.replayed
    assert not ledger.lines()


@pytest.mark.process
async def test_the_command_takes_a_success_back_with_a_reason_while_the_program_of_the_run_lives(ledger: Ledger, tmp_path: Path) -> None:
    path = tmp_path / "calls.db"
    async with Engine([asking_itself(ledger)], journal=SqliteJournal(path)) as engine:
        first = await said(engine, asked(), FIRST)
        settle = ("settle", first.uid, "--not-happened", "--journal", "calls.db")
        refused = await asyncio.to_thread(shell, tmp_path, *settle)
        freed = await asyncio.to_thread(shell, tmp_path, *settle, "--reason", "the human said no", "--by", "ann")
        again = await said(engine, asked(), OTHER)
    shown = shell(tmp_path, "log", "list", "--journal", "calls.db")
    assert (refused.code != 0, "give the reason" in refused.err, freed.code) == (True, True, 0)
    assert (again.text, ledger.lines()) == ("refunded", ["A7"])
    assert "settled: not happened" in shown.out
