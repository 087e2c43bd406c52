"""Tests of folders that their owner may not read or write, run without root's rights: they affect only their own files."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from callgate.undo import UndoFailed, UndoRefused
from tests.undo.undo_workspace import Bench, facts

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="rights of root are laid down here as Linux has them")
_THIRD_VERSION = 0x20080522


def as_anybody(body: Callable[[], None]) -> None:
    """Run `body` without the capabilities of root, in a thread that cannot regain them."""

    def lay_down() -> None:
        head, nothing = (ctypes.c_uint32 * 2)(_THIRD_VERSION, 0), (ctypes.c_uint32 * 6)()
        assert ctypes.CDLL(None).capset(head, nothing) == 0

    with ThreadPoolExecutor(1, initializer=lay_down) as thread:
        thread.submit(body).result()


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    made = Bench(tmp_path / "work")
    (made.root / "d").mkdir()
    (made.root / "d/x").write_text("mine")
    (made.root / "f").write_text("mine")
    return made


@pytest.mark.parametrize("mode", ["000", "111", "444"])
def test_an_unreadable_folder_does_not_prevent_the_undo_of_other_calls(bench: Bench, mode: str) -> None:
    def body() -> None:
        bench.command(f"chmod {mode} d")
        uid = bench.command("echo theirs > f")
        assert [[step.path for step in change.steps] for change in bench.undo_history.changes()] == [["d", "d/x"], ["f"]]
        undone = bench.undo_history.undo(uid)
        assert undone.paths == ("f",)
        assert "1 path not looked at, as nobody may read there (d)" in undone.told[0]
        with pytest.raises(UndoRefused, match="d/x: its content was not kept"):
            bench.undo_history.undo("last")
        assert bench.undo_history.undo("last", paths=["d"]).paths == ("d",)

    before = facts(bench.root)
    as_anybody(body)
    assert facts(bench.root) == before


def test_changes_in_folders_that_became_read_only_are_undone_and_redone(bench: Bench) -> None:
    """Package caches, for example, make their folders read-only."""

    def body() -> None:
        bench.command("mkdir -p kept/deep && echo it > kept/deep/it && echo theirs > d/x && chmod 555 kept/deep kept d")
        after = facts(bench.root)
        bench.undo_history.undo("last")
        assert facts(bench.root) == before
        bench.undo_history.redo("last")
        assert facts(bench.root) == after

    before = facts(bench.root)
    as_anybody(body)


def test_a_failed_undo_leaves_folders_and_files_unchanged(bench: Bench) -> None:
    def body() -> None:
        (bench.root / "sub").mkdir()
        (bench.root / "sub/y").write_text("mine")
        bench.command("echo theirs > d/x && echo theirs > sub/y && chmod 555 d")
        (bench.root / "sub").chmod(0o555)  # changed from outside, so the undo cannot write there
        after = facts(bench.root)
        with pytest.raises(UndoFailed, match="sub/y"):
            bench.undo_history.undo("last")
        assert facts(bench.root) == after
        (bench.root / "sub").chmod(0o755)

    as_anybody(body)
    os.chmod(bench.root / "d", 0o755)
