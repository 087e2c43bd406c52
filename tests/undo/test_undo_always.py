"""Whatever the tree and the edits: undo restores exactly, or refuses and changes nothing."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from callgate.undo import Call, Shadow, UndoRefused
from tests.undo.bench import facts

NAMES = ["a", "b", "A", "ü"]
paths = st.lists(st.sampled_from(NAMES), min_size=1, max_size=3).map("/".join)
edits = st.one_of(
    st.tuples(st.just("file"), paths, st.sampled_from(["", "one", "two\n", "\0\xff"])),
    st.tuples(st.just("link"), paths, st.sampled_from(["a", "../..", "/nowhere"])),
    st.tuples(st.just("folder"), paths, st.just("")),
    st.tuples(st.just("gone"), paths, st.just("")),
    st.tuples(st.just("mode"), paths, st.sampled_from(["600", "755", "444"])),
)
many = st.lists(edits, max_size=6)


def do(root: Path, edit: tuple[str, str, str]) -> None:
    """One edit, as far as it can be done without following a link."""
    word, name, what = edit
    path = root / name
    above = list(path.relative_to(root).parents)[:-1]
    for parent in [root / one for one in reversed(above)]:
        if parent.is_symlink() or (parent.exists() and not parent.is_dir()):
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


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(start=many, calls=st.lists(st.tuples(many, st.booleans()), min_size=1, max_size=3), outside=many, which=st.integers(0, 3))
def test_undo_restores_exactly_or_refuses(start: Any, calls: Any, outside: Any, which: int) -> None:
    """Random trees, calls that edit them, and somebody else who edits them too."""
    with tempfile.TemporaryDirectory() as top:
        root = Path(top, "work")
        root.mkdir()
        for edit in start:
            do(root, edit)
        shadow = Shadow(root, place=Path(top, "kept"), sync=False)
        found = []
        for number, (body, whole) in enumerate(calls):
            found.append(facts(root))
            opened = shadow.keeping.begin(Call(uid=f"r/0/{number}", run="r"), None if whole else [edit[1] for edit in body])
            for edit in body:
                do(root, edit)
            shadow.keeping.finish(opened)
        left = facts(root)
        for edit in outside:
            do(root, edit)
        now = facts(root)
        words = "r" if which >= len(calls) else f"r/0/{which}"
        if not any(words in (change.call.run, change.call.uid) for change in shadow.changes()):
            return
        try:
            shadow.undo(words)
        except UndoRefused:
            assert facts(root) == now
            return
        after = facts(root)
        if words == "r" and now == left:
            assert after == found[0]
        if now == left:
            shadow.redo(words)
            assert facts(root) == left
        else:
            _untouched(shadow, found, now, after)


def _untouched(shadow: Shadow, found: Any, now: Any, after: Any) -> None:
    """What no call wrote is as somebody else left it."""
    written = {step.path for change in shadow.changes() if change.kind == "call" for step in change.steps}
    for path in set(now) | set(after):
        if path not in written:
            assert now.get(path) == after.get(path)


def test_an_edit_that_is_no_file_is_refused(tmp_path: Path) -> None:
    """A fifo in the place of a file: neither kept nor opened."""
    root = tmp_path / "work"
    root.mkdir()
    shadow = Shadow(root, place=tmp_path / "kept", sync=False)
    opened = shadow.keeping.begin(Call(uid="r/0/0", run="r"), None)
    os.mkfifo(root / "pipe")
    (root / "file").write_text("x")
    shadow.keeping.finish(opened)
    with pytest.raises(UndoRefused) as refused:
        shadow.undo("r")
    assert {one.path for one in refused.value.conflicts} == {"pipe"}
    assert stat.S_ISFIFO((root / "pipe").lstat().st_mode)
