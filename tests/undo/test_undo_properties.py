"""Property tests of undo over random trees and edits: undo restores the exact state, or refuses and changes nothing."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from callgate.undo import ChangeSource, UndoHistory, UndoLimits, UndoRefused
from tests.undo.undo_workspace import facts

NAMES = ["a", "b", "A", "ü", ".gitignore"]
SMALL = UndoLimits(declared_file_bytes=300, tree_file_bytes=64)
BIG = "a line of a file that is too large for a look at everything\n" * 2
paths = st.lists(st.sampled_from(NAMES), min_size=1, max_size=3).map("/".join)
edits = st.one_of(
    st.tuples(st.just("file"), paths, st.sampled_from(["", "one", "two\n", "\0\xff", "a\n", "/b/\n!b\n", BIG, BIG * 3])),
    st.tuples(st.just("link"), paths, st.sampled_from(["a", "../..", "/nowhere"])),
    st.tuples(st.just("folder"), paths, st.just("")),
    st.tuples(st.just("gone"), paths, st.just("")),
    st.tuples(st.just("rename"), paths, paths),
    st.tuples(st.just("mode"), paths, st.sampled_from(["600", "755", "444", "4755"])),
)
many = st.lists(edits, max_size=6)


def do(root: Path, edit: tuple[str, str, str]) -> None:
    """Apply one edit, as far as possible without following a link."""
    word, name, what = edit
    path = root / name
    above = list(path.relative_to(root).parents)[:-1]
    for parent in [root / one for one in reversed(above)]:
        if parent.is_symlink() or (parent.exists() and not parent.is_dir()):
            return
    if word == "rename":
        _rename(root, path, root / what)
        return
    if word == "mode":
        if path.exists() and not path.is_symlink():
            path.chmod(int(what, 8) | (0o700 if path.is_dir() else 0))
        return
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    elif os.path.lexists(path):
        path.unlink()
    if word == "gone":
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    match word:
        case "file":
            path.write_text(what)
        case "link":
            path.symlink_to(what)
        case "folder":
            path.mkdir()


def _rename(root: Path, path: Path, target: Path) -> None:
    above = [parent for parent in target.parents if parent.is_relative_to(root)]
    if os.path.lexists(path) and not os.path.lexists(target) and all(one.is_dir() and not one.is_symlink() for one in above):
        with suppress(OSError):  # moving a folder into itself fails
            path.rename(target)


def touched(body: Any) -> list[str]:
    """Return the writes that a call with these edits declares."""
    return [name for word, one, other in body for name in ((one, other) if word == "rename" else (one,))]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(start=many, calls=st.lists(st.tuples(many, many, st.booleans()), min_size=1, max_size=3), outside=many, which=st.integers(0, 3))
def test_undo_restores_exactly_or_refuses(start: Any, calls: Any, outside: Any, which: int) -> None:
    """Random trees are edited by declared and undeclared calls, and by outside edits before, between and after them."""
    with tempfile.TemporaryDirectory() as top:
        root = Path(top, "work")
        root.mkdir()
        for edit in start:
            do(root, edit)
        undo_history = UndoHistory(root, place=Path(top, "kept"), sync=False, limits=SMALL)
        found, left = {}, {}
        for number, (body, between, whole) in enumerate(calls):
            uid = f"r/0/{number}"
            found[uid] = facts(root)
            opened = undo_history.capture.begin(ChangeSource(uid=uid, run="r"), None if whole else touched(body))
            for edit in body:
                do(root, edit)
            undo_history.capture.finish(opened)
            left[uid] = facts(root)
            for edit in between if number + 1 < len(calls) else outside:
                do(root, edit)
        now = facts(root)
        words = "r" if which >= len(calls) else f"r/0/{which}"
        meant = [change for change in undo_history.changes() if words in (change.call.run, change.call.uid)]
        if not meant:
            return
        try:
            done = undo_history.undo(words)
        except UndoRefused:
            assert facts(root) == now
            return
        after = facts(root)
        first = {step.path: change.call.uid for change in reversed(meant) for step in change.steps}
        for path in set(now) | set(after) | set(first):
            wanted = found[first[path]] if path in first and path not in done.stay else now
            facts_told = slice(-1) if path in done.already else slice(None)  # an outside edit restored it, so its time differs
            assert after.get(path, ())[facts_told] == wanted.get(path, ())[facts_told], path
        last = {step.path: change.call.uid for change in meant for step in change.steps}
        if not done.stay and all(now.get(path) == left[uid].get(path) for path, uid in last.items()):
            undo_history.redo(words)
            assert facts(root) == now


def test_undo_refuses_a_fifo_created_by_a_call(tmp_path: Path) -> None:
    """A FIFO is neither stored nor opened."""
    root = tmp_path / "work"
    root.mkdir()
    undo_history = UndoHistory(root, place=tmp_path / "kept", sync=False)
    opened = undo_history.capture.begin(ChangeSource(uid="r/0/0", run="r"), None)
    os.mkfifo(root / "pipe")
    (root / "file").write_text("x")
    undo_history.capture.finish(opened)
    with pytest.raises(UndoRefused) as refused:
        undo_history.undo("r")
    assert {one.path for one in refused.value.conflicts} == {"pipe"}
    assert stat.S_ISFIFO((root / "pipe").lstat().st_mode)
