"""Tests of a workspace of ten thousand files: the cost of a call depends on what it changes. The tests count objects and reads."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from callgate.undo import ChangeSource, UndoHistory

COUNT = 10_000


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("large") / "work"
    old = time.time_ns() - 10**12
    for number in range(COUNT):
        path = root / f"{number % 100:02}" / f"{number}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{number}")
        os.utime(path, ns=(old, old))
    return root


def test_a_write_of_one_of_ten_thousand_files_stores_at_most_ten_objects(large: Path, tmp_path: Path) -> None:
    """A call that declares its file examines no other file."""
    undo_history = UndoHistory(large, place=tmp_path / "kept", sync=False)
    opened = undo_history.capture.begin(ChangeSource(uid="r/0/0", run="r"), ["07/7.txt"])
    (large / "07/7.txt").write_text("new")
    undo_history.capture.finish(opened)
    assert undo_history.capture.objects.written <= 10
    assert undo_history.capture.snapshots.read == 0
    assert undo_history.undo("r").paths == ("07/7.txt",)


def test_a_second_command_stores_only_what_has_changed(large: Path, tmp_path: Path) -> None:
    """The first snapshot reads every file; later ones read only files with changed or very recent metadata."""
    undo_history = UndoHistory(large, place=tmp_path / "kept", sync=False)
    capture = undo_history.capture
    assert capture.finish(capture.begin(ChangeSource(uid="r/0/0", run="r"), None)) is None
    read, written = capture.snapshots.read, capture.objects.written
    assert read >= COUNT
    opened = capture.begin(ChangeSource(uid="r/0/1", run="r"), None)
    (large / "09/9.txt").write_text("new")
    (large / "new.txt").write_text("new")
    assert capture.finish(opened) is not None
    assert capture.objects.written - written <= 12
    assert undo_history.undo("r").paths == ("09/9.txt", "new.txt")
