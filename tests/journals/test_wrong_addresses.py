"""What is not a path or address of a journal is refused with the right one to take, when the journal is made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from callgate import DirectoryBlobs, Engine, SqliteCache, SqliteJournal, UsageError
from tests.cli.shell import shell

PASSWORD = "hunter2"
NO_PATHS: dict[str, tuple[object, str]] = {
    "in memory": (":memory:", "names no file: it would be lost with the process."),
    "a URI in memory": ("file:x?mode=memory", "names no file: it would be lost with the process."),
    "a server": (f"postgresql://ann:{PASSWORD}@host/base", "was given the address of a PostgreSQL server. "),
    "an address": (f"sqlite://ann:{PASSWORD}@x.db", "an address that begins with 'sqlite:'. Give the path of the file alone."),
    "a URI": ("file:x.db", "an address that begins with 'file:'. Give the path of the file alone."),
    "a number": (3, "was given 3, which is not a path. Give the path of a file as text, such as 'calls.db'."),
    "None": (None, "was given None, which is not a path."),
    "bytes": (b"x.db", "was given b'x.db', which is not a path."),
    "nothing": ("", "was given an empty path. Give the path of a file"),
}


@pytest.mark.parametrize(("path", "said"), NO_PATHS.values(), ids=NO_PATHS)
@pytest.mark.parametrize("kind", [SqliteJournal, SqliteCache, DirectoryBlobs])
def test_what_is_no_path_is_refused_and_no_file_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Any, path: object, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError) as caught:
        kind(path)
    assert str(caught.value).startswith(f"{kind.__name__} was given ")
    assert said in str(caught.value)
    assert PASSWORD not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_journal_of_another_kind_is_named() -> None:
    with pytest.raises(UsageError, match=r"Take MemoryJournal\(\)\."):
        SqliteJournal(":memory:")
    with pytest.raises(UsageError, match="Take PostgresJournal with that address"):
        SqliteJournal("postgres://host/base")
    with pytest.raises(UsageError, match=r"Write journal=MemoryJournal\(\)"):
        Engine(journal=":memory:")  # type: ignore[arg-type]


@pytest.mark.parametrize("url", [3, None, "calls.db", ":memory:"])
def test_what_is_no_address_of_a_server_is_refused_with_one(url: Any) -> None:
    pytest.importorskip("psycopg")
    from callgate import PostgresJournal

    with pytest.raises(UsageError, match=r"Give one like postgresql://user@host/database; for a file, take SqliteJournal\."):
        PostgresJournal(url)


@pytest.mark.parametrize("address", [f"postgresql://ann:a@{PASSWORD}@host/base", f"postgres://ann:a/{PASSWORD}@host:1/base?schema=x"])
def test_a_password_with_an_unescaped_character_is_not_shown_and_the_error_says_how_to_write_it(address: str, tmp_path: Path) -> None:
    pytest.importorskip("psycopg")
    from callgate import PostgresJournal

    with pytest.raises(UsageError, match=r"has an @ or a / in its password .* Write %40 for @ and %2F for /") as caught:
        PostgresJournal(address)
    listed = shell(tmp_path, "log", "list", "--journal", address)
    (tmp_path / "gate.toml").write_text(f'journal = "{address}"\ntools = ["builtin"]\n', encoding="utf-8")
    served = shell(tmp_path, "serve")
    assert (listed.code, served.code) == (2, 2)
    assert "Write %40 for @" in listed.err
    assert PASSWORD not in f"{caught.value} {listed.out} {listed.err} {served.out} {served.err}"
