"""Tests of calls that changed only files that snapshots leave out (ignored, version control, not UTF-8): an undo reports them."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from callgate.undo import UndoLimits
from tests.cli.shell import shell
from tests.undo.undo_workspace import Bench

LEFT_OUT = {
    "an ignored file": ("echo new > build.log", "build.log"),
    "a file in an ignored folder": ("echo new > out/deep/a.txt", "out/deep/a.txt"),
    "a new file in an ignored folder": ("echo new > out/deep/b.txt", "out/deep/b.txt"),
    "a removed ignored file": ("rm build.log", "build.log"),
    "the mode of an ignored file": ("chmod 755 build.log", "build.log"),
    "version control": ("echo new > .git/config", ".git/config"),
    "an installed package": ("echo new > node_modules/a/index.js", "node_modules/a/index.js"),
    "a name that is no text": (r"printf new > $(printf 'odd\377')", r"odd\udcff"),
}


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    bench = Bench(tmp_path / "work")
    for path, text in {
        ".gitignore": "*.log\nout/\n",
        "build.log": "old",
        "out/deep/a.txt": "old",
        ".git/config": "old",
        "node_modules/a/index.js": "old",
    }.items():
        (bench.root / path).parent.mkdir(parents=True, exist_ok=True)
        (bench.root / path).write_text(text)
    (bench.root / os.fsdecode(b"odd\xff")).write_text("old")
    return bench


@pytest.mark.parametrize(("command", "path"), LEFT_OUT.values(), ids=LEFT_OUT)
def test_undo_of_a_call_that_changed_only_excluded_files_reports_them(bench: Bench, command: str, path: str) -> None:
    uid = bench.command(command)
    for words in (uid, "run", "last"):
        done = bench.undo_history.undo(words)
        assert (done.paths, path in done.not_kept) == ((), True)
        (told,) = [line for line in done.told if "left out of what is kept: not undone" in line]
        assert uid in told
        assert path in told
    (event,) = [event for event in bench.events if event.kind == "files.kept"]
    assert path.replace("\\", "\\\\").encode() in event.body


def test_undo_restores_stored_files_and_reports_excluded_ones(bench: Bench) -> None:
    uid = bench.command("echo new > kept.txt; echo new > build.log")
    done = bench.undo_history.undo(uid)
    assert (done.paths, done.not_kept) == (("kept.txt",), ("build.log",))
    assert (bench.root / "build.log").read_text() == "new\n"


def test_undo_of_the_last_call_names_later_changes_of_excluded_files(bench: Bench) -> None:
    """Otherwise the user could mistake the undone call for the latest one."""
    bench.command("echo new > kept.txt")
    later = bench.command("echo new > build.log")
    done = bench.undo_history.undo("last")
    assert (done.paths, done.not_kept) == (("kept.txt",), ("build.log",))
    assert any(later in line for line in done.told)


def test_a_call_that_only_reads_excluded_files_is_not_a_change(bench: Bench) -> None:
    bench.command("cat build.log .git/config out/deep/a.txt > /dev/null")
    assert bench.undo_history.changes() == []


def test_the_number_of_excluded_paths_that_are_examined_is_limited(tmp_path: Path) -> None:
    """The limit bounds the cost of large folders such as installed packages; unexamined paths are still reported."""
    bench = Bench(tmp_path / "work", limits=UndoLimits(left_out_entries=3))
    folder = bench.root / "node_modules"
    folder.mkdir()
    for number in range(10):
        (folder / f"{number}.js").write_text("old")
    bench.command("echo new > node_modules/0.js")
    assert bench.undo_history.undo("last").not_kept == ("node_modules/0.js",)
    uid = bench.command("echo new > node_modules/9.js; echo new > kept.txt")
    done = bench.undo_history.undo(uid)
    assert done.not_kept == ()
    assert any(re.search("ignored path.* not looked at", line) for line in done.told)


def test_the_cli_undo_exits_with_1_if_nothing_was_restored(bench: Bench) -> None:
    uid = bench.command("echo new > build.log")
    place = {"CALLGATE_UNDO": str(bench.root.parent / "kept")}
    shown = shell(bench.root, "undo", uid, **place)
    assert (shown.code, shown.out) == (1, "")
    assert "1 path changed while it ran, but left out of what is kept: not undone (build.log)" in shown.err
    assert "Nothing was undone" in shown.err
    told = shell(bench.root, "undo", uid, "--json", **place)
    assert (told.code, told.json["status"], told.json["not_kept"]) == (1, "partial", ["build.log"])
    assert "(not kept: 1)" in shell(bench.root, "undo", **place).out
    bench.command("echo new > kept.txt; echo newer > build.log")
    partly = shell(bench.root, "undo", "last", "--json", **place)
    assert (partly.code, partly.json["status"], partly.json["paths"]) == (0, "partial", ["kept.txt"])
