"""Tests that reading a journal creates no log, index or lock file and changes no byte."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from callgate import EventQuery, SqliteJournal, UsageError, inbox
from callgate._journal import open_reader
from callgate.cli import main
from callgate.events import Draft
from tests.waiting import COMMAND_S

COMMANDS = [["log", "verify"], ["log", "list"], ["log", "show", "r"], ["log", "stats"], ["approvals"]]


async def written(path: Path) -> None:
    journal = SqliteJournal(path)
    await journal.durable(journal.append(Draft(kind="call.received", run="r", call="r/0/0", body=b"{}")))
    await journal.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "kept" / "journal.db"
    path.parent.mkdir()
    asyncio.run(written(path))
    return path


def content(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: " ".join(words))
@pytest.mark.parametrize("lock", [True, False], ids=["with its lock", "alone"])
def test_a_command_that_only_reads_leaves_no_files(path: Path, words: list[str], lock: bool, capsys: pytest.CaptureFixture[str]) -> None:
    if not lock:
        path.with_name("journal.db.lock").unlink()
    before = content(path.parent)
    assert main([*words, "--journal", str(path)]) == 0
    capsys.readouterr()
    assert content(path.parent) == before


def test_readers_and_the_inbox_leave_no_files(path: Path) -> None:
    before = content(path.parent)
    for _ in range(2):
        reader, other = open_reader(path), open_reader(path)
        assert len(list(reader.find(EventQuery()))) == 1
        assert inbox.waiting(path) == []
        reader.close()
        assert other.verify() is None
        other.close()
    assert content(path.parent) == before


def test_the_wal_left_by_a_crash_is_read_and_not_changed(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The log belongs to the next engine that opens the journal."""

    async def crash() -> None:
        journal = SqliteJournal(path)
        await journal.durable(journal.append(Draft(kind="call.received", run="r", call="r/0/1", body=b"{}")))
        os._exit(0)

    child = os.fork()
    if not child:
        asyncio.run(crash())
    os.waitpid(child, 0)
    before = content(path.parent)
    assert before["journal.db-wal"]
    assert main(["log", "verify", "--journal", str(path)]) == 0
    assert "2 events" in capsys.readouterr().out
    after = content(path.parent)
    assert {**after, "journal.db-shm": b""} == {**before, "journal.db-shm": b""}


VERIFIES = """
import sys
from callgate.cli import main
sys.exit(main(["log", "verify", "--journal", sys.argv[1]]))
"""


@pytest.mark.process
@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("unshare") is None, reason="nobody can make a read-only file system here")
@pytest.mark.parametrize("log", [False, True], ids=["closed", "with a log"])
def test_a_journal_on_a_read_only_file_system_is_verified_or_refused(path: Path, log: bool) -> None:
    if log:
        path.with_name("journal.db-wal").write_bytes(b"x" * 40)
    before, folder = content(path.parent), path.parent
    bind = f"mount --bind {folder} {folder} && mount -o remount,ro,bind {folder}"
    if subprocess.run(["unshare", "-m", "sh", "-c", bind], capture_output=True, timeout=COMMAND_S, check=False).returncode:
        pytest.skip("nothing can be mounted here")
    program = f"import sys; sys.path[:] = {sys.path!r}\n{VERIFIES}"
    command = ["unshare", "-m", "sh", "-c", f'{bind} && exec "$0" "$@"', sys.executable, "-c", program, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_S, check=False)
    if log:
        assert done.returncode == 2
        assert "which cannot be read where nothing can be written. Copy both to another folder" in done.stderr.replace("\n", " ")
    else:
        assert (done.returncode, "every hash" in done.stdout) == (0, True), done.stderr
    assert content(folder) == before


def test_opening_a_database_that_is_not_a_journal_creates_no_files(tmp_path: Path) -> None:
    import apsw

    other = tmp_path / "other.db"
    connection = apsw.Connection(str(other))
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("CREATE TABLE notes (text)")
    connection.close()
    before = content(tmp_path)
    with pytest.raises(UsageError, match="is a database, but no journal"):
        open_reader(other)
    assert content(tmp_path) == before
