"""Two engines with one journal: neither returns a cached result that a call of the other one may have changed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import psycopg
import pytest

from callgate import Engine, MemoryJournal, PostgresJournal, Scope, SqliteJournal, Tool, tool
from callgate._clock import SystemClock
from callgate._pipeline import other_engines_writes
from tests.engine_calls import call, said
from tests.waiting import HANGS_S, PATIENCE_S, until

Stored = MemoryJournal | SqliteJournal | PostgresJournal
OURS, THEIRS = Scope(run="ours"), Scope(run="theirs")


class SteppedClock(SystemClock):
    """The system's clock with a wall time that a test moves forward."""

    ahead_ns = 0

    def wall_ns(self) -> int:
        return SystemClock.wall_ns() + self.ahead_ns


class Shelf:
    """A stock on disk that all engines share, and how often it was counted."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.counted = 0
        self.may_end = asyncio.Event()
        self.may_end.set()
        self.counting = asyncio.Event()
        self.may_count = asyncio.Event()
        self.may_count.set()
        file.write_text("3")

    def tools(self) -> list[Tool]:
        @tool(effect="none", cacheable=True, reads="stock:{article}")
        async def stock(article: str) -> str:
            """Count."""
            self.counted += 1
            text = self.file.read_text()
            self.counting.set()
            await self.may_count.wait()
            return text

        @tool
        async def sell(article: str) -> str:
            """Sell one."""
            self.file.write_text(str(int(self.file.read_text()) - 1))
            await self.may_end.wait()
            return "sold"

        @tool(effect="none")
        async def look(article: str) -> str:
            """Look at it."""
            return "there"

        @tool(effect="idempotent", writes="prices:{article}")
        async def price(article: str) -> str:
            """Price it."""
            return "priced"

        return [stock, sell, look, price]


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path / "stock")


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def engines(request: pytest.FixtureRequest, tmp_path: Path, shelf: Shelf) -> AsyncIterator[tuple[Engine, Engine]]:
    """Two engines with the same tools, each with its own opening of one journal."""
    first: Stored
    second: Stored
    if request.param == "memory":
        first = MemoryJournal(shared=True)
        second = MemoryJournal(shared_with=first)
    elif request.param == "sqlite":
        first, second = SqliteJournal(tmp_path / "journal.db"), SqliteJournal(tmp_path / "journal.db")
    else:
        url = request.getfixturevalue("database")
        first, second = PostgresJournal(url), PostgresJournal(url)
    async with Engine(shelf.tools(), journal=first) as one, Engine(shelf.tools(), journal=second) as other:
        yield one, other


async def stock(engine: Engine, scope: Scope = OURS) -> str:
    return (await said(engine, call("stock", article="lamp"), scope)).text


async def test_an_effect_of_another_engine_drops_what_was_cached(engines: tuple[Engine, Engine], shelf: Shelf) -> None:
    ours, theirs = engines
    assert [await stock(ours), await stock(ours)] == ["3", "3"]
    assert shelf.counted == 1
    await said(theirs, call("sell", id="s1", article="lamp"), THEIRS)
    assert [await stock(ours), await stock(ours)] == ["2", "2"]
    assert shelf.counted == 2


async def test_reads_of_another_engine_and_declared_writes_of_our_own_drop_nothing(engines: tuple[Engine, Engine], shelf: Shelf) -> None:
    ours, theirs = engines
    await stock(ours)
    for number in range(3):
        await said(theirs, call("look", id=f"l{number}", article="lamp"), THEIRS)
        await said(ours, call("price", id=f"p{number}", article="lamp"), OURS)
        assert await stock(ours) == "3"
    assert shelf.counted == 1


async def test_nothing_is_cached_while_a_call_of_another_engine_may_write(engines: tuple[Engine, Engine], shelf: Shelf) -> None:
    ours, theirs = engines
    await stock(ours)
    shelf.may_end.clear()
    selling = asyncio.create_task(said(theirs, call("sell", id="s1", article="lamp"), THEIRS))
    await until(lambda: shelf.file.read_text() == "2")
    assert [await stock(ours), await stock(ours)] == ["2", "2"]
    assert shelf.counted == 3
    shelf.may_end.set()
    await selling
    assert [await stock(ours), await stock(ours)] == ["2", "2"]
    assert shelf.counted == 4


async def test_a_read_during_a_write_of_another_engine_is_not_cached(engines: tuple[Engine, Engine], shelf: Shelf) -> None:
    """It began before the write and ended after it."""
    ours, theirs = engines
    shelf.may_count.clear()
    early = asyncio.create_task(stock(ours))
    await shelf.counting.wait()
    await said(theirs, call("sell", id="s1", article="lamp"), THEIRS)
    shelf.may_count.set()
    assert await early == "3"
    assert await stock(ours) == "2"


async def test_more_events_than_are_read_at_once_count_as_written(
    engines: tuple[Engine, Engine], shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(other_engines_writes, "_MOST_EVENTS", 4)
    ours, theirs = engines
    await stock(ours)
    await said(theirs, call("sell", id="s1", article="lamp"), THEIRS)
    for number in range(4):
        await said(theirs, call("look", id=f"l{number}", article="lamp"), THEIRS)
    assert await stock(ours) == "2"


async def test_a_call_without_an_end_counts_as_writing_until_its_time_is_over(shelf: Shelf) -> None:
    """As one whose process was killed. After its time, results are cached again."""
    clock = SteppedClock()
    first = MemoryJournal(clock, shared=True)
    shelf.may_end.clear()
    async with Engine(shelf.tools(), journal=first, clock=clock) as ours:
        await stock(ours)
        async with Engine(shelf.tools(), journal=MemoryJournal(shared_with=first), timeout_s=HANGS_S) as theirs:
            selling = asyncio.create_task(said(theirs, call("sell", id="s1", article="lamp"), THEIRS))
            await until(lambda: shelf.file.read_text() == "2")
            assert [await stock(ours), await stock(ours)] == ["2", "2"]
            assert shelf.counted == 3
            clock.ahead_ns = int((HANGS_S + 11) * 1e9)
            assert [await stock(ours), await stock(ours)] == ["2", "2"]
            assert shelf.counted == 4
            shelf.may_end.set()
            await selling


async def test_a_persistent_cache_of_a_file_journal_is_kept_by_effects_that_declare_other_writes(tmp_path: Path, shelf: Shelf) -> None:
    path = tmp_path / "journal.db"

    @tool(effect="none", cacheable=True, cache_scope="persistent", reads="stock:{article}")
    async def lasting(article: str) -> str:
        """Count."""
        shelf.counted += 1
        return shelf.file.read_text()

    tools = [*shelf.tools(), lasting]
    for _ in range(2):
        async with Engine(tools, journal=SqliteJournal(path)) as ours, Engine(tools, journal=SqliteJournal(path)) as theirs:
            assert (await said(ours, call("lasting", article="lamp"), OURS)).text == "3"
            await said(theirs, call("price", id="p", article="lamp"), THEIRS)
            assert (await said(ours, call("lasting", article="lamp"), OURS)).text == "3"
    assert shelf.counted == 1


async def test_a_cached_call_ends_in_time_while_the_database_does_not_answer(database: str, shelf: Shelf) -> None:
    async with Engine(shelf.tools(), journal=PostgresJournal(database), timeout_s=1) as engine:
        await stock(engine)
        async with await psycopg.AsyncConnection.connect(database) as connection:
            await connection.execute("LOCK TABLE callgate.events")
            ended = asyncio.ensure_future(said(engine, call("stock", article="lamp"), OURS))
            assert (await asyncio.wait_for(ended, PATIENCE_S)).status == "error"
            await connection.rollback()
        assert await stock(engine) == "3"


async def test_calls_at_once_use_what_is_cached(engines: tuple[Engine, Engine], shelf: Shelf) -> None:
    """Also if one of them reads the record while another one has just done so."""
    ours, _ = engines
    articles = [f"lamp {number}" for number in range(6)]
    for article in articles:
        await said(ours, call("stock", id=article, article=article), OURS)
    for turn in range(5):
        await asyncio.gather(*(said(ours, call("stock", id=f"{article}/{turn}", article=article), OURS) for article in articles))
    assert shelf.counted == len(articles)
