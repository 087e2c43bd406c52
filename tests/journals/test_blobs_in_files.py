"""Tests of large results and messages of a file journal: they are stored beside the file and stay there after the process ends."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path

import pytest

from callgate import DirectoryBlobs, Engine, SqliteJournal, UsageError, tool
from callgate.agent import Agent
from callgate.builtins import result_tools
from callgate.replay import Replay
from tests.agent.recording_tools import Board
from tests.agent.scripted_model import Script, call, says
from tests.cli.shell import shell
from tests.engine_calls import call as raw_call
from tests.engine_calls import said
from tests.host_fakes import Asks

LARGE = "All work and no play. " * 100_000


@tool(effect="none")
async def log(lines: int) -> str:
    """Give so many lines."""
    return "\n".join(f"line {n}" for n in range(lines))


async def test_a_large_result_can_be_read_by_the_next_engine(tmp_path: Path) -> None:
    """The next engine needs only the journal. The blob folder does not exist before the first large result."""
    path, folder = tmp_path / "journal.db", tmp_path / "journal.db.blobs"
    async with Engine([log], journal=SqliteJournal(path)) as engine:
        await said(engine, raw_call("log", lines=3))
        assert not folder.exists()
        digest = str((await said(engine, raw_call("log", lines=100_000))).metadata.blob)
        assert folder.is_dir()
    async with Engine(journal=SqliteJournal(path)) as other:
        for one in result_tools(other.blobs):
            other.register(one)
        found = await said(other, raw_call("search_result", digest=digest, query="line 54321"))
    assert "line 54321" in found.text


async def test_a_run_with_a_large_message_is_resumed_by_another_engine(tmp_path: Path) -> None:
    """The run can also be replayed from its events by a reader that has only the journal."""
    board = Board()

    def engine() -> Engine:
        return Engine(board.tools(), policies=[Asks("change")], journal=SqliteJournal(tmp_path / "journal.db"))

    async with engine() as first, Agent(Script(says("Changing.", call("change", {"what": "b"}))), first) as agent:
        waiting = await agent.run(f"Change b. {LARGE}")
        assert waiting.pending is not None
        await first.answer(waiting.pending.approvals[0].approval_id, allow=True)
    async with engine() as second, Agent(Script(says("Changed it.")), second) as agent:
        result = await agent.resume(waiting.run)
        assert (result.status, result.text) == ("completed", "Changed it.")
        assert LARGE in str(result.messages[0])
    assert board.done == ["change b"]
    journal = SqliteJournal(tmp_path / "journal.db")
    assert Replay.of(journal, waiting.run).gaps == ()
    await journal.close()


async def test_a_journal_opened_through_a_symlink_has_its_large_results(tmp_path: Path) -> None:
    """The symbolic link names the same journal for writers and for readers."""
    (tmp_path / "there").mkdir()
    link = tmp_path / "link.db"
    link.symlink_to(tmp_path / "there" / "journal.db")
    async with Engine([log], journal=SqliteJournal(link)) as engine:
        run = (await said(engine, raw_call("log", lines=100_000))).uid.rsplit("/", 2)[0]
    journal = SqliteJournal(link)
    assert Replay.of(journal, run).gaps == ()
    await journal.close()


async def test_a_result_that_cannot_be_stored_as_a_blob_is_logged_and_the_call_succeeds(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "journal.db.blobs").write_text("in the way")
    with caplog.at_level(logging.ERROR, "callgate"):
        async with Engine([log], journal=SqliteJournal(tmp_path / "journal.db")) as engine:
            result = await said(engine, raw_call("log", lines=100_000))
    assert (result.status, result.metadata.blob) == ("ok", None)
    assert "journal.db.blobs" in str(caplog.records[0].exc_info)


@pytest.mark.process
def test_the_command_line_reads_blobs_stored_in_the_folder_of_an_older_version(tmp_path: Path) -> None:
    (tmp_path / "long.txt").write_text("\n".join(f"line {n}" for n in range(40_000)))
    seen = shell(tmp_path, "call", "run_command", json.dumps({"command": "cat long.txt"}), "--journal", "j.db", "--json")
    digest = seen.json["metadata"]["blob"]
    assert (tmp_path / "j.db.blobs").is_dir()
    old = DirectoryBlobs(tmp_path / "blobs").put(b"an older result")
    for one, text in ((digest, "line 0"), (old, "an older result")):
        page = shell(tmp_path, "call", "read_result", json.dumps({"digest": one, "limit": 100}), "--journal", "j.db")
        assert (page.code, text in page.out) == (0, True), page.err


async def test_resuming_a_run_whose_large_message_is_missing_is_refused(tmp_path: Path) -> None:
    board, path = Board(), tmp_path / "journal.db"
    async with Engine(board.tools(), policies=[Asks("change")], journal=SqliteJournal(path)) as first:
        waiting = await Agent(Script(says("Changing.", call("change", {"what": "b"}))), first).run(f"Change b. {LARGE}")
    shutil.rmtree(tmp_path / "journal.db.blobs")
    async with Engine(board.tools(), policies=[Asks("change")], journal=SqliteJournal(path)) as second:
        with pytest.raises(UsageError, match="is gone from there"):
            await Agent(Script(), second).resume(waiting.run)
