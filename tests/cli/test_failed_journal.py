"""A journal that fails while a command writes to it: what a person is told, and that it is told once."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from callgate.testing import Call
from tests.cli.running import DONE, ran
from tests.cli.shell import Ended, shell

TOOL = """
import os
from callgate import tool

JOURNAL = ".callgate/journal.db"

@tool
def cut() -> str:
    "Cut the journal off."
    os.truncate(JOURNAL, 0)
    return "the result"

@tool
def delete() -> str:
    "Delete the journal."
    os.unlink(JOURNAL)
    return "the result"

@tool(effect="none")
def look() -> str:
    "Look, after the journal was cut off."
    os.truncate(JOURNAL, 0)
    return "the result"

@tool
def stop() -> str:
    "Do nothing."
    return ""
"""
CAUSES = {"cut": "journal.db was cut off", "delete": "journal.db was deleted or replaced", "look": "journal.db was cut off"}
FOR_PYTHON = re.compile(r"JournalFailed|RecordFailed|engine|operator|SqliteJournal")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "spoil.py").write_text(TOOL, encoding="utf-8")
    return tmp_path


def assert_told_once(shown: str, tool: str) -> None:
    assert shown.count(CAUSES[tool]) == 1, shown
    assert "Put the file back, or give another with --journal, and try again" in shown
    assert not FOR_PYTHON.search(shown), shown


@pytest.mark.parametrize("tool", CAUSES)
async def test_a_run_says_once_why_its_journal_failed(folder: Path, tool: str) -> None:
    """The call's line, that of a call after it, and the end of the run all know the reason."""
    done: Ended = await ran(folder, [[Call(tool, {}), Call("stop", {})], DONE], "--tools", "spoil.py", "--yes")
    assert done.code == 1
    assert_told_once(done.err, tool)
    assert "the end of this run is not on record" in done.err


@pytest.mark.parametrize(("tool", "code"), [("cut", 3), ("delete", 3), ("look", 1)])
def test_a_call_whose_journal_failed_shows_what_became_of_it(folder: Path, tool: str, code: int) -> None:
    """That the tool ran is worth more than that the record of it cannot be read any more."""
    done = shell(folder, "call", tool, "--tools", "spoil.py")
    assert done.code == code, done.err
    assert f"{tool} ran" in done.out
    assert_told_once(done.out + done.err, tool)
