"""Journals: one contract for all of them, and what the journal in a file adds."""

from __future__ import annotations

import gc
import json
import signal
import subprocess
import sys
import weakref
from pathlib import Path

import apsw
import pytest

from callgate import Engine, MemoryJournal, Scope, SqliteJournal, UsageError, tool
from callgate._journal import open_reader
from callgate.errors import JournalFailed
from callgate.event_queries import EventQuery
from callgate.events import KINDS, TERMINAL, Draft
from callgate.protocols import Ask, Deny, Verdict
from callgate.stage_types import ValidatedCall
from tests.effect_ledger import Ledger
from tests.engine_calls import bodies, call, said


def draft(n: int, *, run: str = "r", call: str = "r/0/0", kind: str = "call.started", parents: tuple[int, ...] = ()) -> Draft:
    return Draft(kind=kind, run=run, call=call, body=json.dumps({"n": n}).encode(), parents=parents)


async def test_the_memory_journal_is_bounded_and_counts_the_events_it_dropped() -> None:
    journal = MemoryJournal(most=100)
    for n in range(1000):
        journal.append(draft(n))
    events = list(journal.read())
    assert len(events) <= 100
    assert events[-1].position == 1000
    assert journal.forgotten == 1000 - len(events)


async def test_the_memory_journal_keeps_scope_fields_but_no_reference_to_scope_extra() -> None:
    """The host's object in `extra` may hold connections, which events in memory must not keep open."""

    class Connection: ...

    @tool(effect="none")
    async def look() -> None:
        """Look."""

    live = Connection()
    gone = weakref.ref(live)
    async with Engine([look]) as engine:
        for raw in (call("look"), call("look")):
            await said(engine, raw, Scope(run="r", conversation="c", turn=2, iteration=3, principal="p", extra=live))
        await said(engine, call("look"), Scope(run="other"))
        del live
        gc.collect()
        assert gone() is None
        scopes = [body["scope"] for body in bodies(engine, "call.received") if "scope" in body]
    assert scopes == [{"conversation": "c", "turn": 2, "iteration": 3, "principal": "p"}] * 2


async def test_a_reopened_journal_has_its_events_and_continues_their_numbering(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    first = SqliteJournal(path)
    for n in range(3):
        first.append(draft(n))
    await first.close()
    second = SqliteJournal(path)
    assert second.append(draft(3)) == 4
    await second.close()
    reader = open_reader(path)
    assert [event.seq for event in reader.find(EventQuery())] == [1, 2, 3, 4]
    reader.close()


async def test_a_journal_can_be_read_while_it_is_open_for_writing(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    journal = SqliteJournal(path)
    await journal.durable(journal.append(draft(1)))
    reader = open_reader(path)
    assert len(list(reader.find(EventQuery()))) == 1
    reader.close()
    await journal.close()
    await SqliteJournal(path).close()


@pytest.mark.parametrize("content", [b"this is no database", b"SQLite format 3\x00" + b"\xff" * 200], ids=["text", "torn"])
def test_a_file_that_is_no_journal_is_refused_by_name_and_left_unchanged(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=r"notes\.txt"):
        SqliteJournal(path)
    assert path.read_bytes() == content
    assert [found.name for found in tmp_path.iterdir()] == ["notes.txt"]


def test_reading_a_missing_journal_is_refused_and_creates_no_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"absent\.db"):
        open_reader(tmp_path / "absent.db")
    assert not (tmp_path / "absent.db").exists()


async def test_a_journal_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    await SqliteJournal(path).close()
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(UsageError, match="newer callgate"):
        SqliteJournal(path)


@tool
async def pay(to: str) -> str:
    """Pay."""
    return f"paid {to}"


async def test_verify_accepts_an_unchanged_journal_and_names_the_first_altered_event(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    async with Engine([pay], journal=SqliteJournal(path)) as engine:
        for n in range(3):
            await said(engine, call("pay", to=str(n)))
    journal = SqliteJournal(path)
    assert journal.verify() is None
    await journal.close()
    forged = "UPDATE events SET body = CAST(replace(CAST(body AS TEXT), 'paid 1', 'paid 9') AS BLOB) WHERE position = 6"
    for change in (forged, "DELETE FROM events WHERE position = 5"):
        copy = tmp_path / "copy.db"
        copy.unlink(missing_ok=True)
        source = apsw.Connection(str(path))
        source.execute("VACUUM INTO ?", (str(copy),))
        source.close()
        connection = apsw.Connection(str(copy))
        connection.execute(change)
        connection.close()
        changed = SqliteJournal(copy)
        broken = changed.verify()
        assert broken is not None
        assert broken.position == 6
        await changed.close()


async def test_the_database_refuses_a_second_terminal_event_of_a_call(tmp_path: Path) -> None:
    journal = SqliteJournal(tmp_path / "journal.db")
    await journal.durable(journal.append(draft(1, kind="call.completed")))
    with pytest.raises(JournalFailed, match="UNIQUE constraint failed"):
        await journal.durable(journal.append(draft(2, kind="call.aborted")))
    await journal.close()


async def test_the_call_started_event_is_on_disk_before_the_tool_runs(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    seen: list[list[str]] = []

    @tool
    async def act() -> str:
        """Read the journal file while running."""
        reader = open_reader(path)
        seen.append([event.kind for event in reader.find(EventQuery())])
        reader.close()
        return "done"

    async with Engine([act], journal=SqliteJournal(path)) as engine:
        await said(engine, call("act"))
    assert seen == [["call.received", "call.started"]]


async def test_a_result_is_on_disk_before_it_is_returned(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    async with Engine([pay], journal=SqliteJournal(path)) as engine:
        await said(engine, call("pay", to="ann"))
        reader = open_reader(path)
        assert [event.kind for event in reader.find(EventQuery())][-1] == "call.completed"
        reader.close()


class Asks:
    async def decide(self, call: ValidatedCall) -> Verdict:
        return Ask(question="Really?") if call.arguments["to"] == "ann" else Deny(reason="no")


async def test_a_refusal_or_question_is_on_disk_before_it_is_returned(tmp_path: Path) -> None:
    """Otherwise, after a crash, another call or question could get a name that the caller already knows."""
    path = tmp_path / "journal.db"

    def written() -> list[str]:
        reader = open_reader(path)
        kinds = [event.kind for event in reader.find(EventQuery()) if event.kind in TERMINAL]
        reader.close()
        return kinds

    async with Engine([pay], policies=[Asks()], journal=SqliteJournal(path)) as engine:
        await engine.call(call("pay", to="ann"))
        assert written() == ["call.suspended"]
        await engine.call(call("pay", to="bob"))
        assert written() == ["call.suspended", "call.completed"]
        await engine.call(call("nobody"))
        assert written() == ["call.suspended", "call.completed", "call.completed"]
        await engine.call_many([call("pay", to="bob"), call("pay", to="ann", id="2")])
        assert written()[3:] == ["call.completed", "call.suspended"]
        await engine.call_many([call("pay", to="bob"), call("")])
        assert len(written()) == 7


async def test_a_result_that_cannot_be_recorded_is_not_returned_as_a_success(tmp_path: Path, ledger: Ledger) -> None:
    async with Engine(journal=SqliteJournal(tmp_path / "journal.db")) as engine:

        @tool
        async def act() -> str:
            """Act while the disk fills up."""
            ledger.write("acted")
            engine.journal._commits._fail(OSError("no space left"))  # type: ignore[attr-defined]
            return "done"

        engine.register(act)
        result = await said(engine, call("act"))
        assert (result.status, result.code) == ("unknown", "record_failed")
        assert "Do not repeat" in result.text
        refused = await said(engine, call("act"))
        assert (refused.status, refused.failure_class) == ("error", "record_failed")
    assert ledger.lines() == ["acted"]


async def test_a_read_whose_result_cannot_be_recorded_fails_and_is_not_unknown(tmp_path: Path) -> None:
    """A read changes nothing, so its outcome is not unknown."""
    async with Engine(journal=SqliteJournal(tmp_path / "journal.db")) as engine:

        @tool(effect="none")
        async def look() -> str:
            """Look while the disk fills up."""
            engine.journal._commits._fail(OSError("no space left"))  # type: ignore[attr-defined]
            return "seen"

        engine.register(look)
        result = await said(engine, call("look"))
    assert (result.status, result.failure_class, result.code) == ("error", "record_failed", "record_failed")
    assert "changed nothing" in result.text


async def test_the_current_tool_call_of_a_conversation_survives_an_engine_restart(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    async with Engine([pay], journal=SqliteJournal(path)) as engine:
        await said(engine, call("pay", id="c7", to="ann"), Scope(conversation="talk"))
    async with Engine([pay], journal=SqliteJournal(path)) as engine:
        current = engine.current_tool_call("talk")
    assert current is not None
    assert (current.id, current.text) == ("c7", "paid ann")


async def test_every_event_that_an_engine_writes_is_of_a_known_kind(tmp_path: Path) -> None:
    async with Engine([pay]) as engine:
        await engine.call_many([call("pay", to="a"), call("pay", nobody="b"), call("nope")], Scope(conversation="c"))
        assert {event.kind for event in engine.journal.read()} <= KINDS.keys()


CHILD = """
import asyncio, sys
from callgate import Engine, RawCall, Scope, SqliteJournal, tool

@tool
async def pay(to: str) -> str:
    "Pay, and never come back."
    with open(sys.argv[2], "a") as ledger:
        ledger.write(to + chr(10))
    print("paying", flush=True)
    await asyncio.Event().wait()
    return "paid"

async def main():
    async with Engine([pay], journal=SqliteJournal(sys.argv[1])) as engine:
        await engine.call(RawCall(name="pay", arguments='{"to": "ann"}', id="c1", idempotency_key="k"), Scope(run="order"))

asyncio.run(main())
"""


def killed_while_paying(path: Path, paid: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", CHILD, str(path), str(paid)], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"paying\n"
        child.send_signal(signal.SIGKILL)


@pytest.mark.process
async def test_a_call_interrupted_by_sigkill_is_unknown_and_never_repeated(tmp_path: Path) -> None:
    """A real process is killed between the effect and its result, and another engine gets the same call again."""
    path, paid = tmp_path / "journal.db", tmp_path / "paid.txt"
    killed_while_paying(path, paid)
    async with Engine([pay], journal=SqliteJournal(path)) as engine:
        again = await said(engine, call("pay", id="c1", key="k", to="ann"), Scope(run="order"))
        other = await said(engine, call("pay", id="c2", to="ann"), Scope(run="order"))
        assert (again.status, other.status) == ("unknown", "unknown")
        assert "Check" in again.text
        journal = engine.journal
        assert isinstance(journal, SqliteJournal)
        assert journal.verify() is None
    assert paid.read_text(encoding="utf-8") == "ann\n"
