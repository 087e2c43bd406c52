"""Tests of the contract of passage stores, run against every store."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from callgate.errors import UsageError
from callgate.memory import MemoryPassages, Passage, PassageQuery, PassageStore, TablePassages
from tests.waiting import COMMAND_S

MAKERS: dict[str, Callable[[Path], PassageStore]] = {
    "memory": lambda folder: MemoryPassages(),
    "table": lambda folder: TablePassages(str(folder / "memory.db")),
}


@pytest.fixture(params=MAKERS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[PassageStore]:
    made = MAKERS[request.param](tmp_path)
    yield made
    made.close()


def passage(text: str, origin: str = "", **given: Any) -> Passage:
    """Return a note of ann's, with the given fields replaced."""
    usual = {"origin": origin or f"note:{text}", "kind": "note", "principal": "ann", "at_ns": 1, "workspace": "/w"}
    return Passage(text=text, **{**usual, **given})


def texts(store: PassageStore, text: str, *, principal: str = "ann", limit: int = 10) -> list[str]:
    return [found.passage.text for found in store.search(PassageQuery(text=text, principal=principal, limit=limit))]


def keep(store: PassageStore, *passages: Passage) -> None:
    store.keep({one.origin: [one] for one in passages})


def test_any_word_matches_and_passages_with_more_words_come_first(store: PassageStore) -> None:
    keep(store, passage("the desk opens at nine"), passage("the refund desk closes at five"), passage("nothing of the kind"))
    assert texts(store, "refund desk") == ["the refund desk closes at five", "the desk opens at nine"]


def test_a_found_passage_has_all_its_stored_fields(store: PassageStore) -> None:
    """A recalled passage needs the fields that name its origin."""
    one = passage(
        "zebra\n",
        "file:/w\na.py",
        kind="file",
        at_ns=7,
        actor="bot",
        conversation="c",
        run="r",
        call="r/0/1",
        tool="write_file",
        path="a.py",
        line=3,
        stamp="1:2:3:4",
        tags=("x y", "z"),
    )
    store.keep({one.origin: [one]})
    (found,) = store.search(PassageQuery(text="zebra", principal="ann"))
    assert found.passage == one
    assert "zebra" in found.snippet
    assert store.of(one.origin) == [one]
    assert store.files("/w") == {"a.py": "1:2:3:4"}


def test_a_principal_finds_only_its_own_passages(store: PassageStore) -> None:
    """One principal must never recall another's memory. The empty principal is a principal of its own."""
    keep(store, passage("ann's zebra", principal="ann"), passage("bob's zebra", principal="bob"), passage("zebra of nobody", principal=""))
    assert texts(store, "zebra", principal="ann") == ["ann's zebra"]
    assert texts(store, "zebra", principal="bob") == ["bob's zebra"]
    assert texts(store, "zebra", principal="") == ["zebra of nobody"]
    assert texts(store, "zebra", principal="%") == []


ODD = [
    *('"', "'", "(", "\ud800", "🙃", "OR", "NOT"),
    *("refund OR", "NOT refund", "refund NEAR(desk)", "refund*", "^refund", "words:refund", "-refund", "refund\0desk", "refund 🙂"),
    *("{refund desk}: x", "+ refund", 'AND refund "', "\ue000refund"),
]


@pytest.mark.parametrize("asked", ODD)
def test_query_operators_have_no_meaning_in_a_search(store: PassageStore, asked: str) -> None:
    """A model writes queries as plain words."""
    keep(store, passage("the refund desk"))
    assert texts(store, asked) == (["the refund desk"] if "refund" in asked else [])


@given(asked=st.text(max_size=60), text=st.text(max_size=60))
def test_any_text_can_be_stored_and_searched(asked: str, text: str) -> None:
    for store in (MemoryPassages(), TablePassages(":memory:")):
        keep(store, passage(f"zebra {text}", "note:1"), passage("other", "note:2"))
        texts(store, asked)
        assert len(texts(store, f"zebra {asked}")) >= 1
        store.close()


@pytest.mark.parametrize("word", ["本語", "テスト", "🙂", "café", "cafe", "CAFÉ", "ประเทศ", "read_file", "refund", "refu"])
def test_words_in_any_script_and_symbols_are_found(store: PassageStore, word: str) -> None:
    """Scripts without spaces match by any substring, case and accents are ignored, and a prefix of a word is enough."""
    keep(store, passage("日本語のテスト 🙂 in the Café, ประเทศไทย, calls read_file and refunded"), passage("something else"))
    assert len(texts(store, word)) == 1


def test_storing_an_origin_again_replaces_all_its_passages(store: PassageStore) -> None:
    """Outdated passages must not stay."""
    store.keep({"file:a": [passage("old zebra", "file:a"), passage("old okapi", "file:a")]})
    store.keep({"file:a": [passage("new zebra", "file:a")]})
    assert texts(store, "zebra okapi") == ["new zebra"]
    store.keep({"file:a": []})
    assert texts(store, "zebra okapi") == []


def test_each_filter_narrows_a_search(store: PassageStore) -> None:
    """The filters are kind, actor, conversation, run, tool, time and the workspace of a file."""
    one = passage("zebra", "call:1", kind="call", at_ns=10, actor="bot", conversation="c1", run="r1", tool="t1")
    file = replace(one, origin="file:1", kind="file", at_ns=20, actor="b", conversation="c2", run="r2", tool="t2", workspace="/v", path="p")
    store.keep({"call:1": [one], "file:1": [file]})
    everything = PassageQuery(text="zebra", principal="ann")
    assert len(store.search(everything)) == 2
    for query, expected in [
        (PassageQuery(text="zebra", principal="ann", kinds=("call",)), one),
        (PassageQuery(text="zebra", principal="ann", actor="bot"), one),
        (PassageQuery(text="zebra", principal="ann", conversation="c2"), file),
        (PassageQuery(text="zebra", principal="ann", run="r1"), one),
        (PassageQuery(text="zebra", principal="ann", tool="t2"), file),
        (PassageQuery(text="zebra", principal="ann", since_ns=20), file),
        (PassageQuery(text="zebra", principal="ann", until_ns=20), one),
        (PassageQuery(text="zebra", principal="ann", workspace="/w"), one),
    ]:
        assert [found.passage for found in store.search(query)] == [expected]
        assert [one for one in (one, file) if query.admits(one)] == [expected]


def test_a_search_returns_the_newest_of_equal_matches_first_up_to_the_limit(store: PassageStore) -> None:
    keep(store, *(passage("same words", f"note:{number}", at_ns=number) for number in range(5)))
    found = store.search(PassageQuery(text="words", principal="ann", limit=2))
    assert [one.passage.at_ns for one in found] == [4, 3]
    assert store.search(PassageQuery(text="words", principal="ann", limit=0)) == []


def test_trim_removes_the_oldest_passages_of_a_principal(store: PassageStore) -> None:
    keep(store, *(passage(f"call {number}", f"call:{number}", kind="call", at_ns=number) for number in range(5)))
    keep(store, passage("call of bob", "call:b", kind="call", principal="bob"))
    assert store.trim("call", "ann", 2) == 3
    assert sorted(texts(store, "call")) == ["call 3", "call 4"]
    assert (store.count("call"), store.count("call", "ann"), store.count("note")) == (3, 2, 0)


def test_a_note_is_found_by_its_tag(store: PassageStore) -> None:
    store.keep({"note:1": [passage("five o'clock", "note:1", tags=("opening hours",))]})
    assert texts(store, "hours") == ["five o'clock"]


def test_a_table_is_persistent_and_readable_only_by_its_owner(tmp_path: Path) -> None:
    """It contains text of files and calls, which may be private."""
    path = tmp_path / "deep" / "memory.db"
    store = TablePassages(str(path))
    keep(store, passage("zebra"))
    assert path.stat().st_mode & 0o077 == 0
    store.close()
    again = TablePassages(str(path))
    assert texts(again, "zebra") == ["zebra"]
    again.close()
    with pytest.raises(UsageError, match="is closed"):
        texts(again, "zebra")


@pytest.mark.parametrize("what", ["text", "byte", "other database", "newer", "folder"])
def test_a_file_that_is_not_a_memory_is_refused_and_left_unchanged(tmp_path: Path, what: str) -> None:
    """A wrong path must not damage a user's file."""
    path = tmp_path / "given"
    if what == "folder":
        path.mkdir()
    elif what in ("text", "byte"):
        path.write_text("my notes, not a database " * 100 if what == "text" else "1")
    else:
        with sqlite3.connect(path) as connection:
            connection.execute("CREATE TABLE mine (x)")
            if what == "newer":
                connection.execute(f"PRAGMA application_id = {0x63676D31}")
                connection.execute("PRAGMA user_version = 999")
        connection.close()
    before = path.read_bytes() if path.is_file() else b""
    with pytest.raises(UsageError, match="memory"):
        TablePassages(str(path))
    assert (path.read_bytes() if path.is_file() else b"") == before


@pytest.mark.process
def test_an_open_memory_holds_a_lock_that_other_processes_see(tmp_path: Path) -> None:
    """The lock is SQLite's own: a process that could take it would assume that it is alone and delete the log."""
    path = tmp_path / "m.db"
    TablePassages(str(path)).close()
    memory = TablePassages(str(path))
    ask = "import fcntl, sys; fcntl.lockf(open(sys.argv[1], 'r+b'), fcntl.LOCK_EX | fcntl.LOCK_NB, 510, 0x40000002)"
    asked = subprocess.run([sys.executable, "-c", ask, str(path)], capture_output=True, text=True, timeout=COMMAND_S, check=False)
    memory.close()
    assert "BlockingIOError" in asked.stderr
