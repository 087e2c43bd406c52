"""After a kill -9, a host has one id for what nobody knows: the model is told it, `settle` takes it, and the log shows it."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from callgate import Engine, RawCall, Scope, SqliteJournal, Tool, ToolResult, inbox, tool
from callgate.errors import RunHeld, UsageError
from tests.cli.shell import shell
from tests.engine_calls import result_of
from tests.forked_python import python

pytestmark = [pytest.mark.process, pytest.mark.skipif(sys.platform != "linux", reason="kills a process")]
SCOPE = Scope(run="case")
KILLED = "case/0/0"


def refunding(paid: Path, *, dies: bool = False) -> list[Tool]:
    @tool
    def refund(order: str) -> str:
        """Pay money back."""
        with paid.open("a") as file:
            file.write(f"{order}\n")
        if dies:
            os.kill(os.getpid(), signal.SIGKILL)
        return f"paid back {order}"

    return [refund]


def refund_and_die(folder: str) -> None:
    """The process that is killed while its tool runs."""
    engine = Engine(refunding(Path(folder) / "paid", dies=True), journal=SqliteJournal(Path(folder) / "journal.db"))
    engine.call_sync(asked("first"), SCOPE)


def asked(id: str) -> RawCall:
    return RawCall(id=id, name="refund", arguments={"order": "A7"})


@pytest.fixture
def place(tmp_path: Path) -> Path:
    code = "import sys; from tests.recovery.test_settle_after_a_kill import refund_and_die as do; do(sys.argv[1])"
    assert python(code, str(tmp_path)).code == -signal.SIGKILL
    return tmp_path


def opened(place: Path) -> Engine:
    return Engine(refunding(place / "paid"), journal=SqliteJournal(place / "journal.db"))


async def handed_in(place: Path, *ids: str) -> list[ToolResult]:
    async with opened(place) as engine:
        return [result_of(await engine.call(asked(id), SCOPE)) for id in ids]


def paid(place: Path) -> int:
    return len((place / "paid").read_text().splitlines())


async def test_every_refusal_names_the_same_id_and_what_can_be_done(place: Path) -> None:
    for result in await handed_in(place, "first", "second"):
        assert (result.status, result.code, result.data) == ("unknown", "outcome_unknown", {"earlier_call": KILLED})
        assert f"the operator can settle {KILLED}" in result.text
        assert "new id" not in result.text
    assert paid(place) == 1


BY_ID: dict[str, Callable[[list[ToolResult]], str]] = {
    "the call that was killed": lambda _: KILLED,
    "the same call handed in again": lambda refused: refused[0].uid,
    "the same call under a new id": lambda refused: refused[1].uid,
}


@pytest.mark.parametrize("same_engine", [True, False], ids=["same engine", "a new engine"])
@pytest.mark.parametrize("named", BY_ID.values(), ids=BY_ID.keys())
async def test_settle_takes_the_id_of_any_of_these_results(
    place: Path, named: Callable[[list[ToolResult]], str], same_engine: bool
) -> None:
    engine = opened(place)
    refused = [result_of(await engine.call(asked(id), SCOPE)) for id in ("first", "second")]
    if not same_engine:
        await engine.close()
        engine = opened(place)
    await engine.settle(named(refused), happened=False, by="bob", reason="the bank has nothing")
    await engine.close()
    again, replayed = await handed_in(place, "first", "first")
    assert (again.text, replayed.metadata.replayed, paid(place)) == ("paid back A7", True, 2)


@pytest.mark.parametrize("id", ["first", "second"])
@pytest.mark.parametrize("same_engine", [True, False], ids=["same engine", "a new engine"])
async def test_a_call_that_happened_is_not_run_again_by_the_next_call_like_it(place: Path, id: str, same_engine: bool) -> None:
    """The model was told to wait for the operator, and does the same again: that must not pay twice."""
    engine = opened(place)
    await engine.call(asked(id), SCOPE)
    await engine.settle(KILLED, happened=True, by="bob")
    if not same_engine:
        await engine.close()
        engine = opened(place)
    result = result_of(await engine.call(asked(id), SCOPE))
    assert (result.status, paid(place)) == ("ok", 1)
    assert f"refund did happen, as {KILLED}: bob has checked it" in result.text
    await engine.close()
    (later,) = await handed_in(place, id)
    assert (later.status, later.metadata.replayed, paid(place)) == ("ok", True, 1)


async def test_settling_what_is_not_in_doubt_says_why(place: Path) -> None:
    async with opened(place) as engine:
        with pytest.raises(UsageError, match="No call 'nobody/0/0' is on record"):
            await engine.settle("nobody/0/0", happened=True)
        await engine.settle(KILLED, happened=False, by="bob")
        with pytest.raises(UsageError, match="is not in doubt: it was settled already, as not happened, by bob"):
            await engine.settle(KILLED, happened=True)
        done = result_of(await engine.call(asked("second"), SCOPE))
        with pytest.raises(UsageError, match="is not in doubt: its status is 'ok'"):
            await engine.settle(done.uid, happened=True)


async def test_another_process_settles_a_call_of_a_run_that_is_worked_on(place: Path) -> None:
    journal = place / "journal.db"
    async with opened(place) as holder, opened(place) as other:
        await holder.call(asked("first"), SCOPE)
        with holder.runs.at_work(SCOPE.run), pytest.raises(RunHeld):
            await other.settle(KILLED, happened=False)
        sent = inbox.settle(journal, KILLED, happened=False, by="carol", reason="looked")
        while not (fate := inbox.outcome(journal, sent.id)).position:
            result = result_of(await holder.call(asked("second"), SCOPE))
            assert result.status in ("unknown", "ok")
        assert fate.refused == ""
        assert result_of(await holder.call(asked("second"), SCOPE)).status == "ok"
    with pytest.raises(UsageError, match="not in doubt"):
        inbox.settle(journal, KILLED, happened=True, by="carol")
    assert paid(place) == 2


def listed(place: Path, *words: str) -> list[dict[str, Any]]:
    return shell(place, "log", "list", "--journal", "journal.db", "--json", *words).lines


async def test_one_command_settles_and_the_log_tells_one_story(place: Path) -> None:
    (call,) = listed(place)
    assert (call["uid"], call["status"], call["settled"]) == (KILLED, "unknown", "")
    assert f"callgate settle {KILLED}" in shell(place, "log", "show", KILLED, "--journal", "journal.db").err
    await handed_in(place, "second")
    neither = shell(place, "settle", KILLED, "--journal", "journal.db")
    assert (neither.code, "--happened or --not-happened" in neither.err) == (2, True)
    done = shell(place, "settle", KILLED, "--not-happened", "--by", "carol", "--reason", "looked", "--journal", "journal.db")
    assert (done.code, "Settled: case/0/0 (refund) did not happen" in done.err) == (0, True)
    first, repeat = listed(place)
    assert (first["status"], first["settled"], first["earlier_call"]) == ("unknown", "not_happened", "")
    assert [repeat[key] for key in ("status", "settled", "settled_by", "earlier_call")] == ["unknown", "not_happened", "carol", KILLED]
    table = shell(place, "log", "list", "--journal", "journal.db").out
    assert "settled: not happened" in table
    assert f"{KILLED} is settled: not happened" in " ".join(table.split())
    (newest,) = listed(place, "--limit", "1")
    assert newest["settled"] == "not_happened", "the first call is not among those that are listed"
    again = shell(place, "settle", KILLED, "--happened", "--journal", "journal.db")
    assert (again.code, "settled already, as not happened, by carol" in again.err) == (2, True)
    missing = shell(place, "settle", KILLED, "--happened", "--journal", "absent.db")
    assert (missing.code, "There is no journal at absent.db" in missing.err) == (2, True)
    (result,) = await handed_in(place, "third")
    assert (result.status, paid(place)) == ("ok", 2)


async def test_the_command_tells_the_process_that_works_on_the_run(place: Path) -> None:
    async with opened(place) as holder:
        await holder.call(asked("first"), SCOPE)
        sent = shell(place, "settle", KILLED, "--not-happened", "--journal", "journal.db", "--wait", "0", "--json")
        assert (sent.code, sent.json["status"], sent.json["held_by"]) == (0, "waiting", f"process {os.getpid()}")


async def test_a_call_that_is_cancelled_while_it_runs_is_unknown_in_the_log(tmp_path: Path) -> None:
    import asyncio

    begun = asyncio.Event()

    @tool
    async def refund(order: str) -> str:
        """Pay money back."""
        begun.set()
        await asyncio.Event().wait()
        return order

    async with Engine([refund], journal=SqliteJournal(tmp_path / "journal.db")) as engine:
        task = asyncio.ensure_future(engine.call(asked("first"), SCOPE))
        await begun.wait()
        (running,) = listed(tmp_path)
        assert running["status"] == "open"
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    (call,) = listed(tmp_path)
    assert (call["status"], call["failure_class"]) == ("unknown", "outcome_unknown")


def test_a_killed_call_that_only_reads_is_aborted_in_the_log(tmp_path: Path) -> None:
    code = """
import asyncio, os, signal
from callgate import Engine, RawCall, Scope, SqliteJournal, tool
begun = asyncio.Event()
@tool(effect="none")
async def look() -> str:
    "Look."
    begun.set()
    await asyncio.Event().wait()
@tool
async def act() -> str:
    "Act: what is on record of both calls is on disk by now."
    os.kill(os.getpid(), signal.SIGKILL)
async def main() -> None:
    async with Engine([look, act], journal=SqliteJournal("journal.db")) as engine:
        looking = asyncio.ensure_future(engine.call(RawCall(name="look", arguments={}), Scope(run="look")))
        await begun.wait()
        await engine.call(RawCall(name="act", arguments={}), Scope(run="act"))
asyncio.run(main())
"""
    assert python(code, folder=tmp_path).code == -signal.SIGKILL
    look, act = listed(tmp_path)
    assert (look["status"], "nothing was changed" in look["error"]) == ("aborted", True)
    assert (act["status"], "may have taken effect" in act["error"]) == ("unknown", True)
