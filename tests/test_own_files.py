"""callgate's own files in a workspace: file tools cannot reach them, version control ignores them, and only their owner may read them."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest

from callgate import Engine, RawCall, Rules, Scope, SqliteCache, SqliteJournal, tool
from callgate.builtins import command_tools, symbol_tools, workspace_tools
from callgate.memory import Memory
from callgate.undo import UndoStore
from tests.cli.shell import shell
from tests.engine_calls import call, said

SECRET = "what-only-the-record-has"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A workspace that contains a journal, and links that lead to it."""
    root = tmp_path / "root"
    for folder in ("sub/.callgate", ".callgate/blobs"):
        (root / folder).mkdir(parents=True)
    for name in (".callgate/journal.db", ".callgate/blobs/ab", "sub/.callgate/journal.db", ".callgate/notes.py"):
        (root / name).write_text(f"found = '{SECRET}'\n", encoding="utf-8")
    (root / "plain.txt").write_text("plain\n", encoding="utf-8")
    (root / "link").symlink_to(".callgate")
    (root / "to_journal").symlink_to(".callgate/journal.db")
    (root / "far").symlink_to("sub/../link/blobs/ab")
    (root / "new").symlink_to(".callgate/new.txt")
    return root


def contents(root: Path) -> dict[Path, bytes]:
    return {file: file.read_bytes() for file in root.rglob("*") if file.is_file()}


WAYS = [
    *(".callgate/journal.db", "./.callgate/journal.db", "sub/../.callgate/journal.db", ".callgate//journal.db", ".callgate/./journal.db"),
    *(".CALLGATE/journal.db", ".Callgate/journal.db", ".callgate/blobs/ab", "sub/.callgate/journal.db", "link/journal.db", "to_journal"),
    *(
        "far",
        "link/blobs/../journal.db",
        ".callgate ",
        ".callgate.",
        ".call\u200bgate/journal.db",
        ".callgate::$DATA",
        "new",
        "link/new.txt",
    ),
    *(".callgate", "link", ".callgate/", ".callgate/../plain.txt"),
]


@pytest.mark.parametrize("absolute", [False, True])
async def test_no_path_gives_a_file_tool_access_to_the_callgate_folder(absolute: bool, root: Path) -> None:
    before = contents(root)
    async with Engine([*workspace_tools(), *symbol_tools(), *command_tools()]) as engine:  # its process starts once for all paths
        for way in WAYS:
            path = f"{root}/{way}" if absolute else way
            given = [await said(engine, raw, Scope(workspace=str(root))) for raw in uses_of(path)]
            assert SECRET not in "".join(str((result.structured, result.text)).replace(repr(path), "") for result in given), way
            listed = [one for one in given if one.success and "journal.db" in str(one.structured).replace(repr(path)[1:-1], "")]
            assert [one.name for one in listed] == [], way
            assert contents(root) == before, way


def uses_of(path: str) -> list[RawCall]:
    return [
        call("read_file", path=path),
        call("write_file", path=path, content="x"),
        call("edit_file", path=path, old="found", new="x"),
        call("list_files", path=path, depth=3),
        call("glob_files", pattern="**", path=path),
        call("glob_files", pattern=f"{path}/*"),
        call("grep_files", pattern=SECRET, path=path),
        call("find_symbol", name="found", path=path),
        call("run_command", command=["cat", "journal.db"], cwd=path),
    ]


async def test_searches_and_listings_leave_out_the_callgate_folder(root: Path) -> None:
    async with Engine([*workspace_tools(), *symbol_tools()]) as engine:
        scope = Scope(workspace=str(root))
        listed: Any = (await said(engine, call("list_files", depth=9), scope)).structured
        globbed: Any = (await said(engine, call("glob_files", pattern="**"), scope)).structured
        found: Any = (await said(engine, call("grep_files", pattern=SECRET), scope)).structured
        symbols: Any = (await said(engine, call("find_symbol", name="found"), scope)).structured
    assert [entry["path"] for entry in listed["entries"]] == ["far", "link", "new", "plain.txt", "sub", "to_journal"]
    assert [path for path in globbed["paths"] if ".callgate" in path] == []
    assert (found["matches"], symbols["symbols"]) == ([], [])


def raws(path: str) -> list[RawCall]:
    return [
        call("read_file", path=path),
        call("write_file", path=path, content="x"),
        call("edit_file", path=path, old="S", new="x"),
    ]


@pytest.mark.parametrize("name", ["record.db", "kept/record.db"])
async def test_journal_cache_and_memory_files_elsewhere_in_the_workspace_are_unreachable(name: str, tmp_path: Path) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    journal = SqliteJournal(tmp_path / name)
    cache, memory = SqliteCache(tmp_path / "cache.db"), Memory(tmp_path / "memory.db")
    (tmp_path / "mine.txt").write_text("mine", encoding="utf-8")
    async with Engine(workspace_tools(), journal=journal, persistent_cache=cache, memory=memory) as engine:
        scope = Scope(workspace=str(tmp_path))
        await said(engine, call("read_file", path="mine.txt"), scope)
        os.link(tmp_path / name, tmp_path / "second")
        (tmp_path / "linked").symlink_to(name)
        ends = ("", "-wal", "-shm", "-journal", ".lock", ".blobs/x", ".cache")
        for way in (*(f"{name}{end}" for end in ends), "cache.db", "memory.db", "memory.db-journal", "second", "linked"):
            for raw in raws(way):
                result = await said(engine, raw, scope)
                assert not result.success, way
                assert "path_refused" in result.text or "path_not_found" in result.text, (way, result.text)
        listed: Any = (await said(engine, call("list_files", depth=9), scope)).structured
        assert {entry["path"] for entry in listed["entries"]} <= {"kept", "linked", "mine.txt", "second"}
        assert (await said(engine, call("read_file", path="mine.txt"), scope)).success


async def test_the_undo_store_in_a_workspace_is_unreachable_and_around_it_an_ordinary_folder(tmp_path: Path) -> None:
    """A model cannot damage what its changes are undone from."""
    shop = tmp_path / "shop"
    (shop / "kept").mkdir(parents=True)
    async with Engine(workspace_tools(), undo=UndoStore(shop / "kept/undo")) as engine:
        scope = Scope(workspace=str(shop))
        assert (await said(engine, call("write_file", path="kept/mine.txt", content="mine"), scope)).success
        (repository,) = (path.relative_to(shop) for path in (shop / "kept/undo").iterdir())
        for raw in (
            *raws(f"{repository}/HEAD"),
            *raws(f"{repository}/refs/heads/main"),
            call("write_file", path="kept/undo/x", content="x"),
        ):
            assert "path_refused" in (await said(engine, raw, scope)).text
        listed: Any = (await said(engine, call("list_files", depth=9), scope)).structured
        assert [entry["path"] for entry in listed["entries"]] == ["kept", "kept/mine.txt"]
    async with Engine(workspace_tools(), undo=UndoStore(tmp_path)) as engine:
        assert (await said(engine, call("read_file", path="kept/mine.txt"), Scope(workspace=str(shop)))).success


async def test_a_workspace_inside_a_callgate_folder_works_normally(tmp_path: Path) -> None:
    root = tmp_path / ".callgate" / "work"
    root.mkdir(parents=True)
    async with Engine(workspace_tools()) as engine:
        scope = Scope(workspace=str(root))
        assert (await said(engine, call("write_file", path="a/b.txt", content="x"), scope)).success
        assert (await said(engine, call("read_file", path="a/b.txt"), scope)).success


def test_files_of_the_command_line_are_private_and_ignored_by_git(tmp_path: Path) -> None:
    os.umask(os.umask(0o022))
    (tmp_path / "a.txt").write_text("a", encoding="utf-8")
    assert shell(tmp_path, "call", "read_file", "path=a.txt").code == 0
    assert shell(tmp_path, "call", "remember", "text=tea", "--memory", ".callgate/memory.db").code == 0
    own = tmp_path / ".callgate"
    assert stat.S_IMODE(own.stat().st_mode) == 0o700
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in own.rglob("*") if file.is_file()}
    assert "journal.db" in modes
    assert {name: mode for name, mode in modes.items() if mode & 0o077} == {}
    git = ["git", "-C", str(tmp_path), "-c", "user.name=x", "-c", "user.email=x@example.com"]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "add", "-A"], check=True)
    tracked = subprocess.run([*git, "ls-files"], check=True, capture_output=True, text=True).stdout
    assert tracked == "a.txt\n"


def test_journal_files_are_accessible_to_their_owner_only(tmp_path: Path) -> None:
    journal = SqliteJournal(tmp_path / "j.db")
    try:
        assert {file.name: oct(stat.S_IMODE(file.stat().st_mode)) for file in tmp_path.iterdir() if file.is_file()} == {
            name: "0o600" for name in ("j.db", "j.db-wal", "j.db-shm", "j.db.lock") if (tmp_path / name).exists()
        }
        assert not (tmp_path / ".gitignore").exists()
    finally:
        Engine(journal=journal).close_sync()


@tool
async def run(command: str | list[str], cwd: str = ".") -> str:
    """Run."""
    return "ran"


@pytest.mark.parametrize(
    ("arguments", "denied"),
    [
        ('{"command": "cat .callgate/journal.db"}', True),
        ('{"command": ["cat", ".callgate/journal.db"]}', True),
        ('{"command": "rm -rf ./.CALLGATE; ls"}', True),
        ('{"command": "ls", "cwd": "link"}', True),
        ('{"command": "ls", "cwd": "sub"}', False),
        ('{"command": ["git", "status"]}', False),
    ],
)
async def test_the_own_files_fact_matches_commands_that_name_the_callgate_folder(arguments: str, denied: bool, root: Path) -> None:
    """The fact matches paths that a command names. Only a sandbox keeps a command from the other files that its process may use."""
    rules = Rules.parse('[[rule]]\nid = "record"\nverdict = "deny"\nwhen = { own_files = true }\n')
    async with Engine([run], policies=[rules]) as engine:
        result = await said(engine, RawCall(name="run", arguments=arguments), Scope(workspace=str(root)))
    assert (result.failure_class == "denied") is denied
