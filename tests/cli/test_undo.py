"""`callgate undo`, `redo`, `diff` and related options, used from a terminal."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from callgate.testing import Call
from tests.cli.run_process import ran
from tests.cli.shell import shell
from tests.undo.undo_workspace import facts


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "in.txt").write_text("mine\n")
    return tmp_path


def files(folder: Path) -> dict[str, tuple[object, ...]]:
    return {path: fact for path, fact in facts(folder).items() if not path.startswith(".callgate")}


def test_a_call_is_listed_shown_as_diff_undone_and_redone(work: Path) -> None:
    """Undo needs only the folder, and its effect is an event in the journal."""
    before = files(work)
    assert shell(work, "call", "run_command", "command=echo more >> in.txt; mkdir d; echo x > d/new.txt", "--run", "case").code == 0
    after = files(work)
    assert after != before
    (listed,) = shell(work, "undo", "--json").lines
    assert (listed["tool"], listed["paths"]) == ("run_command", ["d", "d/new.txt", "in.txt"])
    assert "+more" in shell(work, "diff").out
    assert shell(work, "undo", "last", "--dry-run").code == 0
    assert files(work) == after
    done = shell(work, "undo", "case", "--json")
    assert (done.code, done.json["paths"]) == (0, ["d", "d/new.txt", "in.txt"])
    assert files(work) == before
    assert shell(work, "redo").code == 0
    assert files(work) == after
    kinds = [event["kind"] for event in shell(work, "log", "show", "case", "--json").lines]
    assert [kind for kind in kinds if kind.startswith("files.")] == ["files.kept", "files.undone", "files.redone"]
    assert shell(work, "log", "verify").code == 0


def test_undo_and_redo_report_the_action_on_each_file(work: Path) -> None:
    """The words also fit a redo."""
    (work / "old.txt").write_text("old")
    shell(work, "call", "run_command", "command=echo more >> in.txt; rm old.txt; echo x > new.txt", "--run", "case")
    undone = ["changed back  in.txt", "removed  new.txt", "put back  old.txt"]
    assert shell(work, "undo", "last", "--dry-run").out.splitlines() == [f"would be {line}" for line in undone]
    done = shell(work, "undo", "last")
    assert (done.out.splitlines(), "Undone: call case/0/0. `callgate redo last`" in done.err) == (undone, True)
    done = shell(work, "redo", "--json")
    assert done.json["actions"] == {"in.txt": "changed", "new.txt": "made", "old.txt": "removed"}
    shell(work, "undo", "last")
    done = shell(work, "redo")
    assert done.out.splitlines() == ["changed again  in.txt", "made again  new.txt", "removed again  old.txt"]
    assert "Made again: call case/0/0. `callgate undo last` takes it back." in done.err
    (work / "new.txt").unlink()
    done = shell(work, "undo", "last")
    assert "already done  new.txt" in done.err


def test_a_refused_undo_names_the_path_and_changes_nothing(work: Path) -> None:
    """The exit code is 1, and each path has one line."""
    shell(work, "call", "write_file", "path=in.txt", "content=theirs")
    (work / "in.txt").write_text("mine again")
    refused = shell(work, "undo", "last")
    assert refused.code == 1
    assert "in.txt: expected a file of 6 bytes" in refused.err
    assert shell(work, "undo", "last", "--json").json["conflicts"][0]["why"] == "changed"
    assert (work / "in.txt").read_text() == "mine again"
    assert shell(work, "undo", "nothing-like-it").code == 2


def test_paths_can_be_excluded_and_a_partial_undo_says_so(work: Path) -> None:
    """Remaining paths and reasons are reported as text and as JSON; they can be undone later."""
    shell(work, "call", "run_command", "command=echo more >> in.txt; echo a > a.txt; mkdir d; echo b > d/b.txt", "--run", "case")
    (work / "in.txt").write_text("somebody else's\n")
    refused = shell(work, "undo", "last")
    assert refused.code == 1
    assert "`callgate undo last --exclude in.txt` leaves out the paths above." in refused.err
    done = shell(work, "undo", "last", "--exclude", "in.txt", "--exclude", "d/**")
    assert (done.code, done.out.splitlines()) == (0, ["removed  a.txt"])
    assert "left  in.txt: not asked for" in done.err
    assert "left  d/b.txt: not asked for" in done.err
    assert "Partly: some changes remain. Undone: call case/0/0." in done.err
    assert (work / "d" / "b.txt").read_text() == "b\n"
    assert "+b" in shell(work, "diff", "--exclude", "in.txt").out
    done = shell(work, "undo", "last", "--exclude", "in.txt", "--json")
    assert (done.json["status"], done.json["left"]) == ("partial", ["in.txt"])
    again = shell(work, "redo", "last", "--exclude", "d", "--exclude", "d/**", "--json")
    assert again.code == 0


def test_a_damaged_journal_does_not_keep_from_undoing(work: Path) -> None:
    """What files contained before is stored elsewhere."""
    shell(work, "call", "write_file", "path=in.txt", "content=theirs")
    before = (work / ".callgate" / "journal.db").read_bytes()
    (work / ".callgate" / "journal.db").write_bytes(b"?" * len(before))
    refused = shell(work, "undo", "last")
    assert refused.code == 2
    assert "To undo what is stored, without the journal, add --journal :memory:." in refused.err
    assert shell(work, "undo", "last", "--journal", ":memory:").code == 0
    assert (work / "in.txt").read_text() != "theirs"


def test_the_advised_command_leaves_out_only_the_path_that_it_names(work: Path) -> None:
    """A path with characters of globs is written so that it matches itself alone."""
    shell(work, "call", "run_command", "command=echo a > '[a]*.txt'; echo b > '[a]b.txt'", "--run", "case")
    (work / "[a]*.txt").write_text("somebody else's\n")
    refused = shell(work, "undo", "last")
    assert "`callgate undo last --exclude '[[]a][*].txt'` leaves out the paths above." in refused.err
    done = shell(work, "undo", "last", "--exclude", "[[]a][*].txt")
    assert (done.code, done.out.splitlines()) == (0, ["removed  [a]b.txt"])
    assert (work / "[a]*.txt").read_text() == "somebody else's\n"


@pytest.mark.parametrize("command", ["undo", "redo"])
def test_a_path_filter_without_matches_is_wrong_usage_and_names_the_changed_paths(work: Path, command: str) -> None:
    shell(work, "call", "write_file", "path=in.txt", "content=theirs")
    if command == "redo":
        shell(work, "undo", "last")
    done = shell(work, command, "last", "--path", "src/**")
    assert done.code == 2
    assert "No path of these calls matches. They changed: in.txt." in done.err


def test_undoing_a_checkpoint_undoes_every_later_call(work: Path) -> None:
    shell(work, "call", "write_file", "path=one.txt", "content=1")
    assert shell(work, "checkpoint", "add", "before-lunch").out == "before-lunch\n"
    shell(work, "call", "write_file", "path=two.txt", "content=2")
    shell(work, "call", "write_file", "path=one.txt", "content=3")
    assert shell(work, "undo", "before-lunch").code == 0
    assert (work / "one.txt").read_text() == "1"
    assert not (work / "two.txt").exists()
    assert "before-lunch" in shell(work, "checkpoint", "list").out
    assert shell(work, "checkpoint", "drop", "before-lunch").code == 0
    assert shell(work, "checkpoint", "prune", "--keep-days", "0", "--json").json["dropped"] > 0
    assert shell(work, "undo", "--json").out == ""


def test_a_call_with_no_undo_keeps_no_undo_data(work: Path) -> None:
    shell(work, "call", "write_file", "path=in.txt", "content=theirs", "--no-undo")
    assert shell(work, "undo", "--json").out == ""


def test_undo_refuses_a_run_whose_undo_data_could_not_be_kept(work: Path) -> None:
    """The call itself succeeds; undo then refuses the changes that were not kept."""
    (work / "store").write_text("no folder")
    shell(work, "call", "write_file", "path=in.txt", "content=theirs", "--run", "case", CALLGATE_UNDO=str(work / "store"))
    refused = shell(work, "undo", "case")
    assert refused.code == 1
    assert "was not kept" in refused.err


WRITES = [Call("write_file", {"path": "in.txt", "content": "the agent's"}), Call("run_command", {"command": "mkdir d; echo x > d/new.txt"})]


async def test_undo_is_enabled_by_default_for_callgate_run(work: Path) -> None:
    """`callgate run` keeps what its calls change, and prints the command that undoes it."""
    before = files(work)
    done = await ran(work, [["I write.", *WRITES], ["Done."]], "--yes")
    assert done.code == 0
    after = files(work)
    assert after != before
    told = next(line.split("callgate ")[1].split() for line in done.err.splitlines() if "callgate undo" in line)
    for words, expected in ((told, before), (["redo"], after), ([told[0], f"{told[1]}@1"], before)):
        assert (await asyncio.to_thread(shell, work, *words)).code == 0
        assert files(work) == expected


async def test_a_run_with_no_undo_keeps_no_undo_data(work: Path) -> None:
    done = await ran(work, [["I write.", *WRITES], ["Done."]], "--yes", "--no-undo")
    assert "callgate undo" not in done.err
    assert (await asyncio.to_thread(shell, work, "undo", "--json")).out == ""


@pytest.mark.parametrize("option", [("--path", "*"), ("--exclude", "*"), ("--dry-run",), ("--interrupted",)], ids=lambda words: words[0])
def test_undo_options_without_a_target_are_refused(folder: Path, option: tuple[str, ...]) -> None:
    done = shell(folder, "undo", *option)
    assert (done.code, done.out) == (2, "")
    assert "Nothing to undo is named" in done.err
