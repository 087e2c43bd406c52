"""Tests of kills, concurrent calls and pruning: the undo store stays valid, and no change is assigned to the wrong call."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from callgate._workspace.atomic_replace import put
from callgate.errors import CallgateError, UsageError
from callgate.undo import ChangeSource, UndoFailed, UndoHistory, UndoLimits, UndoRefused
from tests.forked_python import python
from tests.undo.undo_workspace import Bench, facts

_KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
from callgate import Engine, RawCall, Scope, tool
from callgate.undo import UndoStore

@tool(effect="once", category="dangerous")
def half(place: str) -> str:
    "Write, and take everything down."
    Path(place, "in.txt").write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
    return ""

async def main():
    async with Engine([half], undo=UndoStore(sys.argv[2])) as engine:
        await engine.call(RawCall(name="half", arguments={"place": sys.argv[1]}), Scope(run="r", workspace=sys.argv[1]))

asyncio.run(main())
"""


@pytest.mark.process
def test_a_killed_call_is_undone_only_with_interrupted_true(tmp_path: Path) -> None:
    """The old content is stored before the tool may write, so a kill during the call does not lose it."""
    root = tmp_path / "work"
    root.mkdir()
    (root / "in.txt").write_text("mine")
    before = facts(root)
    assert python(_KILLED, str(root), str(tmp_path / "kept")).code == -signal.SIGKILL
    undo_history = UndoHistory(root, place=tmp_path / "kept")
    with pytest.raises(UndoRefused) as refused:
        undo_history.undo("r")
    assert {(one.path, one.why) for one in refused.value.conflicts} == {("in.txt", "interrupted")}
    undo_history.undo("r", interrupted=True)
    assert facts(root) == before


_KILLED_SIDE_BY_SIDE = """
import os, signal, sys
from pathlib import Path
from callgate.undo import ChangeSource, UndoHistory

root = Path(sys.argv[1])
undo_history = UndoHistory(root, place=sys.argv[2])
roots = [None, ["done"], None, ["begun"]]
calls = [undo_history.capture.begin(ChangeSource(uid=f"r/0/{at}", run="r"), keys) for at, keys in enumerate(roots)]
for name in ("done", "begun", "other"):
    (root / name).write_text("the run's")
undo_history.capture.finish(calls[1])
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.process
def test_a_run_whose_concurrent_calls_were_killed_is_undone_as_a_whole(tmp_path: Path) -> None:
    """Two commands and two calls with declared writes run at once, one of which has ended; each path belongs to one call."""
    root = tmp_path / "work"
    root.mkdir()
    for name in ("done", "other"):
        (root / name).write_text("mine")
    before = facts(root)
    assert python(_KILLED_SIDE_BY_SIDE, str(root), str(tmp_path / "kept")).code == -signal.SIGKILL
    undo_history = UndoHistory(root, place=tmp_path / "kept")
    found = {change.call.uid: [step.path for step in change.steps] for change in undo_history.changes()}
    assert (found.pop("r/0/1"), found.pop("r/0/3"), list(found.values())) == (["done"], ["begun"], [["other"]])
    undo_history.undo("r", interrupted=True)
    assert facts(root) == before


def test_writes_of_two_runs_to_one_file_form_a_gapless_chain_of_changes(tmp_path: Path) -> None:
    """In paths.jsonl, class race, each change must begin with the content that the previous change ended with."""
    (tmp_path / "work").mkdir()
    undo_history = UndoHistory(tmp_path / "work", place=tmp_path / "kept", sync=False)
    path = Path(undo_history.workspace, "same.txt")
    turn = threading.Lock()

    def write(who: str) -> None:
        for number in range(20):
            with turn:  # an engine also serialises calls with the same key
                opened = undo_history.capture.begin(ChangeSource(uid=f"{who}/0/{number}", run=who), ["same.txt"])
                path.write_text(f"{who} {number}")
                undo_history.capture.finish(opened)

    threads = [threading.Thread(target=write, args=(who,)) for who in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    steps = [change.steps[0] for change in undo_history.changes()]
    assert len(steps) == 40
    assert all(one.after.blob == two.before.blob for one, two in pairwise(steps))
    assert not undo_history.verify()


def test_a_command_change_does_not_include_a_concurrent_declared_write(tmp_path: Path) -> None:
    """A write that another call declares belongs to that call only."""
    root = tmp_path / "work"
    root.mkdir()
    undo_history = UndoHistory(root, place=tmp_path / "kept", sync=False)
    command = undo_history.capture.begin(ChangeSource(uid="c/0/0", run="c"), None)
    write = undo_history.capture.begin(ChangeSource(uid="w/0/0", run="w"), ["w.txt"])
    (root / "w.txt").write_text("w")
    (root / "c.txt").write_text("c")
    undo_history.capture.finish(write)
    undo_history.capture.finish(command)
    assert undo_history.undo("c").paths == ("c.txt",)
    assert undo_history.undo("w").paths == ("w.txt",)


def test_a_link_swapped_in_during_undo_or_redo_is_not_followed(tmp_path: Path) -> None:
    """A second thread replaces a folder by a link to the outside while undo and redo run."""
    root, outside = tmp_path / "work", tmp_path / "outside"
    outside.mkdir()
    (outside / "f.txt").write_text("CANARY")
    bench = Bench(root)
    uid = bench.write("d/f.txt", "CANARY")
    done = threading.Event()

    def swap() -> None:
        while not done.is_set():
            with suppress(OSError):
                os.rename(root / "d", root / "real")
                (root / "d").symlink_to(outside)
            with suppress(OSError):
                (root / "d").unlink()
                os.rename(root / "real", root / "d")

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        for _ in range(50):
            for act in (bench.undo_history.undo, bench.undo_history.redo):
                with suppress(CallgateError):  # refused or failed with an error
                    act(uid)
    finally:
        done.set()
        thread.join()
    assert (outside / "f.txt").read_text() == "CANARY"
    assert os.listdir(outside) == ["f.txt"]


def test_a_lost_commit_does_not_prevent_the_undo_of_other_calls(tmp_path: Path) -> None:
    """A power loss or a bad disk may lose a commit; its changes then count as outside edits."""
    bench = Bench(tmp_path / "work")
    first = bench.write("one.txt", "1")
    bench.write("one.txt", "2")
    other, last = bench.write("two.txt", "x"), bench.write("one.txt", "3")
    lost = bench.undo_history.changes()[1].commit
    Path(bench.undo_history.folder, "objects", lost[:2], lost[2:]).unlink()
    assert [change.call.uid for change in bench.undo_history.changes()] == [first, other, last]
    assert bench.undo_history.verify()
    with pytest.raises(UndoRefused) as refused:
        bench.undo_history.undo("run")
    assert {(one.path, one.why) for one in refused.value.conflicts} == {("one.txt", "changed_between")}
    assert bench.undo_history.undo(last).paths == ("one.txt",)
    assert (bench.root / "one.txt").read_text() == "2"


def test_prune_removes_old_changes_that_no_checkpoint_needs(tmp_path: Path) -> None:
    """Explicit checkpoints are kept for ever, together with every later change."""
    bench = Bench(tmp_path / "work")
    bench.write("one.txt", "1")
    bench.write("one.txt", "2")
    bench.undo_history.checkpoint("mark")
    last = bench.write("one.txt", "3")
    assert bench.undo_history.prune(keep_days=0) == 1
    bench.undo_history.undo("mark")
    assert (bench.root / "one.txt").read_text() == "2"
    assert not bench.undo_history.verify()
    bench.undo_history.checkpoints.drop("mark")
    assert bench.undo_history.prune(keep_days=30) == 0
    bench.undo_history.redo(last)
    assert bench.undo_history.prune(keep_days=0) == 4
    assert bench.undo_history.changes() == []
    bench.undo_history.undo(bench.write("one.txt", "4"))
    assert (bench.root / "one.txt").read_text() == "3"


@pytest.mark.parametrize("at", ["before anything is deleted", "after the first file"])
def test_an_interrupted_prune_leaves_no_partial_change(at: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A partly deleted change is not listed any more, and the next prune deletes the rest of it."""
    bench = Bench(tmp_path / "work")
    old = bench.write("one.txt", "1")
    (lost,) = (change.commit for change in bench.undo_history.changes())
    kept = [bench.write("one.txt", "2")]
    bench.undo_history.checkpoint("mark")
    kept.append(bench.write("one.txt", "3"))
    deleted: list[object] = []
    unlink = os.unlink

    def cut(path: Any, **where: Any) -> None:
        if f"{os.sep}objects{os.sep}" in str(path):
            if at.startswith("before") or deleted:
                raise InterruptedError("the power goes")
            deleted.append(path)
        unlink(path, **where)

    with monkeypatch.context() as patch:
        patch.setattr("os.unlink", cut)
        with pytest.raises(InterruptedError):
            bench.undo_history.prune(keep_days=0)
    assert [change.call.uid for change in bench.undo_history.changes()] == kept
    assert not bench.undo_history.verify()
    with pytest.raises(UsageError, match="does not say what is meant"):
        bench.undo_history.undo(old)
    bench.undo_history.undo("mark")
    assert (bench.root / "one.txt").read_text() == "2"
    bench.undo_history.checkpoints.drop("mark")
    assert bench.undo_history.prune(keep_days=0) == 3
    assert not Path(bench.undo_history.folder, "objects", lost[:2], lost[2:]).exists()


def test_undo_refuses_files_beyond_the_snapshot_limit(tmp_path: Path) -> None:
    """The undo of the whole call is refused with the limit."""
    bench = Bench(tmp_path / "work", limits=UndoLimits(tree_entries=3))
    for number in range(5):
        (bench.root / f"{number}").write_text("x")
    bench.command("for f in *; do echo y >> $f; done")
    with pytest.raises(UndoRefused) as refused:
        bench.undo_history.undo("last")
    assert {one.why for one in refused.value.conflicts} == {"not_kept"}


def engines(tmp_path: Path) -> tuple[Path, UndoHistory, UndoHistory]:
    """Return a workspace, and the undo histories of two engines as in two processes."""
    root = tmp_path / "work"
    root.mkdir()
    (root / "in.txt").write_text("mine")
    return root, *(UndoHistory(root, place=tmp_path / "kept", sync=False) for _ in range(2))  # type: ignore[return-value]


def test_a_command_change_does_not_include_concurrent_writes_of_another_engine(tmp_path: Path) -> None:
    """Two engines share a workspace: undo of one engine's command keeps the other engine's file."""
    root, one, two = engines(tmp_path)
    command = one.capture.begin(ChangeSource(uid="c/0/0", run="c"), None)
    ended = two.capture.begin(ChangeSource(uid="w/0/0", run="w"), ["w.txt"])
    (root / "w.txt").write_text("w")
    two.capture.finish(ended)
    running = two.capture.begin(ChangeSource(uid="w/0/1", run="w"), ["later.txt"])
    (root / "later.txt").write_text("half")
    (root / "c.txt").write_text("c")
    one.capture.finish(command)
    two.capture.finish(running)
    assert one.undo("c").paths == ("c.txt",)
    assert two.undo("w").paths == ("later.txt", "w.txt")
    assert os.listdir(root) == ["in.txt"]


@pytest.mark.parametrize("beside", [1, 2], ids=["one engine", "two engines"])
def test_undo_refuses_a_file_that_either_of_two_concurrent_commands_wrote(tmp_path: Path, beside: int) -> None:
    root, *undo_store = engines(tmp_path)
    one, two = undo_store[0], undo_store[beside - 1]
    first = one.capture.begin(ChangeSource(uid="x/0/0", run="x"), None)
    second = two.capture.begin(ChangeSource(uid="y/0/0", run="y"), None)
    (root / "either.txt").write_text("whose?")
    one.capture.finish(first)
    two.capture.finish(second)
    for run in ("x", "y"):
        with pytest.raises(UndoRefused) as refused:
            one.undo(run)
        assert {(conflict.path, conflict.why) for conflict in refused.value.conflicts} == {("either.txt", "not_kept")}
    assert (root / "either.txt").exists()


def test_undo_of_a_write_restores_the_concurrent_write_of_another_engine(tmp_path: Path) -> None:
    """Both calls were open at once: the earlier state of the later write is the content that the other call wrote."""
    root, one, two = engines(tmp_path)
    slow = one.capture.begin(ChangeSource(uid="a/0/0", run="a"), ["in.txt"])
    quick = two.capture.begin(ChangeSource(uid="b/0/0", run="b"), ["in.txt"])
    (root / "in.txt").write_text("b's")
    two.capture.finish(quick)
    (root / "in.txt").write_text("a's")
    one.capture.finish(slow)
    one.undo("a")
    assert (root / "in.txt").read_text() == "b's"
    two.undo("b")
    assert (root / "in.txt").read_text() == "mine"


def test_a_command_change_does_not_include_an_undo_made_while_it_runs(tmp_path: Path) -> None:
    """A user undoes an earlier call in a terminal while a run is active."""
    root, one, two = engines(tmp_path)
    write = one.capture.begin(ChangeSource(uid="a/0/0", run="a"), ["in.txt"])
    (root / "in.txt").write_text("a's")
    one.capture.finish(write)
    command = one.capture.begin(ChangeSource(uid="c/0/0", run="c"), None)
    two.undo("a")
    (root / "new.txt").write_text("c")
    one.capture.finish(command)
    assert one.undo("c").paths == ("new.txt",)
    assert (root / "in.txt").read_text() == "mine"
    assert two.redo("a").paths == ("in.txt",)


def meanwhile(monkeypatch: pytest.MonkeyPatch, at: str, act: Callable[[], object]) -> None:
    """Call `act` when the undo has checked everything and is about to write the file `at`."""

    def put_later(folder: int, name: str, *rest: Any, **how: Any) -> int:
        if name == at:
            act()
        return put(folder, name, *rest, **how)

    monkeypatch.setattr("callgate._undo.apply_undo.put", put_later)


def test_an_outside_edit_during_an_undo_is_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The undo may replace only the content that it checked."""
    bench = Bench(tmp_path / "work")
    (bench.root / "in.txt").write_text("inside")
    uid = bench.write("in.txt", "written")
    meanwhile(monkeypatch, "in.txt", lambda: (bench.root / "in.txt").write_text("mine"))
    with pytest.raises(UndoFailed, match="changed meanwhile"):
        bench.undo_history.undo(uid)
    assert (bench.root / "in.txt").read_text() == "mine"


def test_an_outside_edit_of_a_restored_file_survives_the_rollback_of_the_undo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a failed step, restored files that nobody has changed since are rolled back, and the others are named."""
    bench = Bench(tmp_path / "work")
    for name in ("a.txt", "b.txt", "c.txt"):
        (bench.root / name).write_text("inside")
        bench.write(name, "written")

    def edit() -> None:
        (bench.root / "a.txt").write_text("mine")
        (bench.root / "c.txt").write_text("mine too")

    meanwhile(monkeypatch, "c.txt", edit)
    with pytest.raises(UndoFailed, match=r"not as they were: a\.txt, c\.txt") as failed:
        bench.undo_history.undo("run")
    assert failed.value.left == ("a.txt", "c.txt")
    assert [(bench.root / name).read_text() for name in ("a.txt", "b.txt", "c.txt")] == ["mine", "written", "mine too"]


def test_a_failed_undo_rolls_back_files_and_folders_that_it_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every replaced file and folder gets back the state that the command left."""
    bench = Bench(tmp_path / "work")
    (bench.root / "a").write_text("a file")
    (bench.root / "b").mkdir()
    (bench.root / "b/inner").write_text("in a folder")
    (bench.root / "z").write_text("last")
    bench.command("rm -r a b && mkdir a && echo x > a/x && echo y > b && echo more > z && chmod 2750 a")
    written = facts(bench.root)

    def full() -> None:
        raise OSError(28, os.strerror(28))

    meanwhile(monkeypatch, "z", full)
    with pytest.raises(UndoFailed, match="Everything is as it was before"):
        bench.undo_history.undo("last")
    assert facts(bench.root) == written


_KILLED_UNDO = """
import os, signal, sys
from callgate._undo import apply_undo
from callgate.undo import UndoHistory

def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

work, kept, step, direction = sys.argv[1:]
undo_history = UndoHistory(work, place=kept)
if step == "before a name":
    os.rename = die
    step = "before a file"
name = {"before a file": "put", "before its time": "_dress", "before the modes of folders": "_set_folders"}[step]
if os.rename is not die:
    setattr(apply_undo, name, die)
getattr(undo_history, direction)("last")
"""


def killed(bench: Bench, step: str, direction: str) -> None:
    """Run an undo or redo of the last call in a separate process that is killed at this step."""
    assert python(_KILLED_UNDO, str(bench.root), str(bench.root.parent / "kept"), step, direction).code == -signal.SIGKILL


@pytest.mark.parametrize("last", ["undo", "redo"])
@pytest.mark.parametrize("first", ["undo", "redo"])
@pytest.mark.parametrize("step", ["before a file", "before a name", "before its time", "before the modes of folders"])
def test_a_killed_undo_or_redo_can_be_completed_or_reversed(tmp_path: Path, step: str, first: str, last: str) -> None:
    """The result is exact, even after a kill between the removal of a folder and the creation of the file that replaces it."""
    bench = Bench(tmp_path / "work")
    (bench.root / "swap").write_text("a file")
    (bench.root / "gone").mkdir(mode=0o750)
    (bench.root / "gone/inner").write_text("deep")
    (bench.root / "plain").write_text("as it was")
    (bench.root / "gone/link").symlink_to("inner")
    before = facts(bench.root)
    bench.command("rm -r swap gone && echo z > plain && mkdir -m 2750 swap && echo x > swap/x && echo y > gone")
    after = facts(bench.root)
    if first == "redo":
        bench.undo_history.undo("last")
    killed(bench, step, first)
    assert facts(bench.root) not in (before, after)
    getattr(bench.undo_history, last)("run")
    assert facts(bench.root) == (before if last == "undo" else after)


@pytest.mark.parametrize("last", ["undo", "redo"])
@pytest.mark.parametrize("first", ["undo", "redo"])
def test_a_killed_undo_that_had_restored_file_times_can_be_completed_or_reversed(tmp_path: Path, first: str, last: str) -> None:
    """Covers a file that differs only in its times."""
    bench = Bench(tmp_path / "work")
    (bench.root / "plain").write_text("as it was")
    (bench.root / "link").symlink_to("plain")
    (bench.root / "box").mkdir()
    before = facts(bench.root)
    bench.command("touch -h -d 2001-01-01 plain link && chmod 700 box")
    after = facts(bench.root)
    if first == "redo":
        bench.undo_history.undo("last")
    killed(bench, "before the modes of folders", first)
    assert facts(bench.root) not in (before, after)
    getattr(bench.undo_history, last)("run")
    assert facts(bench.root) == (before if last == "undo" else after)
    getattr(bench.undo_history, "redo" if last == "undo" else "undo")("run")
    assert facts(bench.root) == (after if last == "undo" else before)


def test_undo_of_a_killed_call_restores_the_file_time(tmp_path: Path) -> None:
    root = tmp_path / "work"
    root.mkdir()
    (root / "in.txt").write_text("half")
    os.utime(root / "in.txt", ns=(0, 0))
    before = facts(root)
    assert python(_KILLED, str(root), str(tmp_path / "kept")).code == -signal.SIGKILL
    UndoHistory(root, place=tmp_path / "kept").undo("r", interrupted=True)
    assert facts(root) == before


def test_an_outside_edit_after_a_killed_undo_is_kept_and_the_undo_is_refused(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "work")
    (bench.root / "swap").write_text("a file")
    bench.command("rm swap && mkdir swap")
    killed(bench, "before a file", "undo")
    (bench.root / "swap").write_text("mine")
    for act in (bench.undo_history.undo, bench.undo_history.redo):
        with pytest.raises((UndoRefused, UsageError)):
            act("last")
        assert (bench.root / "swap").read_text() == "mine"
