"""Staged files of a process that is killed during a write: they are removed, and no other file is mistaken for one."""

from __future__ import annotations

import fcntl
import os
import signal
from pathlib import Path

import pytest

from callgate._workspace import Workspace
from callgate._workspace.staged_file import staged_name
from callgate.undo import UndoHistory
from tests.forked_python import python

pytestmark = pytest.mark.process

_KILLED = """
import asyncio, os, signal, sys
from callgate import Engine, RawCall, Scope
from callgate.builtins import workspace_tools
from callgate.undo import UndoStore

work, kept, path, step, names = sys.argv[1:]
if names == "named":
    del os.O_TMPFILE

real = getattr(os, step)

def die(*given, **where):
    if kept and not where:  # this is not the file, but what is kept of it
        return real(*given)
    os.kill(os.getpid(), signal.SIGKILL)

setattr(os, step, die)

async def main():
    async with Engine(workspace_tools(), undo=UndoStore(kept) if kept else None) as engine:
        await engine.call(RawCall(name="write_file", arguments={"path": path, "content": "new"}), Scope(run="r", workspace=work))

asyncio.run(main())
"""


def killed(work: Path, path: str, step: str, names: str, kept: str = "") -> None:
    """Run a `write_file` whose process is killed at this step."""
    assert python(_KILLED, str(work), kept, path, step, names).code == -signal.SIGKILL


@pytest.mark.skipif(not hasattr(os, "O_TMPFILE"), reason="this system has no files without a name")
@pytest.mark.parametrize("path", ["old", "new"])
def test_a_write_killed_before_its_file_is_complete_leaves_no_staged_file(tmp_path: Path, path: str) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "old").write_text("old")
    killed(work, path, "fsync", "nameless")
    assert {one.name: one.read_text() for one in work.iterdir()} == {"old": "old"}


@pytest.mark.parametrize(("step", "names"), [("fsync", "named"), ("rename", "nameless")])
def test_the_next_write_removes_the_staged_file_of_a_killed_write(tmp_path: Path, step: str, names: str) -> None:
    """A resumed run removes the staged file in this way."""
    work = tmp_path / "work"
    work.mkdir()
    (work / "old").write_text("old")
    killed(work, "old", step, names)
    assert sorted(os.listdir(work)) == [staged_name("old"), "old"]
    Workspace(work).write_bytes("old", b"again")
    assert {one.name: one.read_text() for one in work.iterdir()} == {"old": "again"}


@pytest.mark.parametrize("names", ["named", "nameless"])
def test_reading_the_undo_history_removes_the_staged_file_of_a_killed_write(tmp_path: Path, names: str) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "old").write_text("old")
    killed(work, "old", "rename", names, str(tmp_path / "kept"))
    assert sorted(os.listdir(work)) == [staged_name("old"), "old"]
    assert UndoHistory(work, place=tmp_path / "kept").changes() == []
    assert {one.name: one.read_text() for one in work.iterdir()} == {"old": "old"}


@pytest.mark.parametrize("names", ["named", "nameless"])
def test_a_locked_staged_file_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: str) -> None:
    if names == "named":
        monkeypatch.delattr(os, "O_TMPFILE", raising=False)
    (tmp_path / "old").write_text("old")
    with open(tmp_path / staged_name("old"), "w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        Workspace(tmp_path).write_bytes("old", b"new")
    assert {one.name: one.read_text() for one in tmp_path.iterdir()} == {"old": "new", staged_name("old"): ""}


def test_a_directory_with_the_name_of_a_staged_file_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("old")
    (tmp_path / staged_name("old")).mkdir()
    Workspace(tmp_path).write_bytes("old", b"new")
    assert (tmp_path / "old").read_text() == "new"
    assert (tmp_path / staged_name("old")).is_dir()
