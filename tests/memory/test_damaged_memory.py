"""Tests of a memory whose file is damaged while it is open: it raises a typed error with the cause and the next step; no call fails."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from callgate.errors import CallgateError, MemoryFailed, UsageError
from callgate.memory import Memory, PassageQuery
from tests.cli.shell import shell

ZEBRA = PassageQuery(text="zebra", principal="")
ASKED: dict[str, Callable[[Memory], object]] = {
    "remember": lambda memory: memory.remember("zebra again " * 50),
    "search": lambda memory: memory.search(ZEBRA),
    "status": lambda memory: memory.status(),
    "forget": lambda memory: memory.forget("note-1"),
}


def damaged(path: Path) -> None:
    """Overwrite all pages except the first two."""
    with path.open("r+b") as file:
        file.seek(8192)
        file.write(os.urandom(max(0, path.stat().st_size - 8192)))


@pytest.fixture
def memory(tmp_path: Path) -> Path:
    path = tmp_path / "memory.db"
    with Memory(path) as memory:
        for number in range(60):
            memory.remember(f"A zebra number {number}. " * 20)
    assert not Path(f"{path}-wal").exists() or Path(f"{path}-wal").stat().st_size == 0
    return path


@pytest.mark.parametrize("ask", ASKED.values(), ids=ASKED)
def test_a_damaged_memory_raises_only_memory_failed_or_usage_error(memory: Path, ask: Callable[[Memory], object]) -> None:
    """Undamaged parts still work; other operations raise one of two errors, which name the file and the next step."""
    damaged(memory)
    told: list[CallgateError] = []
    try:
        with Memory(memory) as opened:
            ask(opened)
    except CallgateError as error:
        told.append(error)
    for one in told:
        assert isinstance(one, MemoryFailed | UsageError)
        assert str(memory) in str(one)


def test_a_search_in_a_damaged_memory_raises_memory_failed_and_names_rebuild(memory: Path) -> None:
    with Memory(memory) as opened:
        damaged(memory)
        with pytest.raises(MemoryFailed, match=r"cannot be read or written: .*callgate memory rebuild") as caught:
            opened.search(ZEBRA)
    assert caught.value.code == "memory_failed"


@pytest.mark.parametrize("words", [("search", "zebra"), ("status",)], ids=["search", "status"])
def test_the_cli_reports_a_damaged_memory_with_the_next_step(memory: Path, words: tuple[str, ...]) -> None:
    damaged(memory)
    done = shell(memory.parent, "memory", *words, "--memory", str(memory))
    assert done.code in (1, 2)
    assert "again from the journal" in done.err
    assert "Error:" not in done.err


def test_a_damaged_memory_can_be_deleted_and_created_again(memory: Path) -> None:
    """The error tells the user to delete the file; after that the memory starts empty."""
    damaged(memory)
    for file in memory.parent.glob("memory.db*"):
        file.unlink()
    with Memory(memory) as opened:
        assert opened.search(ZEBRA) == []
