"""Tests that the files written by calls of an engine are remembered."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from callgate import Engine, SqliteJournal, UsageError, tool
from callgate.builtins import command_tools, workspace_tools
from callgate.memory import Memory, MemoryLimits, PassageQuery
from callgate.tools import ToolRegistry
from tests.host_fakes import Hider
from tests.memory.fakes import Broken, Waiting, found, let_the_clock_move_on, make


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


def files_of(items: list[dict[str, object]]) -> list[str]:
    return sorted(str(item["path"]) for item in items if item["from"] == "file")


async def test_a_written_file_is_remembered_with_the_call_that_wrote_it(tmp_path: Path, work: Path) -> None:
    """D39: each write is passed to the memory, which redacts its text, splits it and stores it."""
    memory = Memory(tmp_path / "m.db")
    body = "".join(f"# Part {number}\n\n{'words ' * 200}\n\n" for number in range(4))
    async with Engine([*workspace_tools(), *memory.tools()], memory=memory, journal=SqliteJournal(tmp_path / "j.db")) as engine:
        await make(engine, work, "write_file", path="notes/plan.md", content=f"{body}# Zebra\n\nShip the zebra.\n")
        assert await memory.settled()
        (item,) = [item for item in await found(engine, work, "zebra") if item["from"] == "file"]
        assert (item["path"], item["line"], item["call"]) == ("notes/plan.md", 13, "r1/0/0")
        assert "Ship the zebra." in item["text"]
        assert memory.status().pieces > 1


async def test_old_passages_of_a_changed_moved_or_deleted_file_are_removed(tmp_path: Path, work: Path) -> None:
    """This applies to a file that any call writes again, edits, moves or deletes."""
    memory = Memory(tmp_path / "m.db")
    async with Engine([*workspace_tools(), *command_tools(), *memory.tools()], memory=memory) as engine:
        await make(engine, work, "write_file", path="a.txt", content="zebra " * 2_000)
        assert files_of(await found(engine, work, "zebra okapi")) == ["a.txt"] * memory.status().pieces
        await make(engine, work, "write_file", path="a.txt", content="okapi")
        assert files_of(await found(engine, work, "zebra okapi")) == ["a.txt"]
        await make(engine, work, "edit_file", path="a.txt", old="okapi", new="giraffe")
        assert files_of(await found(engine, work, "okapi")) == []
        await make(engine, work, "run_command", command="mkdir in && mv a.txt in/b.txt")
        assert files_of(await found(engine, work, "giraffe")) == ["in/b.txt"]
        let_the_clock_move_on(tmp_path)
        await make(engine, work, "run_command", command="mv in out")  # keeps the file's times
        assert files_of(await found(engine, work, "giraffe")) == ["out/b.txt"]
        await make(engine, work, "run_command", command="rm -r out")
        assert files_of(await found(engine, work, "giraffe")) == []
        await memory.settled()
        assert memory.status().pieces == 0


async def test_a_file_changed_from_outside_is_not_recalled_with_its_old_content(tmp_path: Path, work: Path) -> None:
    """The change is detected during recall, and the file is read again."""
    memory = Memory(tmp_path / "m.db")
    async with Engine([*workspace_tools(), *memory.tools()], memory=memory) as engine:
        await make(engine, work, "write_file", path="a.txt", content="zebra")
        assert files_of(await found(engine, work, "zebra")) == ["a.txt"]
        (work / "a.txt").write_text("zebra and okapi")
        assert files_of(await found(engine, work, "zebra")) == []
        assert await memory.settled()
        assert files_of(await found(engine, work, "okapi")) == ["a.txt"]
        (work / "a.txt").unlink()
        assert files_of(await found(engine, work, "okapi")) == []


@pytest.mark.parametrize(
    "command",
    [
        "printf 'zebra\\0' > a.bin",
        "printf 'build/\\n' > .gitignore && mkdir build && echo zebra > build/a.txt",
        "echo zebra > .env",
        "mkdir .git && echo zebra > .git/description",
        "head -c 2000000 /dev/zero | tr '\\0' 'z' > big.txt && echo ' zebra' >> big.txt",
        "ln -s ../outside.txt link.txt",
        "mkfifo pipe",
    ],
    ids=["binary", "ignored", "secret by name", "version control", "too large", "outside", "no file"],
)
async def test_only_text_files_of_the_workspace_within_limits_are_remembered(tmp_path: Path, work: Path, command: str) -> None:
    """Files that a search skips, secret files and files outside the workspace are left out; other files are remembered."""
    (tmp_path / "outside.txt").write_text("zebra")
    memory = Memory(tmp_path / "m.db")
    async with Engine([*command_tools(), *memory.tools()], memory=memory) as engine:
        result = await make(engine, work, "run_command", command=f"{command}; echo zebra > beside.txt")
        assert result.status == "ok", result.error
        assert files_of(await found(engine, work, "zebra")) == ["beside.txt"]


@pytest.mark.parametrize("path", ["build/a.txt", ".env", "secrets/id_rsa"])
async def test_ignored_secret_and_binary_files_are_not_remembered_for_named_writes(tmp_path: Path, work: Path, path: str) -> None:
    """The same rules apply to a call with declared writes. Stored passages are removed when a file becomes ignored, secret or binary."""
    memory = Memory(tmp_path / "m.db")
    async with Engine([*workspace_tools(), *memory.tools()], memory=memory) as engine:
        await make(engine, work, "write_file", path=".gitignore", content="build/\n")
        await make(engine, work, "write_file", path=path, content="zebra")
        await make(engine, work, "write_file", path="b.txt", content="zebra")
        assert files_of(await found(engine, work, "zebra")) == ["b.txt"]
        await make(engine, work, "write_file", path="b.txt", content="\0zebra")
        assert files_of(await found(engine, work, "zebra")) == []


@tool(effect="once", writes="file:{path}")
def put(path: str, into: str) -> str:
    """Write a file, and say so in one's own words."""
    Path(into).write_text("zebra")
    return path


@pytest.mark.parametrize("given", ["a.txt", "./a.txt", "sub/../a.txt", "{work}/a.txt", "link/a.txt"])
async def test_a_file_has_one_path_in_memory_however_a_tool_writes_the_path(tmp_path: Path, work: Path, given: str) -> None:
    """A tool's author may declare the path in any spelling."""
    (work / "sub").mkdir()
    (work / "link").symlink_to(work)
    memory = Memory(tmp_path / "m.db")
    async with Engine([put, *memory.tools()], memory=memory) as engine:
        await make(engine, work, "put", path=given.format(work=work), into=str(work / "a.txt"))
        await make(engine, work, "put", path="a.txt", into=str(work / "a.txt"))
        assert files_of(await found(engine, work, "zebra")) == ["a.txt"]
        assert memory.status().failure == ""


@pytest.mark.parametrize("given", ["../outside.txt", "{work}/../outside.txt", "/outside.txt", "a\0b", "sub"])
async def test_declared_writes_outside_the_workspace_are_not_read_and_are_no_failure(tmp_path: Path, work: Path, given: str) -> None:
    """Such a declaration is valid, so it must not count as a failure of the memory."""
    (work / "sub").mkdir()
    memory = Memory(tmp_path / "m.db")
    async with Engine([put, *memory.tools()], memory=memory) as engine:
        await make(engine, work, "put", path=given.format(work=work), into=str(tmp_path / "outside.txt"))
        assert files_of(await found(engine, work, "zebra")) == []
        assert memory.status().failure == ""


async def test_a_deleted_workspace_is_not_a_failure_of_the_memory(tmp_path: Path, work: Path) -> None:
    """A host may delete its folders at any time; their files are not recalled afterwards."""
    memory = Memory(tmp_path / "m.db")
    async with Engine([*workspace_tools(), *command_tools(), *memory.tools()], memory=memory) as engine:
        await make(engine, work, "write_file", path="a.txt", content="zebra")
        assert await memory.settled()
        await make(engine, work, "run_command", command="rm -r ../work")
        assert await memory.settled()
        assert files_of(await found(engine, work, "zebra")) == []
        assert memory.status().failure == ""


async def test_only_files_that_changed_during_a_command_are_remembered_for_it(tmp_path: Path, work: Path) -> None:
    """A command does not declare its writes, so only files changed since the call was received belong to it."""
    (work / "old.txt").write_text("zebra")
    os.utime(work / "old.txt", (1, 1))
    let_the_clock_move_on(tmp_path)
    memory = Memory(tmp_path / "m.db")
    async with Engine([*command_tools(), *memory.tools()], memory=memory) as engine:
        await make(engine, work, "run_command", command="echo zebra > new.txt")
        assert files_of(await found(engine, work, "zebra")) == ["new.txt"]


async def test_secrets_are_redacted_before_a_text_is_split_into_chunks(tmp_path: Path, work: Path) -> None:
    """A secret that is split between two chunks could not be recognised."""
    memory = Memory(tmp_path / "m.db")
    async with Engine([*workspace_tools(), *memory.tools()], memory=memory, redactor=Hider()) as engine:
        for shift in range(1_990, 2_004):
            await make(engine, work, "write_file", path=f"{shift}.txt", content="x" * shift + "hunter2 zebra")
        assert await memory.settled()
        assert memory.status().pieces > 14
    assert b"hunter2" not in (tmp_path / "m.db").read_bytes()


async def test_a_file_name_with_a_secret_is_not_stored_in_the_index(tmp_path: Path, work: Path) -> None:
    """The memory contains no secret that the redactor knows; a search still finds the file."""
    (work / "hunter2.txt").write_text("zebra")
    (work / "other.txt").write_text("zebra")
    memory = Memory(tmp_path / "m.db")
    async with Engine(workspace_tools(index=memory.index), memory=memory, redactor=Hider()) as engine:
        for _ in range(2):
            found_by_search = (await make(engine, work, "grep_files", pattern="zebra")).structured
            assert isinstance(found_by_search, dict)
            assert len(found_by_search["matches"]) == 2
            assert await memory.settled()
        assert memory.status().indexed == 1
    assert b"hunter2" not in (tmp_path / "m.db").read_bytes()


async def test_files_remembered_with_a_redactor_are_not_read_again_without_it(tmp_path: Path, work: Path) -> None:
    """Another engine on the same memory, a search without an engine, and a rebuild must not store what the first engine redacts."""
    journal, place = tmp_path / "j.db", tmp_path / "m.db"
    store = Waiting()
    memory = Memory(place, store=store, limits=MemoryLimits(close_s=0.1))
    async with Engine(workspace_tools(), memory=memory, redactor=Hider(), journal=SqliteJournal(journal)) as engine:
        await make(engine, work, "write_file", path="marked.txt", content="zebra hunter2")
        assert store.reached.wait(60)
    store.go.set()
    memory = Memory(place)
    async with Engine([*workspace_tools(), *memory.tools()], memory=memory, redactor=Hider(), journal=SqliteJournal(journal)) as engine:
        await make(engine, work, "write_file", path="kept.txt", content="zebra hunter2")
        assert files_of(await found(engine, work, "zebra")) == ["kept.txt", "marked.txt"]
        await make(engine, work, "write_file", path="marked.txt", content="zebra hunter2 again")
        (work / "kept.txt").write_text("zebra hunter2, says somebody else")
    without = Memory(place)
    async with Engine([*workspace_tools(), *without.tools()], memory=without) as engine:
        assert files_of(await found(engine, work, "zebra")) == ["marked.txt"]
        await without.settled()
        assert without.status().marked == 1
    with Memory(place) as looked_at:
        looked_at.search(PassageQuery(text="zebra", principal="ann"))
    reader = SqliteJournal(journal)
    with Memory(tmp_path / "again.db") as again:
        again.rebuild(reader.find, ToolRegistry(workspace_tools()))
        assert (again.status().pieces, again.status().marked) == (0, 0)
    await reader.close()
    assert all(b"hunter2" not in file.read_bytes() for file in (place, tmp_path / "again.db"))


async def test_files_are_recalled_only_in_their_workspace_by_their_principal(tmp_path: Path, work: Path) -> None:
    """Neither another folder nor another principal may read them."""
    other = tmp_path / "other"
    other.mkdir()
    memory = Memory(tmp_path / "m.db")
    async with Engine([*workspace_tools(), *memory.tools()], memory=memory) as engine:
        await make(engine, work, "write_file", path="a.txt", content="zebra")
        assert files_of(await found(engine, work, "zebra")) == ["a.txt"]
        elsewhere: list[tuple[Path | str, str]] = [(other, "ann"), ("", "ann"), (work, "bob"), (work, "")]
        for workspace, principal in elsewhere:
            assert files_of(await found(engine, workspace, "zebra", principal)) == []


async def test_a_failing_store_fails_no_call_and_is_logged(tmp_path: Path, work: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The failure is logged, and the passages are stored once the store works again."""
    store = Broken()
    memory = Memory(tmp_path / "m.db", store=store)
    async with Engine([*workspace_tools(), *memory.tools()], memory=memory) as engine:
        with caplog.at_level(logging.ERROR, "callgate"):
            assert (await make(engine, work, "write_file", path="a.txt", content="zebra")).status == "ok"
            assert await memory.settled()
        assert "the disk is full" in caplog.text
        assert "a.txt" in memory.status().failure
        assert memory.status().marked == 1
        store.broken = False
        assert await memory.settled()
        assert (memory.status().marked, memory.status().pieces) == (0, 1)


async def test_calls_that_could_not_be_stored_are_read_again_later(tmp_path: Path, work: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The results of the calls are still in the journal."""
    store = Broken("call:")
    memory = Memory(tmp_path / "m.db", store=store)
    async with Engine([*workspace_tools(), *memory.tools()], memory=memory) as engine:
        with caplog.at_level(logging.ERROR, "callgate"):
            assert (await make(engine, work, "write_file", path="a.txt", content="zebra")).status == "ok"
            assert await memory.settled()
            assert await found(engine, work, "zebra") == []
        assert "the disk is full" in caplog.text
        assert "the disk is full" in memory.status().failure
        store.broken = False
        assert {one["from"] for one in await found(engine, work, "zebra")} == {"call", "file"}
        assert await memory.settled()
        assert memory.status().failure == ""


async def test_closing_an_engine_waits_for_its_memory_and_closes_it(tmp_path: Path, work: Path) -> None:
    """Calls that ended before the close are remembered, and the file is released."""
    memory = Memory(tmp_path / "m.db", limits=MemoryLimits(close_s=60.0))
    async with Engine(workspace_tools(), memory=memory) as engine:
        for number in range(20):
            await make(engine, work, "write_file", path=f"{number}.txt", content="zebra")
    with pytest.raises(UsageError, match="is closed"):
        memory.search(PassageQuery(text="zebra", principal="ann"))
    with Memory(tmp_path / "m.db") as again:
        assert (again.status().pieces, again.status().calls, again.status().marked) == (20, 20, 0)


async def test_a_file_that_cannot_be_stored_is_given_up_after_the_allowed_attempts(tmp_path: Path, work: Path) -> None:
    """One bad file must not block the others."""
    memory = Memory(tmp_path / "m.db", store=Broken(), limits=MemoryLimits(attempts=2))
    async with Engine(workspace_tools(), memory=memory) as engine:
        await make(engine, work, "write_file", path="a.txt", content="zebra")
        for _ in range(2):
            assert await memory.settled()
        assert memory.status().marked == 0


async def test_a_hanging_store_blocks_neither_a_call_nor_the_close(tmp_path: Path, work: Path) -> None:
    """The engine closes in bounded time, and the memory stores the remaining files when it is next opened."""
    store = Waiting()
    memory = Memory(tmp_path / "m.db", store=store, limits=MemoryLimits(close_s=0.1))
    journal = tmp_path / "j.db"
    async with Engine(workspace_tools(), memory=memory, journal=SqliteJournal(journal)) as engine:
        assert (await make(engine, work, "write_file", path="a.txt", content="zebra")).status == "ok"
        assert store.reached.wait(60)
    again = Memory(tmp_path / "m.db")
    async with Engine([*workspace_tools(), *again.tools()], memory=again, journal=SqliteJournal(journal)) as engine:
        assert await again.settled()
        assert files_of(await found(engine, work, "zebra")) == ["a.txt"]
    store.go.set()


async def test_a_command_that_writes_many_files_is_remembered_up_to_files_per_call(
    tmp_path: Path, work: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The limit applies to a call that does not declare its writes; the log reports that there were more."""
    memory = Memory(tmp_path / "m.db", limits=MemoryLimits(files_per_call=3))
    async with Engine([*command_tools(), *memory.tools()], memory=memory) as engine:
        await make(engine, work, "run_command", command="for i in 1 2 3 4 5; do echo zebra > $i.txt; done")
        assert len(files_of(await found(engine, work, "zebra"))) == 3
    assert "more than 3 files" in caplog.text


async def test_the_oldest_passages_of_a_principal_are_dropped_first(tmp_path: Path, work: Path) -> None:
    """The limit applies to each principal separately."""
    memory = Memory(tmp_path / "m.db", limits=MemoryLimits(pieces=2))
    async with Engine([*workspace_tools(), *memory.tools()], memory=memory) as engine:
        await make(engine, work, "write_file", "bob", path="bobs.txt", content="zebra")
        for number in range(4):
            await make(engine, work, "write_file", path=f"{number}.txt", content="zebra")
            assert await memory.settled()
        assert files_of(await found(engine, work, "zebra")) == ["2.txt", "3.txt"]
        assert files_of(await found(engine, work, "zebra", "bob")) == ["bobs.txt"]


async def test_files_written_by_a_failed_command_are_remembered(tmp_path: Path, work: Path) -> None:
    memory = Memory(tmp_path / "m.db")
    async with Engine([*command_tools(), *memory.tools()], memory=memory) as engine:
        await make(engine, work, "run_command", command="echo zebra > a.txt; exit 3")
        assert files_of(await found(engine, work, "zebra")) == ["a.txt"]
