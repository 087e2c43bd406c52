"""Tests of files that are truncated while a journal has them open: the loss is detected before another result is returned."""

# ruff: noqa: ASYNC240 (these tests may block while they damage files under an engine)

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import apsw
import pytest

from callgate import Engine, EventQuery, SqliteJournal, UsageError
from callgate._journal import open_reader
from callgate._journal.inbox_sender import open_inbox
from callgate._journal.sqlite_rows import insert
from callgate.errors import JournalFailed
from callgate.events import Draft, Event
from tests.effect_ledger import Ledger
from tests.effect_tools import paying
from tests.engine_calls import call, said
from tests.waiting import COMMAND_S


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


def draft(n: int, *, bytes_: int = 10, run: str = "r") -> Draft:
    return Draft(kind="call.received", run=run, call=f"c{n}", body=b'"' + b"x" * bytes_ + b'"')


def checkpoint(path: Path) -> None:
    """Checkpoint the log into the database file, as a backup does."""
    beside = apsw.Connection(str(path))
    beside.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    beside.close()


def cut(path: Path, place: float) -> None:
    os.truncate(path, int(path.stat().st_size * place))


def shorten(path: Path, lost_bytes: int) -> None:
    os.truncate(path, max(0, path.stat().st_size - lost_bytes))


@pytest.mark.parametrize(
    ("place", "checkpointed"),
    [(0.0, False), (0.5, False), (0.0, True), (0.5, True), (0.99, True)],
)
async def test_a_database_truncated_under_a_running_engine_is_detected_before_a_call(
    path: Path, ledger: Ledger, place: float, checkpointed: bool
) -> None:
    """SQLite continues from its page cache, but the next process to open the file could not read the durable events."""
    async with Engine([paying(ledger)], journal=SqliteJournal(path)) as engine:
        for n in range(4):
            assert (await said(engine, call("pay", id=f"c{n}", to="ann"))).success
            if checkpointed or n == 2:  # the last call's pages are only in the log, or all pages are in the file
                checkpoint(path)
        cut(path, place)
        result = await said(engine, call("pay", id="next", to="bob"))
        assert (result.status, result.code) == ("error", "record_failed")
        failure = engine.journal.status().failure
        assert f"{path} was cut off while it was open" in failure
        assert "make a new engine" in failure
    assert "bob" not in ledger.lines()


async def test_truncation_is_detected_by_an_engine_after_another_engine_grew_the_database(path: Path) -> None:
    """An idle engine does not know the current length, so the expected page count is read from the database."""
    idle, busy = SqliteJournal(path), SqliteJournal(path)
    await idle.durable(idle.append(draft(0)))
    before = path.stat().st_size
    for n in range(20):
        await busy.durable(busy.append(draft(n, bytes_=20_000, run="busy")))
    checkpoint(path)
    await busy.close()
    os.truncate(path, (before + path.stat().st_size) // 2)
    with pytest.raises(JournalFailed, match="was cut off while it was open"):
        await idle.durable(idle.append(draft(1)))
    await idle.close()


def cut_while_writing(monkeypatch: pytest.MonkeyPatch, cut: Callable[[], None]) -> None:
    """Truncate the log during a commit, after the checks and before the pages are written."""

    def insert_and_cut(connection: apsw.Connection, batch: Sequence[Event]) -> None:
        insert(connection, batch)
        cut()

    monkeypatch.setattr("callgate._journal.sqlite_store.insert", insert_and_cut)


@pytest.mark.parametrize("lost_bytes", [1, 4_000, 4_120, 9_000, 10**9])
async def test_a_wal_truncated_between_check_and_write_is_detected(path: Path, monkeypatch: pytest.MonkeyPatch, lost_bytes: int) -> None:
    """The commit writes after the cut, so the log has the expected length but contains a gap."""
    journal, log = SqliteJournal(path), Path(f"{path}-wal")
    await journal.durable(journal.append(draft(0, bytes_=3_000)))
    cut_while_writing(monkeypatch, lambda: shorten(log, lost_bytes))
    with pytest.raises(JournalFailed, match="-wal was cut off while it was open"):
        await journal.durable(journal.append(draft(1)))
    await journal.close()
    assert log.exists(), "a log with a gap must not be checkpointed into the file"


async def test_an_inbox_client_detects_a_truncated_wal(path: Path) -> None:
    """The process that answers an approval has no knowledge of what the engine wrote."""
    journal, log = SqliteJournal(path), Path(f"{path}-wal")
    await journal.durable(journal.append(draft(0, bytes_=9_000)))
    shorten(log, 5_000)
    with pytest.raises(UsageError, match="-wal was cut off"), open_inbox(path) as client:
        client.send(run="r", kind="stop", target="", actor="ann", reason="", at_ns=1)
    with pytest.raises(JournalFailed, match="-wal was cut off"):
        await journal.durable(journal.append(draft(1)))
    await journal.close()


@pytest.mark.parametrize("size", [0, 100, 16_384])
@pytest.mark.process
def test_a_truncated_wal_index_fails_the_journal_and_not_the_process(path: Path, size: int) -> None:
    """The index is mapped into memory, so access to a truncated page would raise SIGBUS."""
    program = f"""
import asyncio, os
from callgate import SqliteJournal
from callgate._journal.sqlite_rows import insert
from callgate.events import Draft, Event

async def main():
    journal = SqliteJournal({str(path)!r})
    note = Draft(kind="call.received", run="r", call="c", body=b"1")
    await journal.durable(journal.append(note))
    os.truncate({str(path)!r} + "-shm", {size})
    try:
        await journal.durable(journal.append(note))
    except Exception as error:
        print(type(error).__name__, error)
    await journal.close()

asyncio.run(main())
"""
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:] = {sys.path!r}\n{program}"],
        capture_output=True, text=True, timeout=COMMAND_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert f"JournalFailed {path}-shm was cut off while it was open" in done.stdout
    reader = open_reader(path)
    assert [event.call for event in reader.find(EventQuery())] == ["c"]
    reader.close()


async def test_moving_the_folder_of_an_open_journal_is_detected(path: Path) -> None:
    folder = path.parent / "folder"
    folder.mkdir()
    journal = SqliteJournal(folder / "journal.db")
    await journal.durable(journal.append(draft(0)))
    folder.rename(path.parent / "elsewhere")
    with pytest.raises(JournalFailed, match="was deleted or replaced"):
        await journal.durable(journal.append(draft(1)))
    await journal.close()


async def test_a_wal_truncated_before_close_is_reported_and_not_checkpointed(path: Path) -> None:
    """Closing the last connection would checkpoint the log with its gap and delete it."""
    journal, log = SqliteJournal(path), Path(f"{path}-wal")
    await journal.durable(journal.append(draft(0, bytes_=9_000)))
    cut(log, 0.5)
    kept = log.read_bytes()
    await journal.close()
    assert f"{log} was cut off" in journal.status().failure
    assert log.read_bytes() == kept


@pytest.mark.parametrize("change", ["cut", "replaced", "deleted"])
@pytest.mark.parametrize("who", ["engine", "reader"])
async def test_reading_a_truncated_replaced_or_deleted_journal_raises_an_error(path: Path, who: str, change: str) -> None:
    """A missing page reads as zeros and a replaced file reads as the old one; neither may be returned as the journal."""
    journal = SqliteJournal(path)
    for n in range(8):
        await journal.durable(journal.append(draft(n, bytes_=20_000)))
    checkpoint(path)
    reader = open_reader(path)
    find = journal.find if who == "engine" else reader.find
    assert len(list(find(EventQuery()))) == 8
    if change == "cut":
        cut(path, 0.5)
    else:
        content = path.read_bytes()
        path.unlink()
        if change == "replaced":
            path.write_bytes(content)
    with pytest.raises((JournalFailed, UsageError), match=r"was (cut off|deleted or replaced) while it was"):
        list(find(EventQuery()))
    reader.close()
    await journal.close()


@pytest.mark.parametrize("cut_off", [False, True], ids=["whole", "cut"])
async def test_a_journal_truncated_after_a_crash_is_refused_although_its_wal_exists(path: Path, cut_off: bool) -> None:
    """The log holds only the last pages, so SQLite does not check the length of the database file."""
    journal, crashed = SqliteJournal(path), path.with_name("crashed.db")
    for n in range(8):
        await journal.durable(journal.append(draft(n, bytes_=20_000)))
    checkpoint(path)
    await journal.durable(journal.append(draft(9)))
    content = path.read_bytes()
    crashed.write_bytes(content[: len(content) // 2 if cut_off else None])
    Path(f"{crashed}-wal").write_bytes(Path(f"{path}-wal").read_bytes())
    await journal.close()
    if cut_off:
        with pytest.raises(UsageError, match=r"crashed\.db was cut off"):
            SqliteJournal(crashed)
        with pytest.raises(UsageError, match=r"crashed\.db was cut off"):
            open_reader(crashed)
    else:
        again = SqliteJournal(crashed)
        assert len(again.find(EventQuery())) == 9
        await again.close()
