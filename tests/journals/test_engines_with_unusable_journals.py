"""A journal that cannot be written is refused when it or its engine is opened, never by a result that a model reads."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from callgate import DirectoryBlobs, Engine, MemoryJournal, SqliteCache, SqliteJournal, UsageError
from tests.engine_calls import call, said


@pytest.mark.parametrize(
    ("journal", "words"),
    [
        ("x.db", r"Engine\(journal='x\.db'\) was given a path\. Write journal=SqliteJournal\('x\.db'\)"),
        (Path("runs/x.db"), r"Write journal=SqliteJournal\('runs/x\.db'\)"),
        ("postgresql://me:secret@host/db", r"address of a server\. Write journal=PostgresJournal\(\.\.\.\)"),
    ],
    ids=str,
)
def test_a_path_instead_of_a_journal_names_the_journal_to_write(journal: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        Engine(journal=journal)
    assert "secret" not in str(caught.value)


async def test_a_closed_journal_is_refused_when_the_next_engine_is_made(tmp_path: Path) -> None:
    journal = SqliteJournal(tmp_path / "j.db")
    async with Engine(journal=journal):
        pass
    with pytest.raises(UsageError, match=r"cannot be written: The journal .*j\.db is closed\. Open it again"):
        Engine(journal=journal)


async def test_a_closed_journal_in_memory_can_be_used_again() -> None:
    journal = MemoryJournal()
    async with Engine(journal=journal):
        pass
    async with Engine(journal=journal):
        pass


def test_a_journal_that_lacks_a_part_of_the_protocol_is_refused_by_what_it_lacks() -> None:
    class Half:
        def append(self) -> None: ...
        def durable(self) -> None: ...
        def read(self) -> None: ...
        def close(self) -> None: ...

    with pytest.raises(
        UsageError, match="was given a Half, which lacks final_position, acquire_lease, release_lease, watch, find, status, "
    ):
        Engine(journal=Half())  # type: ignore[arg-type]


def text_file(path: Path) -> None:
    path.write_text("no journal\n" * 100)


def other_database(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE people (name)")


def folder(path: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize("make", [text_file, other_database, folder])
def test_a_foreign_file_is_refused_when_the_journal_is_opened(tmp_path: Path, make: Callable[[Path], None]) -> None:
    path = tmp_path / "x.db"
    make(path)
    with pytest.raises(UsageError, match=r"x\.db (cannot be used as a journal|is a database, but no journal)"):
        SqliteJournal(path)


WITHOUT_RIGHTS = """
import sys
from callgate import Engine, SqliteJournal, UsageError
try:
    Engine(journal=SqliteJournal(sys.argv[1]))
except UsageError as error:
    print(error)
"""


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_a_journal_that_cannot_be_written_is_refused_when_it_is_opened(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "j.db"
    asyncio.run(SqliteJournal(path).close())
    (path if kind == "file" else tmp_path).chmod(0o444 if kind == "file" else 0o555)
    dropped = ["setpriv", "--bounding-set=-dac_override", "--inh-caps=-dac_override"] if os.geteuid() == 0 else []
    if dropped and shutil.which("setpriv") is None:
        pytest.skip("root may write everywhere")
    command = [*dropped, sys.executable, "-c", WITHOUT_RIGHTS, str(path if kind == "file" else tmp_path / "new.db")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "cannot be used as a journal" in done.stdout
    assert "has no right to it" in done.stdout


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    return tmp_path


async def test_a_path_that_begins_with_a_tilde_is_in_the_home_folder(home: Path) -> None:
    (home / "runs").mkdir()
    async with Engine(journal=SqliteJournal("~/runs/j.db")) as engine:
        assert (await said(engine, call("missing"))).code == "unknown_tool"
    SqliteCache("~/cache.db").close()
    DirectoryBlobs("~/blobs").put(b"x")
    assert (home / "runs" / "j.db").is_file()
    assert (home / "cache.db").is_file()
    assert (home / "blobs").is_dir()
    assert os.listdir(home / "elsewhere") == []


async def test_a_file_whose_name_is_a_tilde_can_still_be_given(home: Path) -> None:
    (home / "elsewhere" / "~").mkdir()
    await SqliteJournal("./~/j.db").close()
    assert (home / "elsewhere" / "~" / "j.db").is_file()


async def test_a_name_that_begins_with_a_tilde_and_is_no_user_is_an_ordinary_name(home: Path) -> None:
    await SqliteJournal("~backup-of-nobody.db").close()
    assert (home / "elsewhere" / "~backup-of-nobody.db").is_file()


UNCONFIGURED = """
from callgate import Engine, RawCall, tool

@tool
def add(a: int = 1) -> int:
    "Add."
    return a

engine = Engine([add], repair=True)
assert engine.call_sync(RawCall(name="add")).result.metadata.notes
assert engine.call_sync(RawCall(name="add", arguments="{'a': 2}")).result.metadata.notes
assert engine.call_sync(RawCall.from_dict({"tool": "add", "a": 3})).result.metadata.notes
engine.close_sync()
"""


@pytest.mark.parametrize(("set_up", "printed"), [("", 0), ("import logging; logging.basicConfig()", 3)], ids=["unconfigured", "configured"])
def test_notes_on_arguments_are_printed_only_where_logging_is_set_up(set_up: str, printed: int) -> None:
    done = subprocess.run([sys.executable, "-c", set_up + UNCONFIGURED], capture_output=True, text=True, check=True)
    assert len(done.stderr.splitlines()) == printed, done.stderr
