"""Tests of undo through an engine with real files: a call is undone exactly, or the undo is refused with the reason."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from callgate.errors import UsageError
from callgate.tools import tool
from callgate.undo import UndoFailed, UndoLimits, UndoRefused
from tests.undo.undo_workspace import Bench, facts


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    made = Bench(tmp_path / "work")
    (made.root / "in.txt").write_text("inside")
    return made


def conflict_reasons(refused: pytest.ExceptionInfo[UndoRefused]) -> set[tuple[str, str]]:
    return {(one.path, one.why) for one in refused.value.conflicts}


def test_a_write_is_undone_and_redone_exactly(bench: Bench) -> None:
    """Bytes, mode, file type, times and absence are restored in both directions."""
    os.chmod(bench.root / "in.txt", 0o640)
    before = facts(bench.root)
    uid = bench.write("in.txt", "written")
    after = facts(bench.root)
    assert bench.undo_history.undo(uid).paths == ("in.txt",)
    assert facts(bench.root) == before
    assert bench.undo_history.redo(uid).paths == ("in.txt",)
    assert facts(bench.root) == after


def test_undo_removes_a_new_file_and_its_new_folders(bench: Bench) -> None:
    """Undo restores absence, so it leaves no empty file or folder."""
    uid = bench.write("a/b/new.txt", "x")
    bench.undo_history.undo(uid)
    assert os.listdir(bench.root) == ["in.txt"]


def test_all_file_changes_of_a_command_are_undone_and_redone(bench: Bench) -> None:
    """A command does not declare its writes, so its changes are found by a snapshot before and after it."""
    (bench.root / "d").mkdir()
    (bench.root / "d/e.txt").write_bytes(b"\0\xff\r\n")
    (bench.root / "gone").mkdir(mode=0o750)
    (bench.root / "link").symlink_to("in.txt")
    (bench.root / "swap").write_text("a file")
    before = facts(bench.root)
    bench.command(
        "rm -r d gone && echo more >> in.txt && mkdir -p x/y && echo z > x/y/z && ln -sfn x link && chmod 700 in.txt"
        " && rm swap && mkdir swap && echo s > swap/s"
    )
    after = facts(bench.root)
    assert before != after
    bench.undo_history.undo("last")
    assert facts(bench.root) == before
    bench.undo_history.redo("last")
    assert facts(bench.root) == after


def test_deeply_nested_new_folders_are_undone(bench: Bench) -> None:
    """Undo visits each folder once, however deep the tree is."""
    bench.command(f"mkdir -p {'d/' * 400}")
    bench.undo_history.undo("last")
    assert os.listdir(bench.root) == ["in.txt"]


def test_undo_to_a_checkpoint_without_later_changes_changes_nothing(bench: Bench) -> None:
    """A checkpoint may name the current state."""
    bench.write("in.txt", "written")
    bench.undo_history.checkpoint("now")
    before = facts(bench.root)
    assert bench.undo_history.undo("now").paths == ()
    assert facts(bench.root) == before


def test_undo_refuses_a_file_that_was_changed_from_outside_since(bench: Bench) -> None:
    """The error names the path, the expected state and the state that was found."""
    uid = bench.write("in.txt", "written")
    other = bench.write("other.txt", "x")
    (bench.root / "in.txt").write_text("user edit")
    with pytest.raises(UndoRefused, match=r"expected a file of 7 bytes.*found a file of 9 bytes") as refused:
        bench.undo_history.undo(uid)
    assert conflict_reasons(refused) == {("in.txt", "changed")}
    with pytest.raises(UndoRefused):
        bench.undo_history.undo("run")
    assert (bench.root / "in.txt").read_text() == "user edit"
    assert (bench.root / "other.txt").read_text() == "x"
    assert bench.undo_history.undo("run", paths=["other.*"]).calls == (other,)
    assert not (bench.root / "other.txt").exists()


def test_undo_refuses_an_earlier_write_before_a_later_one_of_the_same_file(bench: Bench) -> None:
    """Undo of the first write would lose the second one, even if both wrote the same content."""
    first, second = bench.write("in.txt", "one"), bench.write("in.txt", "one")
    with pytest.raises(UndoRefused, match=rf"write_file \({second}\) wrote it later") as refused:
        bench.undo_history.undo(first)
    assert conflict_reasons(refused) == {("in.txt", "later_call")}
    bench.undo_history.undo(second)
    bench.undo_history.undo(first)
    assert (bench.root / "in.txt").read_text() == "inside"


def test_a_run_and_a_turn_are_undone_newest_first(bench: Bench) -> None:
    before = facts(bench.root)
    bench.write("in.txt", "one", turn=1)
    middle = facts(bench.root, times=False)
    bench.write("in.txt", "two", turn=2)
    bench.write("new.txt", "three", turn=2)
    bench.undo_history.undo("run@2")
    assert facts(bench.root, times=False) == middle
    bench.undo_history.undo("run")
    assert facts(bench.root) == before


def test_undo_refuses_to_lose_an_outside_edit_between_two_calls(bench: Bench) -> None:
    """The user edited the file between two calls, so undoing both calls would lose that edit."""
    bench.write("in.txt", "one")
    (bench.root / "in.txt").write_text("mine")
    second = bench.write("in.txt", "two")
    with pytest.raises(UndoRefused) as refused:
        bench.undo_history.undo("run")
    assert conflict_reasons(refused) == {("in.txt", "changed_between")}
    bench.undo_history.undo(second)
    assert (bench.root / "in.txt").read_text() == "mine"


def test_a_dry_run_checks_everything_and_changes_nothing(bench: Bench) -> None:
    uid = bench.write("in.txt", "written")
    before, commits = facts(bench.root), len(bench.undo_history.changes())
    assert bench.undo_history.undo(uid, dry_run=True).paths == ("in.txt",)
    assert facts(bench.root) == before
    assert len(bench.undo_history.changes()) == commits


def test_a_diff_shows_what_the_calls_changed(bench: Bench) -> None:
    (bench.root / "in.txt").write_text("a\nb\nc\n")
    uid = bench.write("in.txt", "a\nB\nc\n")
    (shown,) = bench.undo_history.diff(uid)
    assert shown.path == "in.txt"
    assert {"+B", "-b"} <= set(shown.text.split("\n"))


def test_ignored_files_are_reported_and_not_undone(bench: Bench) -> None:
    """Snapshots leave out the files that .gitignore names, and the undo reports them."""
    (bench.root / ".gitignore").write_text("*.log\n")
    (bench.root / "a.log").write_text("old")
    bench.command("echo new > a.log; echo x > b.txt")
    done = bench.undo_history.undo("last")
    assert done.paths == ("b.txt",)
    assert "ignored" in done.told[0]
    assert "a.log" in done.told[0]
    assert (bench.root / "a.log").read_text() == "new\n"


def test_a_file_name_that_is_not_utf8_is_reported_as_not_looked_at(bench: Bench) -> None:
    """A name that is not valid UTF-8 must not be reported as ignored."""
    os.mkdir(os.fsencode(bench.root) + b"/odd\xff")
    bench.command("echo x > b.txt")
    (told,) = bench.undo_history.undo("last").told
    assert "1 path not looked at, whose name is not UTF-8 (odd" in told


def test_the_mode_of_the_workspace_root_is_undone_and_redone(bench: Bench) -> None:
    """A command that changes every mode also changes the mode of the root."""
    (bench.root / "a").write_text("mine")
    bench.root.chmod(0o755)
    before = facts(bench.root)
    bench.command("chmod -R 700 . && echo theirs > b")
    assert bench.undo_history.undo("last").paths == (".", "a", "b", "in.txt")
    assert (facts(bench.root), bench.root.stat().st_mode & 0o7777) == (before, 0o755)
    bench.undo_history.redo("last")
    assert bench.root.stat().st_mode & 0o7777 == 0o700


def test_files_that_a_command_stops_ignoring_are_not_removed_by_undo(bench: Bench) -> None:
    """The file is visible only after the command, but the command did not create it."""
    (bench.root / ".gitignore").write_text("*.log\nhidden/\n")
    (bench.root / "a.log").write_text("mine")
    (bench.root / "hidden/deep").mkdir(parents=True)
    (bench.root / "hidden/deep/b").write_text("mine")
    before = facts(bench.root)
    bench.command("echo > .gitignore; echo x > new.txt")
    done = bench.undo_history.undo("last")
    assert done.paths == (".gitignore", "new.txt")
    assert "a.log" in done.told[0]
    assert facts(bench.root) == before


def test_files_that_a_command_starts_to_ignore_are_not_removed_by_undo_or_redo(bench: Bench) -> None:
    """The file is hidden after the command, but the command did not delete it."""
    (bench.root / "a.log").write_text("mine")
    (bench.root / "b.log").write_text("mine")
    before = facts(bench.root)
    bench.command("echo '*.log' > .gitignore; echo more >> b.log")
    after = facts(bench.root)
    assert bench.undo_history.undo("last").paths == (".gitignore", "b.log")
    assert facts(bench.root) == before
    assert bench.undo_history.redo("last").paths == (".gitignore", "b.log")
    assert facts(bench.root) == after


def test_an_ignored_file_written_by_name_can_be_undone(bench: Bench) -> None:
    (bench.root / ".gitignore").write_text("*.log\n")
    (bench.root / "a.log").write_text("old")
    bench.undo_history.undo(bench.write("a.log", "new"))
    assert (bench.root / "a.log").read_text() == "old"


def test_undo_refuses_a_file_too_large_to_store_and_can_undo_the_rest(tmp_path: Path) -> None:
    """The change records that the content was not stored."""
    bench = Bench(tmp_path / "work", limits=UndoLimits(tree_file_bytes=100))
    (bench.root / "big").write_bytes(b"x" * 1000)
    (bench.root / "untouched").write_bytes(b"x" * 1000)
    bench.command("echo more >> big; echo small > small")
    with pytest.raises(UndoRefused) as refused:
        bench.undo_history.undo("last")
    assert conflict_reasons(refused) == {("big", "not_kept")}
    assert bench.undo_history.undo("last", paths=["small"]).paths == ("small",)


def test_undo_refuses_altered_stored_content(bench: Bench) -> None:
    """The hash of the stored content is checked before any file is changed."""
    uid = bench.write("in.txt", "written")
    blob = bench.undo_history.changes()[-1].steps[0].before.blob
    stored = Path(bench.undo_history.folder, "objects", blob[:2], blob[2:])
    stored.chmod(0o600)
    stored.write_bytes(stored.read_bytes()[:-4] + b"evil")
    with pytest.raises(UndoRefused) as refused:
        bench.undo_history.undo(uid)
    assert conflict_reasons(refused) == {("in.txt", "damaged")}
    assert (bench.root / "in.txt").read_text() == "written"
    assert bench.undo_history.verify()


def test_an_undo_that_fails_part_way_is_rolled_back(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk during an undo must leave neither a partial undo nor a damaged store."""
    (bench.root / "z.txt").write_text("last")
    bench.command("echo a > in.txt; echo b > z.txt; echo c > new.txt")
    before = facts(bench.root)
    write = os.write

    def full(fd: int, data: bytes) -> int:
        if bytes(data) == b"last":
            raise OSError(28, "No space left on device")
        return write(fd, data)

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        with pytest.raises(UndoFailed, match=r"No space left.*as it was before"):
            bench.undo_history.undo("last")
    assert facts(bench.root) == before
    assert bench.undo_history.undo("last").paths == ("in.txt", "new.txt", "z.txt")
    assert (bench.root / "z.txt").read_text() == "last"


def test_a_folder_that_became_a_link_is_never_followed(bench: Bench) -> None:
    """This includes links to a place outside and to another place in the workspace."""
    outside = bench.root.parent / "secret"
    outside.mkdir()
    (outside / "leaf.txt").write_text("written")
    uid = bench.write("sub/leaf.txt", "written")
    shutil.rmtree(bench.root / "sub")
    for target in (outside, "twin"):
        (bench.root / "twin").mkdir(exist_ok=True)
        (bench.root / "twin/leaf.txt").write_text("written")
        (bench.root / "sub").symlink_to(target)
        with pytest.raises(UndoRefused):
            bench.undo_history.undo(uid)
        assert (outside / "leaf.txt").read_text() == (bench.root / "twin/leaf.txt").read_text() == "written"
        (bench.root / "sub").unlink()


def test_files_with_unusual_names_are_restored(bench: Bench) -> None:
    """Covers both Unicode normal forms, names that differ only by case, and names reserved by git."""
    names = ["ü.txt", "ü.txt", "A.txt", "a.txt", ".git-x/.gitmodules", "sp ace/'q\"/😀", "-rf", "a\tb"]
    for name in names:
        (bench.root / name).parent.mkdir(parents=True, exist_ok=True)
        (bench.root / name).write_text(f"old {name}")
    if len(os.listdir(bench.root)) < len(names):
        pytest.skip("this file system takes some of these names for one another")
    before = facts(bench.root)
    bench.command("find . -type f -exec sh -c 'for f; do echo new > \"$f\"; done' sh {} +")
    assert facts(bench.root) != before
    bench.undo_history.undo("last")
    assert facts(bench.root) == before


def test_the_writes_of_a_failed_tool_are_undone(tmp_path: Path) -> None:
    @tool(effect="once", category="dangerous")
    def half(place: str) -> str:
        """Write and fail."""
        Path(place, "half.txt").write_text("half")
        raise RuntimeError("no more")

    bench = Bench(tmp_path / "work", tools=[half])
    assert not bench.call("half", place=str(bench.root)).success
    bench.undo_history.undo("last")
    assert os.listdir(bench.root) == []


def test_a_broken_undo_store_fails_no_call_and_is_recorded(tmp_path: Path) -> None:
    """The journal records that the change was not stored."""
    (tmp_path / "kept").write_text("a file where the store should be")
    bench = Bench(tmp_path / "work")
    bench.write("in.txt", "written")
    assert (bench.root / "in.txt").read_text() == "written"
    assert [event.kind for event in bench.events if event.kind.startswith("files.")] == ["files.not_kept"]


def test_a_stored_change_is_recorded_as_an_event_of_its_call(bench: Bench) -> None:
    """The event names the commit and the paths."""
    uid = bench.write("in.txt", "written")
    (kept,) = [event for event in bench.events if event.kind == "files.kept"]
    assert kept.call == uid
    assert bench.undo_history.changes()[-1].commit.encode() in kept.body


def test_the_users_git_repository_is_never_changed(bench: Bench) -> None:
    """The undo store never touches the user's repository, its hooks or its index."""
    git = shutil.which("git")
    if git is None:
        pytest.skip("there is no git here")
    environ = {"PATH": os.environ["PATH"], "HOME": str(bench.root.parent), "GIT_CONFIG_NOSYSTEM": "1"}
    subprocess.run([git, "init", "-q", str(bench.root)], check=True, env=environ)
    hook = bench.root / ".git/hooks/pre-commit"
    hook.write_text("#!/bin/sh\ntouch hook-ran\n")
    hook.chmod(0o755)
    before = facts(bench.root / ".git")
    bench.undo_history.undo(bench.write("in.txt", "written"))
    assert facts(bench.root / ".git") == before
    assert not (bench.root / "hook-ran").exists()


def test_git_can_read_the_undo_store(bench: Bench) -> None:
    """The store has one commit per call that writes, and `git fsck` accepts it."""
    git = shutil.which("git")
    if git is None:
        pytest.skip("there is no git here")
    first = bench.write("in.txt", "written")
    second = bench.command("echo x > .git-x; echo y > .gitattributes; ln -s in.txt link; chmod 755 in.txt")

    def ask(*words: str) -> str:
        done = subprocess.run([git, "--git-dir", bench.undo_history.folder, *words], check=True, capture_output=True, text=True)
        return done.stdout + done.stderr

    assert "error" not in ask("fsck", "--full", "--strict")
    log = ask("log", "--format=%s").splitlines()
    assert log == [f"call {second}", f"call {first}"]
    head = bench.undo_history.changes()[0].commit
    assert "-inside" in ask("diff", f"{head}:before", f"{head}:after")


def test_undo_of_an_unknown_name_raises_usage_error(bench: Bench) -> None:
    with pytest.raises(UsageError, match="Nothing is kept"):
        bench.undo_history.undo("nope")


@pytest.mark.parametrize("words", ["", "@0"])
def test_an_empty_name_is_refused_and_undoes_nothing(bench: Bench, words: str) -> None:
    """A script's empty variable must not select every call without a conversation."""
    bench.write("in.txt", "one", run="r1")
    bench.write("new.txt", "two", run="r2")
    written = facts(bench.root)
    for act in (bench.undo_history.undo, bench.undo_history.redo, bench.undo_history.diff):
        with pytest.raises(UsageError, match="does not say what is meant"):
            act(words)
    assert facts(bench.root) == written


def test_undo_or_redo_with_nothing_left_raises_usage_error(bench: Bench) -> None:
    """An empty history must not be reported as a misspelt name."""
    bench.write("in.txt", "one")
    with pytest.raises(UsageError, match="No call is undone here: there is nothing to redo"):
        bench.undo_history.redo("last")
    bench.undo_history.undo("last")
    with pytest.raises(UsageError, match="Every kept call is undone already"):
        bench.undo_history.undo("last")


def test_undo_in_a_missing_workspace_raises_usage_error(bench: Bench) -> None:
    uid = bench.write("in.txt", "one")
    bench.root.rename(bench.root.parent / "elsewhere")
    with pytest.raises(UsageError, match="There is no folder"):
        bench.undo_history.undo(uid)
