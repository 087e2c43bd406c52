"""Tests of large results of a PostgreSQL journal: every client that can read the journal can read them, on any machine."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from callgate import DirectoryBlobs, Engine, PostgresJournal, tool
from callgate.builtins import result_tools
from callgate.errors import JournalFailed
from tests.cli.shell import shell
from tests.engine_calls import call, said
from tests.journals.postgres_server import Server

LARGE = b"\x00\xff" * 1_500_000
"""Large enough to be stored in several pieces."""


@tool(effect="none")
async def log(lines: int) -> str:
    """Give so many lines."""
    return "\n".join(f"line {n}" for n in range(lines))


async def read_elsewhere(url: str, digest: str) -> bytes | None:
    """As another engine sees it."""
    journal = PostgresJournal(url)
    found = journal.blobs.get(digest)
    await journal.close()
    return found


async def test_a_large_result_is_stored_in_postgres_before_it_is_returned(database: str) -> None:
    """A returned result must be durable as a whole, and no part of it is stored in a folder of one machine."""
    async with Engine([log], journal=PostgresJournal(database)) as engine:
        result = await said(engine, call("log", lines=100_000))
        digest = str(result.metadata.blob)
        whole = await read_elsewhere(database, digest)  # while the engine is still at work
    assert whole is not None
    assert whole.decode().splitlines()[54_321] == "line 54321"
    async with Engine(journal=PostgresJournal(database)) as other:
        for one in result_tools(other.blobs):
            other.register(one)
        found = await said(other, call("search_result", digest=digest, query="line 54321"))
    assert "line 54321" in found.text


async def test_blobs_are_stored_once_and_remain_after_the_journal_is_closed(postgres: Server, database: str) -> None:
    for _ in range(2):
        journal = PostgresJournal(database)
        digests = [journal.blobs.put(data) for data in (LARGE, b"", b"small")]
        await journal.close()
    assert [await read_elsewhere(database, digest) for digest in digests] == [LARGE, b"", b"small"]
    assert postgres.ask("SELECT count(*), sum(length(data)) FROM callgate.blobs", database) == [(5, len(LARGE) + 5)]


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE {} SET data = 'x' WHERE part = 1",
        "DELETE FROM {} WHERE part = 0",
        "INSERT INTO {} SELECT digest, 9, data FROM {} WHERE part = 0",
    ],
)
async def test_an_altered_blob_is_never_returned_and_the_next_put_repairs_it(
    postgres: Server, database: str, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    journal = PostgresJournal(database)
    digest = journal.blobs.put(LARGE)
    await journal.close()
    postgres.ask(damage.replace("{}", "callgate.blobs"), database)
    with caplog.at_level(logging.WARNING, "callgate.blobs"):
        assert await read_elsewhere(database, digest) is None
    assert digest in caplog.text
    journal = PostgresJournal(database)
    journal.blobs.put(LARGE)
    await journal.close()
    assert await read_elsewhere(database, digest) == LARGE


async def test_a_large_result_that_cannot_be_stored_is_not_a_success(postgres: Server, database: str) -> None:
    async with Engine([log], journal=PostgresJournal(database)) as engine:
        assert (await said(engine, call("log", lines=1))).success
        postgres.ask("DROP TABLE callgate.blobs", database)
        result = await said(engine, call("log", lines=100_000))
        assert (result.status, result.code) == ("error", "record_failed")
        assert "blobs" in engine.journal.status().failure


async def test_blobs_waiting_for_the_server_are_bounded_in_memory(postgres: Server, database: str) -> None:
    """The limit is enforced with an error that names it."""
    journal = PostgresJournal(database)
    piece = bytes(64 * 1024 * 1024)
    for n in range(4):
        journal.blobs.put(n.to_bytes() + piece[1:])
    with pytest.raises(JournalFailed, match="wait for the server"):
        journal.blobs.put(b"one more")
    postgres.cut_connections(database)  # so that close() does not write 256 MB
    await journal.close()


async def test_an_older_schema_without_blobs_can_be_read(postgres: Server, database: str) -> None:
    await PostgresJournal(database).close()
    postgres.ask("DROP TABLE callgate.blobs", database)
    assert await read_elsewhere(database, "0" * 64) is None


@pytest.mark.process
def test_the_command_line_reads_a_large_result_from_another_working_folder(database: str, tmp_path: Path) -> None:
    """The command also reads a result that an older callgate stored in its own working folder."""
    here, there = tmp_path / "here", tmp_path / "there"
    for folder in (here, there):
        folder.mkdir()
    (here / "long.txt").write_text("\n".join(f"line {n}" for n in range(40_000)))
    seen = shell(here, "call", "run_command", json.dumps({"command": "cat long.txt"}), "--journal", database, "--json")
    digest = seen.json["metadata"]["blob"]
    assert not (here / ".callgate" / "blobs").exists()
    old = DirectoryBlobs(there / ".callgate" / "blobs").put(b"an older result")
    for one, text in ((digest, "line 0"), (old, "an older result")):
        page = shell(there, "call", "read_result", json.dumps({"digest": one, "limit": 100}), "--journal", database)
        assert (page.code, text in page.out) == (0, True), page.err
