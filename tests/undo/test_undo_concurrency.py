"""What others do to the workspace and to the undo store while a call is about to begin."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from callgate.errors import UsageError
from callgate.undo import ChangeSource, UndoHistory, UndoRefused

CALLS, FILES = 40, 300


def history(top: Path) -> UndoHistory:
    return UndoHistory(top / "work", place=top / "kept", sync=False)


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    for number in range(FILES):
        (folder / str(number)).write_text(f"old {number}")
    return folder


def test_no_old_content_is_lost_to_another_process_that_prunes_while_calls_begin(tmp_path: Path, work: Path) -> None:
    ended = threading.Event()

    def prune() -> None:
        other = history(tmp_path)
        while not ended.is_set():
            with suppress(UsageError):  # a call has begun and not finished
                other.prune(keep_days=0)

    pruning = threading.Thread(target=prune)
    pruning.start()
    try:
        ours, damaged = history(tmp_path), []
        for call in range(CALLS):
            opened = ours.capture.begin(ChangeSource(uid=f"r/0/{call}", run="r"), None)
            for number in range(call, FILES, CALLS):
                (work / str(number)).write_text(f"new {call}")
            ours.capture.finish(opened)
            with suppress(UsageError):  # it was pruned since
                try:
                    ours.undo(f"r/0/{call}", dry_run=True)
                except UndoRefused as refused:
                    damaged += [one.text for one in refused.conflicts]
        assert not damaged
    finally:
        ended.set()
        pruning.join()


@pytest.mark.parametrize("step", ["open", "readlink"])
def test_what_vanishes_while_a_call_begins_does_not_keep_its_changes_from_being_stored(
    tmp_path: Path, work: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    brief, real = work / "brief", getattr(os, step)
    brief.write_text("for a moment") if step == "open" else brief.symlink_to("0")

    def vanished(path: Any, *rest: Any, **more: Any) -> Any:
        if path == "brief":
            brief.unlink(missing_ok=True)
        return real(path, *rest, **more)

    ours = history(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(os, step, vanished)
        opened = ours.capture.begin(ChangeSource(uid="r/0/0", run="r"), None)
    (work / "7").write_text("new")
    change = ours.capture.finish(opened)
    assert change is not None
    assert [step.path for step in change.steps] == ["7"]
    ours.undo("r")
    assert (work / "7").read_text() == "old 7"
