"""`--memory` and `callgate memory`, used from a terminal."""

from __future__ import annotations

from pathlib import Path

import pytest

from callgate.testing import Call
from tests.cli.run_process import ran
from tests.cli.shell import shell

WITH = ("--memory", ".callgate/memory.db")


def test_notes_and_files_written_by_one_command_are_found_by_another(tmp_path: Path) -> None:
    """Notes, files and calls, each written by a separate command; `grep_files` finds the same with and without the index."""
    assert shell(tmp_path, "call", "remember", "text=The refund desk closes at five.", *WITH).code == 0
    assert shell(tmp_path, "call", "write_file", "path=plan.md", "content=Move the refund desk.", *WITH).code == 0
    assert shell(tmp_path, "call", "run_command", "command=echo refund > by-command.txt", *WITH).code == 0
    recalled = shell(tmp_path, "call", "recall", "query=refund", *WITH, "--json").json
    files = {item["path"] for item in recalled["structured"]["found"] if item["from"] == "file"}
    assert files == {"plan.md", "by-command.txt"}
    searched = shell(tmp_path, "memory", "search", "refund", "desk")
    assert searched.code == 0
    assert searched.out.splitlines()[1] == "The refund desk closes at five."
    (note,) = shell(tmp_path, "memory", "search", "refund", "--kind", "note", "--json").json
    assert note["passage"]["kind"] == "note"
    grep = [shell(tmp_path, "call", "grep_files", "pattern=refund", "--json", *options).json for options in (WITH, WITH, ())]
    matches = [one["structured"]["matches"] for one in grep]
    assert matches[0] == matches[1] == matches[2] != []


def test_a_deleted_memory_is_rebuilt_from_the_journal(tmp_path: Path) -> None:
    """The notes and calls come from the journal, the files from the folder."""
    shell(tmp_path, "call", "remember", "text=The refund desk closes at five.", *WITH)
    shell(tmp_path, "call", "write_file", "path=plan.md", "content=Move the refund desk.", *WITH)
    before = shell(tmp_path, "memory", "search", "refund", "--json").json
    for file in (tmp_path / ".callgate").glob("memory.db*"):
        file.unlink()
    assert shell(tmp_path, "memory", "search", "refund").code == 2
    assert "1 notes, 1 calls and 1 pieces" in shell(tmp_path, "memory", "rebuild", "--files").err
    after = shell(tmp_path, "memory", "search", "refund", "--json").json
    assert {one["passage"]["text"] for one in after} == {one["passage"]["text"] for one in before}
    assert shell(tmp_path, "memory", "status", "--json").json["calls"] == 1


def test_memory_search_selects_the_principal_by_name(tmp_path: Path) -> None:
    """`--principal` selects whose memory is searched; the default has no principal."""
    shell(tmp_path, "call", "remember", "text=zebra", "--principal", "ann", *WITH)
    assert shell(tmp_path, "memory", "search", "zebra", "--principal", "ann").code == 0
    nothing = shell(tmp_path, "memory", "search", "zebra")
    assert (nothing.code, nothing.out) == (1, "")
    assert "--principal" in nothing.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("memory", "search"), "No search words"),
        (("memory", "search", "x", "--kind", "y"), "note, call, file"),
        (("memory", "search", "x", "--limit", "0"), "from 1 to 50"),
        (("memory", "search", "x", "--since", "soon"), "is not a time"),
        (("memory", "search", "x"), "There is no memory at"),
        (("memory", "search", "x", "--memory", "text.txt"), "cannot be a database"),
        (("memory", "status", "--memory", "journal.db"), "but not a memory"),
        (("memory", "status", "--memory", "byte"), "1 byte cannot be a database"),
        (("call", "recall", "query=x", "--memory", "byte"), "1 byte cannot be a database"),
        (("memory", "rebuild", "--memory", "new.db"), "There is no journal"),
        (("call", "recall", "query=x", "--memory", "."), "is a folder"),
        (("run", "Do it.", "--model", "openai:gpt-5", "--memory", "text.txt"), "cannot be a database"),
    ],
)
def test_invalid_memory_input_is_refused_with_the_next_step(tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    """The exit code is 2, and nothing is changed."""
    (tmp_path / "text.txt").write_text("my notes")
    (tmp_path / "byte").write_text("1")
    shell(tmp_path, "call", "list_files", "--journal", "journal.db")
    done = shell(tmp_path, *words, OPENAI_API_KEY="none")
    assert done.code == 2
    assert said in done.err
    assert (tmp_path / "text.txt").read_text() == "my notes"
    assert (tmp_path / "byte").read_text() == "1"
    assert not (tmp_path / "new.db").exists()


def test_a_damaged_memory_is_reported_and_can_be_rebuilt(tmp_path: Path) -> None:
    """One sentence with the next step, whichever page is damaged; after the rebuild, search works again."""
    path = tmp_path / ".callgate" / "memory.db"
    shell(tmp_path, "call", "remember", "text=zebra", *WITH)
    whole = path.read_bytes()
    codes = set()
    for page in range(1, len(whole) // 4096, 4):
        path.write_bytes(whole[: 4096 * page] + b"\xff" * 4096 + whole[4096 * (page + 1) :])
        searched = shell(tmp_path, "memory", "search", "zebra")
        assert searched.code != 2 or "delete" in searched.err
        codes.add(searched.code)
    assert 2 in codes
    path.unlink()
    assert shell(tmp_path, "memory", "rebuild").code == 0
    assert shell(tmp_path, "memory", "search", "zebra").code == 0


async def test_a_run_recalls_what_an_earlier_run_remembered(tmp_path: Path) -> None:
    """The model has the memory tools, and finds what another run stored."""
    first = await ran(tmp_path, [[Call("remember", {"text": "The user likes tea."})], "Noted."], "--yes", *WITH)
    assert first.code == 0
    second = await ran(tmp_path, [[Call("recall", {"query": "tea"})], "Tea."], "--json", CALLGATE_MEMORY=".callgate/memory.db")
    assert second.code == 0
    (ended,) = [line for line in second.lines if line["event"] == "call_ended"]
    assert "The user likes tea." in ended["text"]


async def test_the_resume_command_of_a_waiting_run_names_the_memory(tmp_path: Path) -> None:
    """The suggested command includes all options that it needs."""
    waits = await ran(tmp_path, [[Call("remember", {"text": "The user likes tea."})]], *WITH)
    assert waits.code == 4
    assert "--memory .callgate/memory.db" in waits.err
