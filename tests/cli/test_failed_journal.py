"""A journal that fails while a command writes to it: the user gets the reason, exactly once."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import apsw
import pytest

from callgate._journal.sqlite_store import failures
from callgate.errors import JournalFailed
from callgate.testing import Call
from tests.cli.run_process import DONE, ran
from tests.cli.shell import Ended, environment, shell

TOOL = """
import os
from callgate import tool

JOURNAL = ".callgate/journal.db"

@tool
def cut() -> str:
    "Cut the journal off."
    os.truncate(JOURNAL, 0)
    return "the result"

@tool
def delete() -> str:
    "Delete the journal."
    os.unlink(JOURNAL)
    return "the result"

@tool(effect="none")
def look() -> str:
    "Look, after the journal was cut off."
    os.truncate(JOURNAL, 0)
    return "the result"

@tool
def fill() -> str:
    "Let no file of this process grow."
    import resource
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
    return "the result"

@tool
def stop() -> str:
    "Do nothing."
    return ""
"""
TOOLS = ["cut", "delete", "look"]
CAUSES = re.compile(r"journal\.db (?:was cut off|was deleted or replaced|cannot be written or read any more)")
"""The last alternative appears if a commit was in progress when the file changed."""
FOR_PYTHON = re.compile(r"JournalFailed|RecordFailed|engine|operator|SqliteJournal")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "spoil.py").write_text(TOOL, encoding="utf-8")
    return tmp_path


def assert_told_once(shown: str) -> None:
    assert len(CAUSES.findall(shown)) == 1, shown
    assert ", and try again" in shown
    assert not FOR_PYTHON.search(shown), shown


@pytest.mark.parametrize("tool", TOOLS)
async def test_a_run_reports_the_reason_of_a_journal_failure_once(folder: Path, tool: str) -> None:
    """The line of the call, the line of the next call and the end of the run could each report it."""
    done: Ended = await ran(folder, [[Call(tool, {}), Call("stop", {})], DONE], "--tools", "spoil.py", "--yes")
    assert done.code == 1
    assert_told_once(done.err)
    assert "the end of this run is not on record" in done.err


@pytest.mark.parametrize(("tool", "code"), [("cut", 3), ("delete", 3), ("look", 1)])
def test_a_call_whose_journal_failed_still_shows_its_result(folder: Path, tool: str, code: int) -> None:
    """The user must learn that the tool ran, although the journal can no longer be read."""
    done = shell(folder, "call", tool, "--tools", "spoil.py")
    assert done.code == code, done.err
    assert f"{tool} ran" in done.out
    assert_told_once(done.out + done.err)


async def test_a_run_stopped_by_the_file_size_limit_names_the_limit(folder: Path) -> None:
    """SQLite itself reports only an I/O error."""
    done: Ended = await ran(folder, [[Call("fill", {}), Call("stop", {})], DONE], "--tools", "spoil.py", "--yes")
    assert done.code == 1
    assert done.err.count("this process may not write files of that size") == 1, done.err
    assert "Raise that limit (ulimit -f), or give another file with --journal, and try again" in done.err
    assert not FOR_PYTHON.search(done.err), done.err


@pytest.mark.parametrize("device", ["/dev/full", "/dev/null"])
@pytest.mark.parametrize(
    "words",
    [
        ("run", "Do it.", "--model", "any", "--base-url", "http://127.0.0.1:1", "--record"),
        ("call", "list_files", "--journal"),
        ("call", "list_files", "--journal", ":memory:", "--memory"),
    ],
    ids=["run", "call", "memory"],
)
def test_a_device_as_journal_or_memory_is_refused_and_no_files_are_made(folder: Path, words: tuple[str, ...], device: str) -> None:
    device_link = folder / "device"
    device_link.symlink_to(device)
    done = shell(folder, *words, str(device_link))
    assert (done.code, done.out) == (2, "")
    assert "it is not a regular file, so nothing can be kept in it. Give a file." in done.err
    assert not list(Path("/dev").glob(f"{Path(device).name}-*"))


@pytest.mark.parametrize("kibibytes", [8, 40])
def test_a_journal_that_exceeds_the_file_size_limit_names_the_limit(folder: Path, kibibytes: int) -> None:
    """Either the index of its write-ahead log exceeds the limit, or the log itself."""
    line = [sys.executable, "-m", "callgate.cli", "call", "list_files"]
    limit = kibibytes * 1024
    done = subprocess.run(
        ["prlimit", f"--fsize={limit}:{limit}", *line], cwd=folder, env=environment(), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "journal.db cannot be used as a journal: this process may not write files of that size." in done.stderr
    assert "Raise its limit (ulimit -f)" in done.stderr


@pytest.mark.parametrize("error", [apsw.FullError, apsw.IOError])
def test_a_full_disk_is_named_in_the_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[apsw.Error]) -> None:
    """The full disk is simulated: mounting a small file system needs privileges."""
    full = os.statvfs_result((4096, 4096, 100, 0, 0, 10, 10, 10, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda path: full)
    with pytest.raises(JournalFailed) as caught, failures(tmp_path / "journal.db"):
        raise error("disk")
    assert "the disk is full" in str(caught.value)
    assert "Make room on it" in str(caught.value)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, of one mebibyte."""
    place = tmp_path / "disk"
    place.mkdir()
    try:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", place], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("mounting a small file system needs privileges that this process does not have")
    yield place
    subprocess.run(["umount", "--lazy", place], check=True)


def test_commands_that_only_read_work_on_a_full_disk(small_disk: Path) -> None:
    """SQLite has no space for the index that it makes even to read, but nobody can write to the journal there either."""
    assert shell(small_disk, "call", "list_files", "--journal", "journal.db").code == 0
    with suppress(OSError), (small_disk / "rest").open("wb", buffering=0) as rest:
        while True:
            rest.write(bytes(1024))
    listed = shell(small_disk, "log", "list", "--journal", "journal.db")
    assert (listed.code, listed.err) == (0, "")
    assert "list_files" in listed.out
    for words in (("approvals",), ("settle",), ("log", "verify")):
        assert shell(small_disk, *words, "--journal", "journal.db").code == 0
    called = shell(small_disk, "call", "list_files", "--journal", "journal.db")
    assert called.code == 2
    assert "the disk is full. Make room" in called.err
    (small_disk / "rest").unlink()
    assert shell(small_disk, "call", "list_files", "--journal", "journal.db").code == 0


@pytest.mark.parametrize("words", [("log", "list"), ("approvals",), ("settle",)], ids=" ".join)
def test_a_command_that_only_reads_names_the_limit_that_keeps_it_from_making_the_index(folder: Path, words: tuple[str, ...]) -> None:
    """SQLite makes an index of the log beside the file, also to read it, and reports an I/O error if it cannot."""
    assert shell(folder, "call", "list_files").code == 0
    line = ["prlimit", "--fsize=1024:1024", sys.executable, "-m", "callgate.cli", *words]
    done = subprocess.run(line, cwd=folder, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "Raise its limit (ulimit -f)" in done.stderr
