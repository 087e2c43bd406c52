"""Tests of a journal that lost its last events while it was closed: it is refused, because a lost event could repeat an effect."""

# ruff: noqa: ASYNC240 (these tests may block while they damage files under an engine)

from __future__ import annotations

import os
from pathlib import Path

import apsw
import pytest

from callgate import Engine, EventQuery, Scope, SqliteJournal, UsageError
from callgate._journal import open_reader
from callgate.cli import main
from tests.effect_ledger import Ledger
from tests.effect_tools import paying
from tests.engine_calls import call, said
from tests.forked_python import python

RUN = Scope(run="order")
PAYS = """
import asyncio, os, sys
from pathlib import Path
from callgate import Engine, Scope, SqliteJournal
from tests.engine_calls import call, said
from tests.effect_ledger import Ledger
from tests.effect_tools import paying

async def main():
    async with Engine([paying(Ledger(Path(sys.argv[2])))], journal=SqliteJournal(sys.argv[1], synchronous=sys.argv[3])) as engine:
        for n in range(int(sys.argv[4])):
            assert (await said(engine, call("pay", id=f"c{n}", to="ann"), Scope(run="order"))).success
        os._exit(0)

asyncio.run(main())
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


def pay_and_crash(path: Path, ledger: Path, *, synchronous: str = "full", calls: int = 1) -> None:
    """Run a process that makes a payment and ends without closing anything."""
    words = (str(path), str(ledger), synchronous, str(calls))
    done = python(PAYS, *words)
    assert done.code == 0, done.err


def lose_log(path: Path, how: str) -> None:
    log = Path(f"{path}-wal")
    assert log.stat().st_size
    if how == "deleted":
        log.unlink()
    else:
        os.truncate(log, 0 if how == "emptied" else log.stat().st_size // 2)


@pytest.mark.process
@pytest.mark.parametrize("synchronous", ["full", "normal"])
@pytest.mark.parametrize("how", ["deleted", "emptied", "cut"])
async def test_a_new_journal_without_its_wal_is_refused_and_no_effect_is_repeated(
    path: Path, tmp_path: Path, ledger: Ledger, how: str, synchronous: str
) -> None:
    """All events of a new journal are in the log, so without it the file would look like a new journal."""
    pay_and_crash(path, tmp_path / "ledger.txt", synchronous=synchronous)
    lose_log(path, how)
    with pytest.raises(UsageError, match=rf"{path} ends at event \d and does not have event 3, which it had") as refused:
        SqliteJournal(path)
    assert f"{path}-wal was deleted or cut off" in str(refused.value)
    assert f"delete {path}.lock" in str(refused.value)
    assert ledger.lines() == ["ann"]


@pytest.mark.process
async def test_a_journal_that_lost_its_wal_opens_after_its_lock_file_is_deleted(path: Path, tmp_path: Path, ledger: Ledger) -> None:
    """The error names this step. A user who takes it accepts that calls may run again."""
    pay_and_crash(path, tmp_path / "ledger.txt", calls=3)
    lose_log(path, "cut")
    Path(f"{path}.lock").unlink()
    async with Engine([paying(ledger)], journal=SqliteJournal(path)) as engine:
        assert (await said(engine, call("pay", id="new", to="bob"), RUN)).success


@pytest.mark.process
async def test_a_journal_checkpointed_by_another_program_after_a_crash_is_complete(path: Path, tmp_path: Path, ledger: Ledger) -> None:
    """The SQLite shell checkpoints and deletes the log when it closes the file, so no event is lost."""
    pay_and_crash(path, tmp_path / "ledger.txt")
    shell = apsw.Connection(str(path))
    assert shell.execute("SELECT count(*) FROM events").get == 3
    shell.close()
    assert not Path(f"{path}-wal").exists()
    async with Engine([paying(ledger)], journal=SqliteJournal(path)) as engine:
        assert (await said(engine, call("pay", id="c0", to="ann"), RUN)).metadata.replayed
    assert ledger.lines() == ["ann"]


async def test_an_older_copy_in_place_of_a_journal_is_refused(path: Path, ledger: Ledger) -> None:
    """Effects that the older copy does not contain would be repeated."""
    async with Engine([paying(ledger)], journal=SqliteJournal(path)) as engine:
        assert (await said(engine, call("pay", id="c0", to="ann"), RUN)).success
    copy = path.read_bytes()
    async with Engine([paying(ledger)], journal=SqliteJournal(path)) as engine:
        assert (await said(engine, call("pay", id="c1", to="bob"), RUN)).success
    path.write_bytes(copy)
    with pytest.raises(UsageError, match="or an older copy was put in its place"):
        SqliteJournal(path)


async def test_events_lost_by_a_reboot_with_synchronous_normal_are_accepted(
    path: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `synchronous="normal"` a restart of the machine may lose the last commits. The test changes the boot id to simulate one."""
    async with Engine([paying(ledger)], journal=SqliteJournal(path, synchronous="normal")) as engine:
        assert (await said(engine, call("pay", id="c0", to="ann"), RUN)).success
        copy = path.read_bytes()
        assert (await said(engine, call("pay", id="c1", to="bob"), RUN)).success
    path.write_bytes(copy)
    with pytest.raises(UsageError, match="does not have event"):
        SqliteJournal(path)
    monkeypatch.setattr("callgate._journal.lock_file.this_boot", lambda: "another")
    await SqliteJournal(path).close()


def test_a_journal_whose_tables_were_only_in_the_lost_wal_is_refused(path: Path) -> None:
    """An older callgate did not write the tables to the database file at once."""
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA journal_mode=WAL")
    connection.close()
    Path(f"{path}.lock").write_text("callgate: there is a journal beside this file\n", encoding="ascii")
    with pytest.raises(UsageError, match=f"{path} has no tables, and there was a journal in it") as refused:
        SqliteJournal(path)
    assert f"its log {path}-wal was deleted" in str(refused.value)


def test_an_unreadable_lock_file_does_not_prevent_opening(path: Path, tmp_path: Path) -> None:
    """An older callgate may have written the lock file, or a power loss may have damaged it."""
    pay_and_crash(path, tmp_path / "ledger.txt")
    lock = Path(f"{path}.lock")
    whole = lock.read_bytes()
    for content in (whole[:46], whole[:-30], whole[:60] + b"7" + whole[61:], whole[:46] + bytes(160)):
        lock.write_bytes(content)
        SqliteJournal(path)


@pytest.mark.process
def test_verify_reports_missing_last_events(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pay_and_crash(path, tmp_path / "ledger.txt")
    reader = open_reader(path)
    assert len(list(reader.find(EventQuery()))) == 3
    assert reader.verify() is None
    reader.close()
    lose_log(path, "deleted")
    assert main(["log", "verify", "--journal", str(path)]) == 1
    assert "at event 3: it is missing: the journal had it" in capsys.readouterr().err.replace("\n", " ")
