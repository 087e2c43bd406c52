"""Tests of the SQLite journal beyond the contract: old versions, deleted files, the weaker sync mode, and indexed queries."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

import apsw
import pytest
from msgspec.structs import replace

from callgate import Answered, Engine, EventQuery, Scope, SqliteCache, SqliteJournal, UsageError
from callgate._hash_chain import hash_of
from callgate._journal import open_reader
from callgate._journal.sql_schema import VERSION, select_events
from callgate._journal.sqlite_file_checks import JournalFiles
from callgate._journal.write_ahead_log import LogEnd
from callgate.events import Draft
from tests.effect_ledger import Ledger
from tests.effect_tools import paying
from tests.engine_calls import call, said
from tests.waiting import HANGS_S, PATIENCE_S

V1 = Path(__file__).with_name("journal-v1.sql").read_text(encoding="utf-8")


def draft(n: int, *, run: str = "r", call: str = "", kind: str = "call.started") -> Draft:
    return Draft(kind=kind, run=run, call=call, body=json.dumps({"n": n}).encode())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


@pytest.fixture
def old(path: Path) -> Path:
    connection = apsw.Connection(str(path))
    connection.execute(V1)
    connection.close()
    return path


async def test_a_version_1_journal_opens_verifies_and_accepts_new_events(old: Path, ledger: Ledger) -> None:
    """The old events stay unchanged, and a repeat of the recorded call returns its result instead of running again."""
    journal = SqliteJournal(old)
    assert journal.verify() is None
    assert [event.position for event in journal.find(EventQuery(tool="pay", actor="bob"))] == [1, 2, 3, 4]
    assert [event.position for event in journal.find(EventQuery(caused_by=2))] == [3, 4]
    async with Engine([paying(ledger)], journal=journal) as engine:
        result = await said(engine, call("pay", id="c1", key="k", to="ann"), Scope(run="order", actor="bob"))
        assert (result.text, result.metadata.replayed) == ("paid ann", True)
        assert journal.verify() is None
        assert [event.epoch for event in journal.read()][:5] == [0, 0, 0, 0, 2]
    assert ledger.lines() == []
    connection = apsw.Connection(str(old))
    assert connection.execute("PRAGMA user_version").get == VERSION
    connection.close()


def test_reading_a_version_1_journal_does_not_change_it(old: Path) -> None:
    before = old.read_bytes()
    reader = open_reader(old)
    assert [event.position for event in reader.find(EventQuery(tool="pay", actor="bob", caused_by=1))] == [2, 3, 4]
    assert reader.verify() is None
    assert reader.verify(tail=2) is None
    reader.close()
    assert old.read_bytes() == before


async def test_an_interrupted_migration_leaves_the_old_version_intact(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise apsw.FullError("database or disk is full")

    with monkeypatch.context() as broken:
        broken.setattr("callgate._journal.open_sqlite.insert_lookup_rows", full)
        with pytest.raises(UsageError, match="disk is full"):
            SqliteJournal(old)
    reader = open_reader(old)
    assert len(list(reader.find(EventQuery()))) == 4
    reader.close()
    journal = SqliteJournal(old)
    assert [event.position for event in journal.find(EventQuery(caused_by=2))] == [3, 4]
    await journal.close()


def test_a_database_that_is_not_a_journal_is_refused_and_not_changed(path: Path) -> None:
    SqliteCache(path).close()
    before = path.read_bytes()
    with pytest.raises(UsageError, match="no journal"):
        SqliteJournal(path)
    with pytest.raises(UsageError, match="no journal"):
        open_reader(path)
    assert path.read_bytes() == before


def take_away(path: Path, *, replaced: bool) -> None:
    content = path.read_bytes()
    path.unlink()
    if replaced:
        path.write_bytes(content)


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm", ".lock"], ids=["file", "log", "index of the log", "lock"])
@pytest.mark.parametrize("replaced", [False, True], ids=["deleted", "replaced"])
async def test_a_file_deleted_or_replaced_under_a_running_engine_is_detected_and_named(
    path: Path, ledger: Ledger, suffix: str, replaced: bool
) -> None:
    """Durable events are in the file that has the journal's name; without it no call with an effect may start."""
    async with Engine([paying(ledger)], journal=SqliteJournal(path)) as engine:
        assert (await said(engine, call("pay", to="ann"))).success
        gone = Path(f"{path}{suffix}")
        take_away(gone, replaced=replaced)
        result = await said(engine, call("pay", to="bob"))
        assert (result.status, result.code) == ("error", "record_failed")
        failure = engine.journal.status().failure
        assert str(gone) in failure
        assert "deleted or replaced" in failure
        assert "make a new engine" in failure
        assert "with another SQLite library, such as Python's sqlite3" in failure
    assert ledger.lines() == ["ann"]


async def test_the_journal_of_a_closed_engine_says_that_it_is_closed_and_not_that_its_file_is_lost(path: Path, ledger: Ledger) -> None:
    journal = SqliteJournal(path)
    async with Engine([paying(ledger)], journal=journal) as engine:
        await said(engine, call("pay", to="ann"))
    for read in (journal.read, journal.verify):
        with pytest.raises(UsageError, match=r"is closed\. Make a new SqliteJournal to read it"):
            read()


def damaged(path: Path, position: int) -> None:
    """Change bits in one event so that its text is no longer valid."""
    connection = apsw.Connection(str(path))
    run = str(connection.execute("SELECT run FROM events WHERE position = ?", (position,)).get)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    content = path.read_bytes()
    assert content.count(run.encode()) >= 1
    path.write_bytes(content.replace(run.encode(), b"\xce" * len(run)))


async def test_a_forged_event_with_a_new_hash_is_detected_at_the_next_event(path: Path) -> None:
    """Each hash covers the previous one, so a forged event requires changes to all later events."""
    journal = SqliteJournal(path)
    for n in range(4):
        position = journal.append(draft(n))
    await journal.durable(position)
    await journal.close()
    reader = open_reader(path)
    second = replace(next(iter(reader.find(EventQuery(after=1, limit=1)))), body=b'{"n":9}')
    reader.close()
    forged = hash_of(second, second.previous, second.epoch, second.position, second.seq, second.parents)
    connection = apsw.Connection(str(path))
    connection.execute("UPDATE events SET body = ?, hash = ? WHERE position = 2", (second.body, forged))
    connection.close()
    reader = open_reader(path)
    broken = reader.verify()
    assert broken is not None
    assert (broken.position, broken.why) == (3, "it does not follow from the event before it")
    reader.close()


async def test_every_reader_reports_a_corrupted_file(path: Path) -> None:
    """`verify` names the first invalid event; other readers raise an error instead of returning part of the journal."""
    journal = SqliteJournal(path)
    for n in range(6):
        position = journal.append(draft(n, run="damaged-run" if n == 3 else "r"))
    await journal.durable(position)
    await journal.close()
    damaged(path, 4)
    reader = open_reader(path)
    broken = reader.verify()
    assert broken is not None
    assert broken.position == 4
    assert "cannot be read" in broken.why
    with pytest.raises(UsageError, match="callgate log verify"):
        list(reader.find(EventQuery()))
    assert [event.seq for event in reader.find(EventQuery(after=4))] == [4, 5]
    reader.close()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
async def test_a_journal_in_a_read_only_folder_can_be_read(path: Path) -> None:
    journal = SqliteJournal(path)
    await journal.durable(journal.append(draft(1)))
    await journal.close()
    path.parent.chmod(0o500)
    try:
        reader = open_reader(path)
        assert [event.run for event in reader.find(EventQuery())] == ["r"]
        assert reader.verify() is None
        reader.close()
    finally:
        path.parent.chmod(0o700)


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such locks")
def test_a_journal_open_in_an_older_callgate_is_refused(path: Path) -> None:
    """An older callgate allowed one writer per file and locked the whole file."""
    import fcntl

    with Path(f"{path}.lock").open("a+b") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(UsageError, match="older callgate"):
            SqliteJournal(path)


async def test_status_names_the_weaker_synchronous_mode(path: Path) -> None:
    journal = SqliteJournal(path, synchronous="normal")
    assert journal.status().strength == "process"
    assert journal.status().promise.startswith("WEAKER")
    assert "loss of power" in journal.status().promise
    await journal.close()
    strong = SqliteJournal(path)
    assert (strong.status().strength, strong.status().promise.startswith("WEAKER")) == ("full", False)
    await strong.close()
    with pytest.raises(UsageError, match="none of 'full' and 'normal'"):
        SqliteJournal(path, synchronous="off")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("query", "index"),
    [
        (EventQuery(run="r", after=5, limit=100), "events_by_run"),
        (EventQuery(run="r", newest_first=True, limit=100), "events_by_run"),
        (EventQuery(run="r", before=500_000, newest_first=True, limit=100), "events_by_run"),
        (EventQuery(call="r/0/0"), "events_by_call"),
        (EventQuery(kinds=("call.aborted",), limit=100), "events_by_kind"),
        (EventQuery(after=100, limit=100), "INTEGER PRIMARY KEY"),
        (EventQuery(newest_first=True, limit=100), "INTEGER PRIMARY KEY"),
    ],
    ids=lambda value: str(value) if isinstance(value, str) else "",
)
async def test_paged_queries_use_an_index_and_need_no_sorting(path: Path, query: EventQuery, index: str) -> None:
    """The query plan scans no table and sorts no result, whatever the journal's size."""
    plan = await plan_of(path, query)
    assert index in plan
    assert "SCAN" not in plan
    assert "TEMP B-TREE" not in plan


@pytest.mark.parametrize(
    ("query", "index"),
    [
        (EventQuery(tool="pay"), "calls_by_tool"),
        (EventQuery(actor="ann"), "calls_by_actor"),
        (EventQuery(principal="team"), "calls_by_principal"),
        (EventQuery(since_ns=1, until_ns=2), "events_by_time"),
        (EventQuery(caused_by=7), "causes"),
    ],
    ids=["tool", "actor", "principal", "time", "cause"],
)
async def test_queries_by_facts_of_calls_time_and_cause_use_an_index(path: Path, query: EventQuery, index: str) -> None:
    plan = await plan_of(path, query)
    assert index in plan
    assert "SCAN events" not in plan


async def plan_of(path: Path, query: EventQuery) -> str:
    await SqliteJournal(path).close()
    connection = apsw.Connection(str(path))
    sql, values = select_events(query)
    plan = " | ".join(row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", values))
    connection.close()
    return plan


async def test_calls_of_one_message_share_two_commits(path: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """Group commit uses one commit for all intents and one for all results, whichever event loop iterations the calls start in."""
    monkeypatch.setattr("callgate._journal.commit_batching._SOON_S", HANGS_S)  # a slow machine may take long for 64 calls
    async with Engine([paying(ledger, writes="person:{to}")], journal=SqliteJournal(path)) as engine:
        assert (await said(engine, call("pay", id="first", to="first"))).status == "ok"
        before = commits_in(path)
        outcomes = await engine.call_many([call("pay", id=f"c{n}", to=f"ann {n}") for n in range(64)])
        assert [outcome.result.status for outcome in outcomes if isinstance(outcome, Answered)] == ["ok"] * 64
        assert commits_in(path) - before == 2
    assert len(ledger.lines()) == 65


def commits_in(journal: Path) -> int:
    """Count the commits in the write-ahead log: the last frame of a commit holds the database size, other frames hold 0."""
    log = Path(f"{journal}-wal").read_bytes()
    page_bytes = int.from_bytes(log[8:12], "big")
    return sum(any(log[frame + 4 : frame + 8]) for frame in range(32, len(log), 24 + page_bytes))


async def test_a_commit_is_not_delayed_by_events_that_keep_arriving(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("callgate._journal.commit_batching._MOST_TOGETHER", 1_000_000)  # no commit because of the batch size
    journal = SqliteJournal(path)
    tasks: list[asyncio.Task[None]] = []

    async def another() -> None:
        """Append the next event in the same event loop iteration in which this one starts to wait."""
        if not tasks or not tasks[0].done():
            tasks.append(asyncio.ensure_future(another()))
        await journal.durable(journal.append(draft(len(tasks))))

    async with asyncio.timeout(PATIENCE_S):
        await another()
        while not all(task.done() for task in tasks):
            await asyncio.gather(*tasks)
    assert [event.seq for event in journal.read()] == list(range(1, len(tasks) + 2))
    assert journal.verify() is None
    await journal.close()


@pytest.mark.parametrize("count", [1, 7, 8, 9, 63, 64, 71, 72, 200])
async def test_every_event_of_a_batch_of_any_size_is_stored_and_found(path: Path, count: int) -> None:
    """One statement inserts many rows; a remainder must not be dropped."""
    journal = SqliteJournal(path)
    for n in range(count):
        said_of = json.dumps({"name": "pay", "scope": {"actor": f"a{n}"}}).encode()
        received = journal.append(Draft(kind="call.received", run="r", call=f"c{n}", body=said_of))
        last = journal.append(Draft(kind="call.started", run="r", call=f"c{n}", body=b"{}", parents=(received,)))
    await journal.durable(last)
    assert [event.position for event in journal.read()] == list(range(1, 2 * count + 1))
    assert [len(journal.find(EventQuery(tool="pay", actor=f"a{n}"))) for n in range(count)] == [2] * count
    assert [[event.position for event in journal.find(EventQuery(caused_by=2 * n + 1))] for n in range(count)] == [
        [2 * n + 2] for n in range(count)
    ]
    assert journal.verify() is None
    await journal.close()


async def test_a_commit_waits_while_another_engine_updates_the_end_of_the_wal(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The shared-memory file holds two copies of the log's end; while they differ, SQLite reports a lock."""
    journal = SqliteJournal(path)
    await journal.durable(journal.append(draft(1)))
    other = apsw.Connection(str(path))
    waits: list[float] = []

    def another_commits(files: JournalFiles, before: LogEnd) -> None:
        """Start another commit just before the check of the written pages."""
        other.execute("BEGIN IMMEDIATE")
        _turn_bit(path)
        check_written(files, before)

    def written(seconds: float) -> None:
        """Finish the other commit while this one waits."""
        waits.append(seconds)
        _turn_bit(path)
        other.execute("ROLLBACK")

    check_written = JournalFiles.check_written
    with monkeypatch.context() as busy:
        busy.setattr("callgate._journal.sqlite_file_checks.sleep", written)
        busy.setattr(JournalFiles, "check_written", another_commits)
        await journal.durable(journal.append(draft(2)))
    assert len(waits) == 1
    assert [event.seq for event in journal.read()] == [1, 2]
    other.close()
    await journal.close()


def _turn_bit(journal: Path) -> None:
    """Flip a bit in the first copy of the log's end; a second call restores it."""
    with open(f"{journal}-shm", "r+b", buffering=0) as shared:
        shared.seek(8)
        count = shared.read(1)[0]
        shared.seek(8)
        shared.write(bytes([count ^ 1]))
