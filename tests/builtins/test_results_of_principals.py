"""A whole result is read by the principal whose call made it, and by no other."""

from __future__ import annotations

from pathlib import Path

import pytest

from callgate import Engine, RawCall, Scope, SqliteJournal, ToolContext, ToolResult, tool
from callgate.builtins import result_tools
from tests.engine_calls import said

LINES = 20_000


@tool(effect="none")
async def log(word: str) -> str:
    """Return a large text."""
    return f"{word}\n" * LINES


@tool(effect="none")
async def broken(word: str) -> dict[str, object]:
    """Fail with a large output."""
    return {"success": False, "error": "it broke", "output": f"{word}\n" * LINES}


@tool(effect="none")
async def asks_log(context: ToolContext, word: str) -> str:
    """Call `log`, and return the hash of its result."""
    return str((await context.call("log", {"word": word})).metadata.blob)


def engine_of(journal: SqliteJournal | None = None) -> Engine:
    engine = Engine([log, broken, asks_log], journal=journal)
    for one in result_tools(engine.blobs):
        engine.register(one)
    return engine


async def ask(engine: Engine, name: str, principal: str = "", **arguments: object) -> ToolResult:
    return await said(engine, RawCall(name=name, arguments=arguments), Scope(principal=principal))


async def read(engine: Engine, digest: object, principal: str = "") -> tuple[str, str]:
    """Return what each of the two tools says of a stored result: `read`, or why it cannot be read."""
    page = await ask(engine, "read_result", principal, digest=digest, limit=4)
    found = await ask(engine, "search_result", principal, digest=digest, query="salt", max_matches=1)
    return page.error or "read", found.error or "read"


@pytest.mark.parametrize("name", ["log", "broken"])
async def test_a_principal_reads_its_own_results_and_no_others(name: str) -> None:
    async with engine_of() as engine:
        digest = (await ask(engine, name, "ana", word="salt")).metadata.blob
        assert await read(engine, digest, "ana") == ("read", "read")
        for refused in await read(engine, digest, "bob"):
            assert "is not the hash of a stored result" in refused


async def test_another_principals_result_is_refused_in_the_words_for_a_hash_that_does_not_exist() -> None:
    """Otherwise a principal could find out which contents others have got."""
    async with engine_of() as engine:
        digest = str((await ask(engine, "log", "ana", word="salt")).metadata.blob)
        theirs, absent = await read(engine, digest, "bob"), await read(engine, "0" * 64, "bob")
    assert [text.replace(digest, "") for text in theirs] == [text.replace("0" * 64, "") for text in absent]


async def test_two_principals_with_the_same_content_both_read_it() -> None:
    async with engine_of() as engine:
        digests = {name: (await ask(engine, "log", name, word="salt")).metadata.blob for name in ("ana", "bob")}
        assert digests["ana"] == digests["bob"]
        assert [await read(engine, digest, name) for name, digest in digests.items()] == [("read", "read")] * 2


async def test_where_nobody_is_named_all_results_are_read() -> None:
    async with engine_of() as engine:
        of_ana, of_nobody = [(await ask(engine, "log", name, word="salt")).metadata.blob for name in ("ana", "")]
        assert [await read(engine, digest) for digest in (of_ana, of_nobody)] == [("read", "read")] * 2


async def test_a_result_of_nobody_is_not_read_by_a_principal() -> None:
    async with engine_of() as engine:
        digest = (await ask(engine, "log", word="salt")).metadata.blob
        assert "read" not in await read(engine, digest, "ana")


async def test_the_result_of_a_nested_call_belongs_to_the_principal_of_the_outer_one() -> None:
    async with engine_of() as engine:
        digest = (await ask(engine, "asks_log", "ana", word="salt")).text
        assert await read(engine, digest, "ana") == ("read", "read")
        assert "read" not in await read(engine, digest, "bob")


async def test_a_result_still_belongs_to_its_principal_after_a_restart(tmp_path: Path) -> None:
    async with engine_of(SqliteJournal(tmp_path / "journal.db")) as engine:
        digest = (await ask(engine, "log", "ana", word="salt")).metadata.blob
    async with engine_of(SqliteJournal(tmp_path / "journal.db")) as engine:
        assert await read(engine, digest, "ana") == ("read", "read")
        assert "read" not in await read(engine, digest, "bob")
