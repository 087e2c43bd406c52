"""Tests of a workspace's index: a search with the index gives the same answer as one without it, whatever changed the files."""

from __future__ import annotations

import asyncio
import os
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from callgate import Engine, SqliteJournal, tool
from callgate.builtins import command_tools, workspace_tools
from callgate.memory import Memory, MemoryLimits
from callgate.memory.file_index import fold_case, grams
from tests.builtins.fakes import Box
from tests.memory.fakes import Waiting, make


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


async def settled(memory: Memory) -> None:
    assert await memory.settled()


async def test_a_write_marks_its_file_and_a_search_before_indexing_finds_it(tmp_path: Path, work: Path) -> None:
    """D38: the mark of a write is on disk before anything else, and is removed once the file is read."""
    store = Waiting()
    memory = Memory(tmp_path / "m.db", store=store)
    async with Engine(workspace_tools(index=memory.index), memory=memory, journal=SqliteJournal(tmp_path / "j.db")) as engine:
        await make(engine, work, "write_file", path="a.txt", content="zebra")
        assert store.reached.wait(60)  # the store waits after the mark is written
        with Memory(tmp_path / "m.db") as beside:
            assert beside.status().marked == 1
        result = await make(engine, work, "grep_files", pattern="zebra")
        assert result.structured["matches"] == [{"path": "a.txt", "line": 1, "text": "zebra"}]  # type: ignore[index]
        store.go.set()
        await settled(memory)
        assert memory.status().marked == 0


async def test_files_are_indexed_after_the_first_search_and_again_after_each_write(tmp_path: Path, work: Path) -> None:
    """D38: the first search builds the index, and a write updates it without another search."""
    (work / "a.txt").write_text("zebra")
    (work / "b.txt").write_text("okapi")
    memory = Memory(tmp_path / "m.db")
    async with Engine([*workspace_tools(index=memory.index), *command_tools()], memory=memory) as engine:
        await make(engine, work, "grep_files", pattern="zebra")
        await settled(memory)
        assert memory.status().indexed == 2
        await make(engine, work, "write_file", path="c.txt", content="giraffe")
        await make(engine, work, "run_command", command="rm b.txt")
        await settled(memory)
        assert memory.status().indexed == 2
        read = _reads(memory, work, "giraffe")
        assert read == ["c.txt"]


def _reads(memory: Memory, work: Path, pattern: str) -> list[str]:
    """Return the files that a search has to read."""
    from callgate._workspace import Workspace

    with Workspace(str(work)) as workspace:
        look = memory.index.look(workspace, pattern)
        assert look is not None
        files = [entry for entry in workspace.walk() if entry is not None and entry.kind == "file"]
        return [entry.path for entry in files if look.judge(entry) == "read"]


async def test_a_search_reads_only_files_that_can_match(tmp_path: Path, work: Path) -> None:
    for number in range(50):
        (work / f"{number:02}.txt").write_text(f"number {number} and {'zebra' if number == 7 else 'okapi'}")
    (work / "binary").write_bytes(b"zebra\0")
    memory = Memory(tmp_path / "m.db")
    async with Engine(workspace_tools(index=memory.index), memory=memory) as engine:
        await make(engine, work, "grep_files", pattern="zebra")
        await settled(memory)
        assert _reads(memory, work, "zebra") == ["07.txt"]
        assert _reads(memory, work, "zb") == [f"{number:02}.txt" for number in range(50)]  # too short for the index
        (work / "08.txt").write_text("now a zebra")
        (work / "09.txt").write_text("nothing")
        assert _reads(memory, work, "zebra") == ["07.txt", "08.txt", "09.txt"]


@tool(effect="once", writes="file:{path}")
def may_write(path: str) -> str:
    """Say that a path may be written, and leave it."""
    return path


@pytest.mark.parametrize(("path", "read"), [("a.txt", ["a.txt"]), ("sub", ["sub/b.txt"]), ("", ["a.txt", "sub/b.txt"]), ("s", [])])
async def test_a_marked_file_is_read_even_if_it_looks_unchanged(tmp_path: Path, work: Path, path: str, read: list[str]) -> None:
    """D38: a mark on a file, a folder or the whole workspace stays until the files are read."""
    (work / "sub").mkdir()
    for name in ("a.txt", "sub/b.txt"):
        (work / name).write_text("zebra")
    store = Waiting()
    memory = Memory(tmp_path / "m.db", store=store)
    memory.index.refresh(str(work), None, lambda: False)
    assert _reads(memory, work, "okapi") == []
    async with Engine([may_write], memory=memory) as engine:
        await make(engine, work, "may_write", path=path)
        assert store.reached.wait(60)
        assert _reads(memory, work, "okapi") == read
        store.go.set()
        await settled(memory)
        assert _reads(memory, work, "okapi") == []


PIECES = [
    "zebra",
    "ZEBRA",
    "Straße",
    "İstanbul",
    "ΣΑΣ",
    "σας",
    "ab",
    "\n",
    " ",
    "é",
    "日本語",
    "\0",
    '"',
    "x" * 50,
    "\ufffe",
    "🙂",
    "needle",
]
TEXTS = st.lists(st.sampled_from(PIECES), max_size=8).map("".join)
NAMES = st.sampled_from(["a.txt", "b.txt", "sub/c.txt", "sub/d.md", "build/e.txt", ".env", "odd\x01name"])
EDITS = st.tuples(st.sampled_from(["write", "replace", "delete", "touch", "ignore", "index"]), NAMES, TEXTS)


@settings(max_examples=60, deadline=None)
@given(edits=st.lists(EDITS, min_size=1, max_size=12), asked=TEXTS.filter(bool), ignore_case=st.booleans(), seed=st.integers(0, 9))
def test_searches_with_and_without_the_index_give_equal_results(
    edits: list[tuple[str, str, str]], asked: str, ignore_case: bool, seed: int
) -> None:
    """Files are written, replaced within one clock tick, deleted, set back to an old time and ignored, and indexed at any moment."""
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder) / "work"
        work.mkdir()
        with Memory(Path(folder) / "m.db") as memory:
            plain, indexed = Box(workspace_tools(), work), Box(workspace_tools(index=memory.index), work)
            for what, name, text in edits:
                edit(memory, work, what, name, text)
            options: dict[str, Any] = {"ignore_case": ignore_case, "max_matches": random.Random(seed).choice([1, 2, 100])}
            for pattern in (asked, asked[:3], asked[1:5] or "a", "zebra"):
                expected = plain("grep_files", pattern=pattern, **options)
                assert indexed("grep_files", pattern=pattern, **options) == expected
                inside = plain("grep_files", pattern=pattern, path="sub", glob="**/*.txt", **options) if (work / "sub").is_dir() else None
                if inside is not None:
                    assert indexed("grep_files", pattern=pattern, path="sub", glob="**/*.txt", **options) == inside


def edit(memory: Memory, work: Path, what: str, name: str, text: str) -> None:
    path = work / name
    path.parent.mkdir(exist_ok=True)
    match what:
        case "write":
            path.write_text(text)
        case "replace" if path.is_file():
            size, times = path.stat().st_size, path.stat()
            path.write_bytes((text.encode() + b"needle" * 40)[:size])
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        case "delete":
            path.unlink(missing_ok=True)
        case "touch" if path.is_file():
            os.utime(path, (1, 1))
        case "ignore":
            (work / ".gitignore").write_text("build/\n*.md\n")
        case "index":
            memory.index.refresh(str(work.resolve()), None, lambda: False)


def test_case_folding_a_text_equals_folding_each_character() -> None:
    """Folding that depends on neighbouring characters would let the index miss a matching file."""
    everything = [chr(code) for code in range(sys.maxunicode + 1) if not 0xD800 <= code <= 0xDFFF]
    assert fold_case("".join(everything)) == "".join(map(fold_case, everything))
    assert all(fold_case(char.lower()) == fold_case(char) for char in everything)


@example(before="", piece="ΣΑΣ", after="Α")  # noqa: RUF001
@example(before="a", piece="ΑΣ", after="")
@given(before=st.text(max_size=5), piece=st.text(min_size=1, max_size=60), after=st.text(max_size=5))
def test_a_text_that_contains_a_pattern_has_all_grams_of_the_pattern(before: str, piece: str, after: str) -> None:
    text = before + piece + after
    for pattern in (piece, piece.lower(), piece.upper() if piece.upper().lower() in text.lower() else piece):
        assert all(gram in fold_case(text) for gram in grams(pattern))


def test_a_file_is_indexed_only_when_a_later_write_would_change_its_time(tmp_path: Path, work: Path) -> None:
    """A write within one tick of the file system's clock leaves the file's time unchanged, so indexing waits for the next tick."""
    with Memory(tmp_path / "m.db") as memory:
        for number in range(3):
            (work / f"{number}.txt").write_text("zebra")
        memory.index.refresh(str(work), None, lambda: False)
        now_ns = time.time_ns()
        assert memory.status().indexed == 3
        assert all(now_ns - file.stat().st_ctime_ns >= 50_000_000 for file in work.iterdir())


def test_the_oldest_workspace_index_is_dropped_at_the_limit(tmp_path: Path) -> None:
    """A host that uses a new folder for each run must not fill the disk."""
    with Memory(tmp_path / "m.db", limits=MemoryLimits(indexed_workspaces=2)) as memory:
        for number in range(4):
            work = tmp_path / str(number)
            work.mkdir()
            (work / "a.txt").write_text("zebra")
            memory.index.refresh(str(work), None, lambda: False)
        assert memory.status().indexed == 2
        assert [memory.index.has(str(tmp_path / str(number))) for number in range(4)] == [False, False, True, True]
        assert _reads(memory, tmp_path / "3", "okapi") == []
        assert _reads(memory, tmp_path / "0", "okapi") == ["a.txt"]


async def test_a_search_with_an_unusable_index_answers_as_without_one(tmp_path: Path, work: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The fault of the index is reported."""
    (work / "a.txt").write_text("zebra")
    memory = Memory(tmp_path / "m.db")
    indexed = Box(workspace_tools(index=memory.index), work)
    await asyncio.to_thread(memory.close_sync)
    assert indexed("grep_files", pattern="zebra") == Box(workspace_tools(), work)("grep_files", pattern="zebra")
    assert "cannot be used" in caplog.text


async def test_files_with_secret_names_leave_nothing_in_the_index(tmp_path: Path, work: Path) -> None:
    """Such files are still searched, but the index file contains none of their content."""
    (work / ".env").write_text("PASSWORD=hunter2")
    memory = Memory(tmp_path / "m.db")
    async with Engine(workspace_tools(index=memory.index), memory=memory) as engine:
        for _ in range(2):
            await make(engine, work, "grep_files", pattern="something else")
            await settled(memory)
        assert _reads(memory, work, "nothing of it") == [".env"]
        assert memory.status().indexed == 1
    assert b"hun" not in (tmp_path / "m.db").read_bytes()
