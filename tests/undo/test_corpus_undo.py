"""Tests of the undo cases of the corpus: a refused undo changes nothing, and a completed undo restores the exact state."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from callgate.undo import UndoFailed, UndoRefused
from tests.corpus_paths.path_inputs import Row, need, outside, prepare, rows, tree
from tests.undo.undo_workspace import Bench, Facts, facts

ROWS = [row for row in rows("paths.jsonl") if row.get("op") == "undo" or row.get("absent")]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.get("id", ""))
def test_each_corpus_case_is_undone_exactly_or_refused_as_expected(row: Row, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each case of paths.jsonl with op undo writes with the tool, applies `after_write`, and then undoes the call."""
    need(row)
    root = tree(tmp_path)
    prepare(tmp_path, row.get("setup", []))
    bench = Bench(root)
    bench.undo_store.of(root)
    before, beyond = facts(root), _beyond(tmp_path)
    uids = [bench.write(row["path"], f"written {number}") for number in range(row.get("writes", 1))]
    for step in row.get("after_write", []):
        _after(bench, tmp_path, *step)
    written = facts(root)
    with monkeypatch.context() as patched:
        if row.get("fault") == "enospc":
            patched.setattr("callgate._workspace.atomic_replace.os.write", _full)
        word = _undone(bench, uids[row.get("undo_which", len(uids)) - 1])
    assert word in row["expect"]["result"]
    assert facts(root) == (before if word == "allow" else written)
    assert _beyond(tmp_path) == beyond
    _check(row, bench, before, word, uids)


def _full(fd: int, data: object) -> int:
    raise OSError(28, os.strerror(28))


def _undone(bench: Bench, uid: str) -> str:
    try:
        bench.undo_history.undo(uid)
    except (UndoRefused, UndoFailed) as error:
        return f"deny{': a canary' * ('CANARY' in str(error))}"
    return "allow"


def _after(bench: Bench, top: Path, word: str, name: str, *rest: Any) -> None:
    match word:
        case "rmtree":
            shutil.rmtree(bench.root / name)
        case "corrupt_backup":
            step = next(step for step in bench.undo_history.changes()[-1].steps if step.path == name)
            stored = Path(bench.undo_history.folder, "objects", step.before.blob[:2], step.before.blob[2:])
            stored.chmod(0o600)
            stored.write_bytes(b"corrupt")
        case _:
            prepare(top, [[word, name, *rest]])


def _beyond(top: Path) -> Facts:
    """Return the state outside the workspace, without the store."""
    return {name: fact for name, fact in outside(top).items() if name.split("/")[0] != "kept"}


def _check(row: Row, bench: Bench, before: Facts, word: str, uids: list[str]) -> None:
    for item in row["expect"].get("inv", []):
        kind, _, rest = item.partition(":")
        if kind == "absent":
            assert not (bench.root / rest).exists()
        elif kind == "content":
            name, _, content = rest.partition("=")
            assert (bench.root / name).read_text() == content
        elif kind == "backup_kept_until_done":
            assert _undone(bench, uids[-1]) == "allow"
            assert facts(bench.root) == before
    assert not [name for _, _, files in os.walk(bench.root) for name in files if name.endswith(".tmp")]
