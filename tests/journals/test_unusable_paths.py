"""Tests of paths that cannot hold a journal: the library and the command line report a typed error with the cause and the next step."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from callgate import DirectoryBlobs, SqliteCache, SqliteJournal, UsageError
from callgate._journal import open_reader
from callgate._journal.inbox_sender import open_inbox
from callgate.cli import main
from callgate.errors import JournalFailed
from callgate.memory import Memory
from tests.waiting import COMMAND_S


def circle(folder: Path) -> str:
    (folder / "a").symlink_to(folder / "b")
    (folder / "b").symlink_to(folder / "a")
    return str(folder / "a" / "journal.db")


def under_a_file(folder: Path) -> str:
    (folder / "file").write_text("x", encoding="ascii")
    return str(folder / "file" / "sub" / "journal.db")


def with_nul(folder: Path) -> str:
    return f"{folder}/jour\0nal.db"


def too_long(folder: Path) -> str:
    return f"{folder}/{'j' * 300}.db"


def only_its_lock_is_too_long(folder: Path) -> str:
    return f"{folder}/{'j' * 249}.db"


def a_folder(folder: Path) -> str:
    (folder / "sub").mkdir()
    return str(folder / "sub")


def in_a_missing_folder(folder: Path) -> str:
    return str(folder / "typo" / "sub" / "journal.db")


BAD: list[tuple[Callable[[Path], str], str]] = [
    (circle, "its symbolic links lead in a circle"),
    (under_a_file, "file is a file and no folder. Give a path in a folder"),
    (with_nul, "its name has a NUL character"),
    (too_long, "the name is too long"),
]
WRITERS_ONLY: list[tuple[Callable[[Path], str], str]] = [
    (only_its_lock_is_too_long, "the name is too long"),
    (a_folder, "it is a folder"),
    (in_a_missing_folder, "typo does not exist. Create it, or correct the path"),
]


@pytest.mark.parametrize(("make", "why"), [*BAD, *WRITERS_ONLY], ids=lambda value: getattr(value, "__name__", ""))
def test_an_unusable_journal_path_is_refused_for_writing_with_the_cause(
    tmp_path: Path, make: Callable[[Path], str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = make(tmp_path)
    with pytest.raises(UsageError) as refused:
        SqliteJournal(path)
    assert why in str(refused.value)
    assert "cannot be used as a journal" in str(refused.value)
    assert main(["call", "list_files", "--journal", path]) == 2
    said = capsys.readouterr().err.replace("\n", " ")
    assert "Traceback" not in said
    if "\0" not in path:
        assert why in said


@pytest.mark.parametrize(("make", "why"), BAD, ids=lambda value: getattr(value, "__name__", ""))
def test_an_unusable_journal_path_is_refused_for_reading_with_the_cause(
    tmp_path: Path, make: Callable[[Path], str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = make(tmp_path)
    with pytest.raises(UsageError) as refused:
        open_reader(path)
    assert why in str(refused.value)
    with pytest.raises(UsageError), open_inbox(path):
        pass
    for command in (["log", "list"], ["log", "verify"], ["approvals"]):
        assert main([*command, "--journal", path]) == 2
        assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize(("make", "why"), BAD, ids=lambda value: getattr(value, "__name__", ""))
@pytest.mark.parametrize("opened", [DirectoryBlobs, SqliteCache, Memory])
def test_blobs_cache_and_memory_refuse_an_unusable_path_with_the_cause(
    tmp_path: Path, make: Callable[[Path], str], why: str, opened: Callable[[str], object]
) -> None:
    with pytest.raises(UsageError) as refused:
        opened(make(tmp_path))
    assert why in str(refused.value)


def test_a_lock_file_that_is_a_link_is_refused_and_its_target_stays_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A repository can contain the link, and then a command in it would empty and overwrite any file of the user."""
    target, lock = tmp_path / "mine.txt", tmp_path / "journal.db.lock"
    target.write_text("precious", encoding="ascii")
    lock.symlink_to(target)
    with pytest.raises(UsageError, match=r"journal\.db\.lock is a symbolic link"):
        SqliteJournal(tmp_path / "journal.db")
    assert main(["call", "list_files", "--journal", str(tmp_path / "journal.db")]) == 2
    assert "Delete the link" in capsys.readouterr().err.replace("\n", " ")
    assert target.read_text(encoding="ascii") == "precious"
    lock.unlink()
    lock.symlink_to(tmp_path / "new.txt")
    with pytest.raises(UsageError, match="symbolic link"):
        SqliteJournal(tmp_path / "journal.db")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["journal.db.lock", "mine.txt"]


async def test_blobs_that_cannot_be_stored_report_the_cause(tmp_path: Path) -> None:
    journal = SqliteJournal(tmp_path / "journal.db")
    (tmp_path / "journal.db.blobs").write_text("in the way", encoding="ascii")
    with pytest.raises(JournalFailed, match=r"5 bytes cannot be kept\. .* is a file and no folder"):
        journal.blobs.put(b"large")
    assert journal.blobs.get("0" * 64) is None
    await journal.close()


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """Provide a folder that every user can access."""
    folder = Path(tempfile.mkdtemp(prefix="callgate-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


OPENS = """
import os, sys
import apsw
from callgate import SqliteJournal
from callgate._journal import open_reader
from callgate.errors import CallgateError
if sys.argv[3] != "-":
    os.setgroups([])
    os.setgid(int(sys.argv[3]))
    os.setuid(int(sys.argv[3]))
try:
    {"write": SqliteJournal, "read": open_reader}[sys.argv[1]](sys.argv[2])
except CallgateError as error:
    print(error)
"""


def said_by(*command: object) -> str:
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=COMMAND_S, check=False, cwd="/")
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.process
@pytest.mark.skipif(os.geteuid() != 0 or sys.platform != "linux", reason="only root can become somebody else")
@pytest.mark.parametrize("how", ["write", "read"])
def test_missing_access_rights_are_reported_with_the_next_step(open_folder: Path, how: str) -> None:
    path = open_folder / "journal.db"
    SqliteJournal(path)
    path.chmod(0o600)
    program = f"import sys; sys.path[:] = {sys.path!r}\n{OPENS}"
    said = said_by(sys.executable, "-c", program, how, path, 65534)
    assert "has no right to it" in said
    assert "Give that user the right" in said


@pytest.mark.process
@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("unshare") is None, reason="nobody can make a read-only file system here")
def test_a_read_only_file_system_is_reported_as_the_cause(tmp_path: Path) -> None:
    program = f"import sys; sys.path[:] = {sys.path!r}\n{OPENS}"
    place = tmp_path / "place"
    place.mkdir()
    asyncio.run(SqliteJournal(place / "journal.db").close())
    bind = f"mount --bind {place} {place} && mount -o remount,ro,bind {place}"
    try:
        said_by("unshare", "-m", "sh", "-c", bind)
    except AssertionError as error:
        pytest.skip(f"nothing can be mounted here: {error}")
    inside = ("unshare", "-m", "sh", "-c", f'{bind} && exec "$0" "$@"', sys.executable, "-c", program)
    for name in ("journal.db", "new.db"):
        assert "its file system is read-only. Give one that can be written to." in said_by(*inside, "write", place / name, "-")
    assert said_by(*inside, "read", place / "journal.db", "-") == ""


def test_a_journal_makes_no_folder_but_its_own(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        SqliteJournal(tmp_path / "typo" / ".callgate" / "journal.db")
    assert list(tmp_path.iterdir()) == []
    asyncio.run(SqliteJournal(tmp_path / ".callgate" / "journal.db").close())
    assert (tmp_path / ".callgate" / ".gitignore").read_text() == "*\n"
