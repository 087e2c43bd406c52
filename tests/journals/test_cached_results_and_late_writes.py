"""Cached results of one engine, and what is written while no call of another one runs, or between two steps of the cache."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from callgate import Engine, Scope, SqliteCache, SqliteJournal, Tool, tool
from callgate.tools.tool_declaration import CacheScope
from tests.cli.shell import shell
from tests.engine_calls import call, result_of, said
from tests.waiting import PATIENCE_S, until

READS, WRITES = Scope(run="reads"), Scope(run="writes")
COUNTED = "lamps in stock: "
SHOP = '''
from pathlib import Path
from callgate import tool

FILE = Path(__file__).with_name("stock.txt")

@tool(effect="none", cacheable=True, cache_scope="persistent", reads="stock")
def count() -> str:
    """Count."""
    return FILE.read_text()

@tool(writes="stock")
def sell(left: str) -> str:
    """Sell."""
    FILE.write_text(left)
    return "sold"
'''


class Stock:
    """A number of lamps on disk that all engines share, and a journal beside it."""

    def __init__(self, folder: Path) -> None:
        self.file, self.journal = folder / "stock.txt", folder / "journal.db"
        self.file.write_text("3")
        self.may_sell = threading.Event()

    def counting(self, cache_scope: CacheScope) -> Tool:
        @tool(effect="none", cacheable=True, cache_scope=cache_scope, reads="stock")
        async def count() -> str:
            """Count."""
            return COUNTED + self.file.read_text()

        return count

    def selling(self) -> Tool:
        @tool(writes="stock")
        def sell(left: str) -> str:
            """Sell."""
            self.may_sell.wait(PATIENCE_S)
            self.file.write_text(left)
            return "sold"

        return sell

    def opened(self) -> SqliteJournal:
        return SqliteJournal(self.journal)


@pytest.fixture
def stock(tmp_path: Path) -> Stock:
    return Stock(tmp_path)


async def counted(engine: Engine) -> str:
    return (await said(engine, call("count"), READS)).text.removeprefix(COUNTED)


@pytest.mark.parametrize("cache_scope", ["session", "persistent"])
async def test_an_undo_at_the_terminal_drops_what_was_cached(tmp_path: Path, stock: Stock, cache_scope: CacheScope) -> None:
    sold = shell(tmp_path, "call", "write_file", "path=stock.txt", "content=2", "--run", "sale", "--journal", str(stock.journal))
    assert sold.code == 0
    async with Engine([stock.counting(cache_scope)], journal=stock.opened()) as engine:
        assert [await counted(engine), await counted(engine)] == ["2", "2"]
        for words, left in (("undo", "3"), ("redo", "2")):
            assert shell(tmp_path, words, "last", "--journal", str(stock.journal)).code == 0
            assert (await counted(engine), stock.file.read_text()) == (left, left)
    async with Engine([stock.counting(cache_scope)], journal=stock.opened()) as engine:
        assert await counted(engine) == "2"


@pytest.mark.parametrize("cache_scope", ["session", "persistent"])
async def test_a_write_that_came_after_its_engine_had_closed_counts_when_it_is_settled(stock: Stock, cache_scope: CacheScope) -> None:
    async with Engine([stock.counting(cache_scope)], journal=stock.opened()) as engine:
        async with Engine([stock.selling()], journal=stock.opened(), timeout_s=0.1) as seller:
            sale = await said(seller, call("sell", left="2"), WRITES)
        assert (sale.status, sale.code) == ("unknown", "timeout")
        assert [await counted(engine), await counted(engine)] == ["3", "3"]
        stock.may_sell.set()
        await until(lambda: stock.file.read_text() == "2")
        async with Engine([stock.selling()], journal=stock.opened()) as another:
            await another.settle(sale.uid, happened=True)
        assert await counted(engine) == "2"


async def test_a_cache_of_its_own_drops_what_was_written_before_the_first_cached_call(tmp_path: Path, stock: Stock) -> None:
    """The writes of the other engine count from the moment at which this one has its cache, not only from its first look at the journal."""
    stock.may_sell.set()

    def counter() -> Engine:
        return Engine([stock.counting("persistent")], journal=stock.opened(), persistent_cache=SqliteCache(tmp_path / "own.db"))

    async with Engine([stock.selling()], journal=stock.opened()) as seller:
        async with counter() as engine:
            assert await counted(engine) == "3"
        async with counter() as engine:
            assert (await said(engine, call("count"), READS)).metadata.cached == "persistent"
        async with counter() as engine:
            await said(seller, call("sell", left="2"), WRITES)
            assert await counted(engine) == "2"


class SellsWhileStoring:
    """A redactor that makes a call of another engine while a result is on its way into the cache, as if this process stood still."""

    def __init__(self, seller: Engine) -> None:
        self._seller = seller
        self._sold = False

    def redact(self, text: bytes) -> bytes:
        if COUNTED.encode() in text and not self._sold:
            self._sold = True
            selling = threading.Thread(target=self._seller.call_sync, args=(call("sell", left="2"), WRITES))
            selling.start()
            selling.join(PATIENCE_S)
        return text


@pytest.mark.parametrize("own_file", [False, True], ids=["beside the journal", "of its own"])
async def test_a_result_is_not_stored_if_another_engine_has_written_before_it_is(tmp_path: Path, stock: Stock, own_file: bool) -> None:
    """Also not for the engine that wrote, nor for a later one."""
    stock.may_sell.set()
    caches = [SqliteCache(tmp_path / "own.db") if own_file else None for _ in range(3)]
    tools = [stock.counting("persistent"), stock.selling()]
    seller = Engine(tools, journal=stock.opened(), persistent_cache=caches[0])
    await asyncio.to_thread(seller.call_sync, call("sell", left="3"), WRITES)
    async with Engine(tools, journal=stock.opened(), persistent_cache=caches[1], redactor=SellsWhileStoring(seller)) as engine:
        assert (await counted(engine), stock.file.read_text()) == ("3", "2")
        seen = await asyncio.to_thread(seller.call_sync, call("count"), WRITES)
        assert result_of(seen).text == f"{COUNTED}2"
        assert await counted(engine) == "2"
    await asyncio.to_thread(seller.close_sync)
    async with Engine(tools, journal=stock.opened(), persistent_cache=caches[2]) as engine:
        assert await counted(engine) == "2"


async def test_a_write_of_an_engine_with_another_cache_drops_what_is_in_the_file_beside_the_journal(tmp_path: Path, stock: Stock) -> None:
    stock.may_sell.set()
    async with (
        Engine([stock.counting("persistent")], journal=stock.opened()) as engine,
        Engine([stock.selling()], journal=stock.opened(), persistent_cache=SqliteCache(tmp_path / "own.db")) as seller,
    ):
        assert [await counted(engine), await counted(engine)] == ["3", "3"]
        await said(seller, call("sell", left="2"), WRITES)
        assert await counted(engine) == "2"


async def test_calls_at_the_terminal_share_the_cache_beside_the_journal(tmp_path: Path, stock: Stock) -> None:
    """What a program has written is not answered from an older call at the terminal, and the other way round."""
    (tmp_path / "shop.py").write_text(SHOP, encoding="utf-8")
    stock.may_sell.set()

    def at_terminal(*words: str) -> str:
        done = shell(tmp_path, "call", *words, "--tools", "shop.py", "--journal", str(stock.journal), "--json")
        return str(done.json["content"][0]["text"])

    assert [at_terminal("count"), at_terminal("count")] == ["3", "3"]
    async with Engine([stock.counting("persistent"), stock.selling()], journal=stock.opened()) as engine:
        await said(engine, call("sell", left="2"), WRITES)
        assert (at_terminal("count"), await counted(engine)) == ("2", "2")
        assert at_terminal("sell", "left=1") == "sold"
        assert await counted(engine) == "1"
