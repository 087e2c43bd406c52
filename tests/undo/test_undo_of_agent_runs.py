"""Tests of undo by call, run, turn and conversation of an agent; the host's own files are never part of a change."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from callgate import DirectoryBlobs, Engine, RawCall, Scope, SqliteJournal
from callgate.agent import Agent
from callgate.builtins import command_tools, workspace_tools
from callgate.errors import UsageError
from callgate.undo import UndoHistory, UndoStore
from tests.agent.scripted_model import Script, call, says
from tests.waiting import COMMAND_S


def writes(*contents: str) -> Script:
    """Return a model that makes one of these writes per turn."""
    answers = []
    for content in contents:
        answers += [says("", call("write_file", {"path": "in.txt", "content": content}, id=content)), says("Done.")]
    return Script(*answers)


async def test_each_turn_of_a_conversation_is_undone_by_its_number(tmp_path: Path) -> None:
    """The agent passes the turn number and the conversation of each call to the undo history."""
    work = tmp_path / "work"
    work.mkdir()
    async with Agent(writes("one", "two", "three"), tools=workspace_tools(), undo=UndoStore(tmp_path / "kept")) as agent:
        runs = [(await agent.run(task, conversation="talk", scope=Scope(workspace=str(work)))).run for task in ("1", "2", "3")]
    undo_history = UndoHistory(work, place=tmp_path / "kept")
    assert [(one.call.run, one.call.conversation, one.call.turn) for one in undo_history.changes()] == [
        (run, "talk", turn) for turn, run in enumerate(runs, 1)
    ]
    for words, left in (("talk@3", "two"), (runs[1], "one"), ("talk", None)):
        undo_history.undo(words)
        assert ((work / "in.txt").read_text() if (work / "in.txt").exists() else None) == left


async def test_a_turn_number_given_by_the_host_is_recorded(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    async with Agent(writes("one", "two"), tools=workspace_tools(), undo=UndoStore(tmp_path / "kept")) as agent:
        for turn in (5, 0):
            await agent.run("Go.", conversation="talk", scope=Scope(workspace=str(work), turn=turn))
    assert [one.call.turn for one in UndoHistory(work, place=tmp_path / "kept").changes()] == [5, 6]


async def test_an_agent_with_a_given_engine_refuses_its_own_undo_store(tmp_path: Path) -> None:
    async with Engine() as engine:
        with pytest.raises(UsageError, match="undo for a new one"):
            Agent(Script(), engine, undo=UndoStore(tmp_path))


async def test_journal_and_blob_files_in_the_workspace_are_not_recorded_as_changes(tmp_path: Path) -> None:
    """Undo of a command must not restore the files of the journal or the blobs, even if they are in the workspace."""
    work = tmp_path / "work"
    (work / "log").mkdir(parents=True)
    journal = SqliteJournal(work / "log" / "journal.db")
    undo_store = UndoStore(tmp_path / "kept")
    undo_history = undo_store.of(work)
    async with Engine(command_tools(), journal=journal, blobs=DirectoryBlobs(work / "log" / "blobs"), undo=undo_store) as engine:
        scope = Scope(run="r", workspace=str(work))
        await engine.call(RawCall(name="run_command", arguments={"command": "echo x > new.txt; seq 200000"}), scope)
    assert [step.path for step in undo_history.changes()[0].steps] == ["new.txt"]


_KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
from callgate import Engine, RawCall, Scope, SqliteJournal, tool
from callgate.undo import UndoStore

@tool(effect="once", category="dangerous")
def half(place: str) -> str:
    "Write, and take everything down."
    Path(place, "in.txt").write_text("half")
    Path(place, "own.db.lock").write_text("as the journal does at any time")
    os.kill(os.getpid(), signal.SIGKILL)
    return ""

async def main():
    async with Engine([half], journal=SqliteJournal(Path(sys.argv[1], "own.db")), undo=UndoStore(sys.argv[2])) as engine:
        await engine.call(RawCall(name="half", arguments={"place": sys.argv[1]}), Scope(run="r", workspace=sys.argv[1]))

asyncio.run(main())
"""


@pytest.mark.process
async def test_undo_after_a_kill_leaves_the_journal_files_unchanged(tmp_path: Path) -> None:
    """The pending change lists the host's own files, because `callgate undo` has no engine to ask."""
    work = tmp_path / "work"
    work.mkdir()
    command = [sys.executable, "-c", _KILLED, str(work), str(tmp_path / "kept")]
    await asyncio.to_thread(subprocess.run, command, timeout=COMMAND_S, check=False)
    undo_history = UndoHistory(work, place=tmp_path / "kept")
    undo_history.undo("r", interrupted=True)
    assert not (work / "in.txt").exists()
    assert (work / "own.db.lock").read_text() == "as the journal does at any time"
