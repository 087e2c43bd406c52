"""Every path of the corpus gets the expected answer, from the kernel and from the walk; nothing outside the root is read or changed."""

from __future__ import annotations

import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from callgate._workspace import PathNotFound, PathRefused, Workspace, strength
from callgate._workspace.open_beneath import Opener, open_by_kernel, open_by_walk
from tests.corpus_paths.path_inputs import Row, need, outside, prepare, rows, tree, value

ROUNDS = 2000
SKIPPED_OPS = {"undo"}
ROWS = [row for row in rows("paths.jsonl") if row.get("op") not in SKIPPED_OPS]
OPENERS = [open_by_kernel, open_by_walk] if strength() == "kernel" else [open_by_walk]


def _name(item: object) -> str:
    return str(item.get("id", "")) if isinstance(item, dict) else getattr(item, "__name__", str(item))


def _place(text: str, top: Path) -> str:
    root = str(top / "root")
    return text.replace("{ROOT}", root).replace("{ROOT_UPPER}", root.upper()).replace("{T}", str(top))


def _do(workspace: Workspace, row: Row, path: str, path2: str) -> object:
    actions: dict[str, Callable[[], object]] = {
        "read": lambda: workspace.read_bytes(path),
        "write": lambda: workspace.write_bytes(path, b"written"),
        "append": lambda: workspace.append(path, b"added"),
        "create": lambda: workspace.create(path, b"created"),
        "delete": lambda: workspace.delete(path),
        "mkdir": lambda: workspace.mkdir(path),
        "rename": lambda: workspace.rename(path, path2),
        "copy": lambda: workspace.copy(path, path2),
        "list": lambda: workspace.list_dir(path),
        "glob": lambda: workspace.glob(path),
    }
    return actions[row["op"]]()


def _answer(workspace: Workspace, row: Row, path: str, path2: str) -> tuple[str, object]:
    if row.get("profile") == "guarded" and (workspace.protected(path) or (path2 and workspace.protected(path2))):
        return "ask", ""
    try:
        return "allow", _do(workspace, row, path, path2)
    except PathNotFound as error:
        return "not_found", str(error)
    except PathRefused as error:
        return "deny", str(error)


def _accepted(row: Row) -> set[str]:
    expected = set(row["expect"]["result"])
    return expected | {"not_found"} if "deny" in expected else expected


@pytest.mark.parametrize("opener", OPENERS, ids=_name)
@pytest.mark.parametrize("row", [row for row in ROWS if "race" not in row], ids=_name)
def test_a_path_gets_the_expected_answer_and_exposes_or_changes_nothing_outside(row: Row, opener: Opener, tmp_path: Path) -> None:
    """Checks `expect.result` of paths.jsonl and the general invariants."""
    need(row)
    root = tree(tmp_path)
    swaps = [step for step in row.get("setup", []) if step[0].startswith("swap_")]
    prepare(tmp_path, [step for step in row.get("setup", []) if step not in swaps])
    with Workspace(root, opener=opener, sync=False) as workspace:
        prepare(tmp_path, swaps)
        before = outside(tmp_path)
        word, seen = _answer(workspace, row, _place(value(row["path"]), tmp_path), _place(value(row.get("path2", "")), tmp_path))
        held = bool(swaps) and seen == b"inside"  # the open handle still reads the old content, never that of the new target
        assert word in _accepted(row) or held, (word, seen)
        assert outside(tmp_path) == before
        _check_invariants(row, tmp_path, word, seen)


def _check_invariants(row: Row, top: Path, word: str, seen: object) -> None:
    wanted = row["expect"].get("inv", [])
    if "canary_may_be_read" not in wanted:
        assert "CANARY" not in str(seen)
    root = top / "root"
    for item in wanted:
        kind, _, rest = item.partition(":")
        if kind == "unchanged":
            assert (root / rest).read_text() == "inside"
        elif kind == "result_excludes":
            assert rest not in str(seen)
    if "same_file" in row["expect"] and word == "allow":
        assert seen == (root / row["expect"]["same_file"]).read_bytes()
    assert not [name for name in _all_names(root) if name.endswith(".tmp")]
    if word != "allow":
        str(seen).encode()  # a message is valid UTF-8, whatever the path is
        assert len(str(seen)) < 4096


def _all_names(root: Path) -> list[str]:
    return [name for _, folders, files in os.walk(root) for name in [*folders, *files]]


@pytest.fixture
def restless() -> Iterator[None]:
    """Make threads switch a thousand times more often than usual."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(5e-6)
    yield
    sys.setswitchinterval(usual)


@pytest.mark.usefixtures("restless")
@pytest.mark.parametrize("opener", OPENERS, ids=_name)
@pytest.mark.parametrize("row", [row for row in ROWS if "race" in row or row.get("absent")], ids=_name)
def test_a_race_never_exposes_or_changes_anything_outside(row: Row, opener: Opener, tmp_path: Path) -> None:
    """Rows of paths.jsonl in the class `race`: a second thread swaps links and folders while the tool works."""
    need(row)
    root = tree(tmp_path)
    prepare(tmp_path, row.get("setup", []))
    race = row["race"]
    if "writers" in race:
        _two_writers(root, row["path"], opener)
        return
    if opener is not open_by_kernel and "movedir" in race:
        pytest.skip("only the kernel sees a folder that is moved out during a walk")
    before = outside(tmp_path)
    answers: Counter[str] = Counter()
    with Workspace(root, sync=False, opener=opener) as workspace, _swapping(root, race):
        for _ in range(ROUNDS):
            word, seen = _answer(workspace, row, _place(value(row["path"]), tmp_path), value(row.get("path2", "")))
            answers[word] += 1
            assert "CANARY" not in str(seen)
    after = outside(tmp_path)
    after.pop("moved", None)
    assert {name: facts for name, facts in after.items() if not name.startswith("moved/")} == before
    assert answers.total() == ROUNDS


@contextmanager
def _swapping(root: Path, race: dict[str, Any]) -> Iterator[None]:
    """Swap what the row names, as fast as possible, until the block ends."""
    done = threading.Event()
    started = threading.Event()

    def swap() -> None:
        turn = 0
        while not done.is_set():
            turn += 1
            with suppress(OSError):
                _swap_once(root, race, turn)
            started.set()

    thread = threading.Thread(target=swap)
    thread.start()
    started.wait(5)
    try:
        yield
    finally:
        done.set()
        thread.join()


def _swap_once(root: Path, race: dict[str, Any], turn: int) -> None:
    for word in ("swap", "swapdir"):
        if word in race:
            name, one, other = race[word]
            draft = root / f"draft-{turn}"
            draft.symlink_to(one if turn % 2 else other)
            draft.rename(root / name)
    if "movedir" in race:
        name, away = race["movedir"]
        (root / name).mkdir(exist_ok=True)
        (root / name).rename(root / away)
        (root / away).rename(root / name)


def _two_writers(root: Path, path: str, opener: Opener) -> None:
    contents = [b"a" * 70_000, b"b" * 70_000]
    torn: list[bytes] = []
    with Workspace(root, sync=False, opener=opener) as workspace:
        workspace.write_bytes(path, contents[0])

        def write(content: bytes) -> None:
            for _ in range(500):
                workspace.write_bytes(path, content)

        threads = [threading.Thread(target=write, args=(content,)) for content in contents]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            found = workspace.read_bytes(path)
            if found not in contents:
                torn.append(found)
        assert not torn
        assert workspace.read_bytes(path) in contents


def test_only_rows_that_need_undo_are_skipped() -> None:
    """The whole corpus is run; rows that cannot run are named here."""
    every = rows("paths.jsonl")
    need(every[0])
    assert {row["op"] for row in every} - {row["op"] for row in ROWS} == SKIPPED_OPS
