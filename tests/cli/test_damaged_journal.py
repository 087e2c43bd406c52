"""A journal file with an overwritten page: every command that reads it reports the damage."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from callgate import Engine, RawCall, Scope, SqliteJournal, tool
from tests.cli.shell import shell

PAGE = 4096
COMMANDS = [
    ("log", "list"),
    ("log", "list", "--json"),
    ("log", "show", "run-2"),
    ("log", "tree", "run-2"),
    ("log", "stats"),
    ("log", "export"),
    ("log", "result", "run-2/0/0"),
]


@tool(effect="none")
def echo(text: str) -> str:
    """Say it again."""
    return text


async def _recorded(path: Path) -> None:
    journal = SqliteJournal(path)
    async with Engine([echo], journal=journal) as engine:
        for number in range(60):
            await engine.call(RawCall(name="echo", arguments={"text": "x" * 300}), Scope(run=f"run-{number % 6}"))
    await journal.close()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("whole") / "journal.db"
    asyncio.run(_recorded(path))
    return path.read_bytes()


def _offsets(size: int) -> list[int]:
    """Return offsets at the beginning, the middle and the end, at a page boundary and within a page."""
    return [2 * PAGE, 5 * PAGE, size // 2 // PAGE * PAGE, size // 2 // PAGE * PAGE + PAGE // 2, size - PAGE]


@pytest.mark.parametrize("place", range(5))
def test_an_overwritten_page_is_reported_by_every_command_that_reads(tmp_path: Path, whole: bytes, place: int) -> None:
    offset = _offsets(len(whole))[place]
    damaged = whole[:offset] + random.Random(place).randbytes(PAGE) + whole[offset + PAGE :]
    (tmp_path / "journal.db").write_bytes(damaged[: len(whole)])
    for words in COMMANDS:
        done = shell(tmp_path, *words, "--journal", "journal.db")
        assert done.code != 0, (words, done.out[-400:], done.err)
        assert "journal.db is damaged" in done.err, (words, done.err)
        assert "callgate log verify" in done.err
    assert shell(tmp_path, "log", "verify", "--journal", "journal.db").code == 1


@pytest.mark.parametrize("words", COMMANDS)
def test_an_undamaged_journal_is_read_without_a_warning(tmp_path: Path, whole: bytes, words: tuple[str, ...]) -> None:
    (tmp_path / "journal.db").write_bytes(whole)
    done = shell(tmp_path, *words, "--journal", "journal.db")
    assert (done.code, "damaged" in done.err) == (0, False), done.err
