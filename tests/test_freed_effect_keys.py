"""An operator frees the key of an effect whose call ended with a failure that its tool returned."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from callgate import Engine, RawCall, Scope, SqliteJournal, Tool, UsageError, inbox, tool
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
        with pytest.raises(UsageError, match="its status is 'ok'"):
            await engine.settle(done.uid, happened=False)
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
