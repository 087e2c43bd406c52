"""Cache stores: their contract, their size limit, and the effect of a broken store."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from callgate import Engine, SqliteCache, UsageError, tool
from callgate._cache import MemoryCache
from callgate.protocols import CacheStore
from tests.cacheable_tool import Count
from tests.engine_calls import call, said

stores: list[Callable[[Path], CacheStore]] = [lambda path: MemoryCache(), lambda path: SqliteCache(path / "cache.db")]


@pytest.mark.parametrize("make", stores, ids=["memory", "table"])
def test_every_cache_store_stores_expires_and_invalidates_entries(make: Callable[[Path], CacheStore], tmp_path: Path) -> None:
    """The contract of `CacheStore`."""
    store = make(tmp_path)
    store.put("k", b"v", expires_ns=100, reads=frozenset({"file:a/b"}))
    assert store.get("k", 99) == b"v"
    assert store.get("k", 100) is None
    assert store.get("absent", 0) is None
    store.put("k", b"1", expires_ns=None, reads=frozenset({"file:a/b"}))
    store.put("k", b"2", expires_ns=None, reads=frozenset({"file:a/b"}))
    assert store.get("k", 0) == b"2"
    assert store.drop_written(frozenset({"file:c"})) == 0
    assert store.drop_written(frozenset({"file:a"})) == 1
    assert store.get("k", 0) is None
    store.put("k", b"3", expires_ns=None, reads=frozenset())
    assert store.drop_written(frozenset({""})) == 0
    assert store.get("k", 0) == b"3"
    store.close()


def test_the_memory_cache_is_bounded_and_evicts_the_least_recently_used_entry() -> None:
    store = MemoryCache(most_bytes=10)
    for key in "abc":
        store.put(key, b"xxxx", expires_ns=None, reads=frozenset())
    assert [store.get(key, 0) is not None for key in "abc"] == [False, True, True]
    store.put("large", b"x" * 11, expires_ns=None, reads=frozenset())
    assert store.get("large", 0) is None


def test_a_path_that_is_no_cache_database_is_refused_and_left_unchanged(tmp_path: Path) -> None:
    """A database of another program (even with a table of the same name), a text, a single byte and a folder are refused. An empty file is
    accepted.
    """
    for name, schema in (("other.db", "CREATE TABLE mine (x)"), ("results.db", "CREATE TABLE results (race TEXT, time REAL)")):
        with closing(sqlite3.connect(tmp_path / name)) as other:
            other.execute(schema)
            other.commit()
    (tmp_path / "text").write_text("my notes " * 100)
    (tmp_path / "byte").write_text("1")
    (tmp_path / "folder").mkdir()
    (tmp_path / "empty").touch()
    before = {one.name: one.read_bytes() for one in tmp_path.iterdir() if one.is_file()}
    for name in ("other.db", "results.db", "text", "byte", "folder"):
        with pytest.raises(UsageError, match="Give another file"):
            SqliteCache(tmp_path / name)
    assert {one.name: one.read_bytes() for one in tmp_path.iterdir() if one.is_file()} == before
    for _ in range(2):
        SqliteCache(tmp_path / "empty").close()


@pytest.mark.parametrize("broken", ["get", "put", "drop_written", "garbage"])
async def test_a_failing_cache_store_causes_another_run_but_no_stale_result(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Entries that the store failed to drop are not read again."""

    def fails(*_: object, **__: object) -> Any:
        if broken == "garbage":
            return b"{"
        raise OSError("the disk is gone")

    store, count, world = MemoryCache(), Count(), ["old"]
    monkeypatch.setattr(store, "get" if broken == "garbage" else broken, fails)

    @tool(name="look", effect="none", cacheable=True, cache_scope="persistent", reads="world:")
    async def look() -> str:
        """Look."""
        count.runs += 1
        return world[0]

    @tool(effect="idempotent", writes="world:")
    async def change() -> str:
        """Change the world."""
        world[0] = "new"
        return "changed"

    async with Engine([look, change], persistent_cache=store) as engine:
        assert [(await said(engine, call(name))).text for name in ("look", "look", "change", "look")] == ["old", "old", "changed", "new"]
