"""Tests of a memory that follows a journal in steps: only durable events count, and no call is lost between two steps."""

from __future__ import annotations

from pathlib import Path

import pytest

from callgate import Engine, MemoryJournal, tool
from callgate.memory import Memory, MemoryLimits, MemoryPassages, PassageQuery
from callgate.memory.database import Database
from callgate.memory.journal_follower import JournalFollower
from callgate.memory.journal_read_positions import ReadPositions
from callgate.tools import ToolRegistry
from tests.memory.fakes import make


@tool(effect="none")
def look_up(order: str) -> str:
    """Look an order up."""
    return f"order {order} was shipped to Quito"


@pytest.mark.parametrize("border", range(6))
async def test_every_call_is_stored_whole_wherever_reading_the_journal_stopped(tmp_path: Path, border: int) -> None:
    """Events that are not durable do not count; the next reader stores the whole call, whenever it began."""
    async with Engine([look_up], journal=MemoryJournal()) as engine:
        for order in ("A7", "B8"):
            await make(engine, "", "look_up", order=order)
        journal = engine.journal
    ends = [event.position for event in journal.read() if event.kind == "call.completed"]
    ledger, store = ReadPositions(Database(tmp_path / "m.db")), MemoryPassages()

    def following() -> JournalFollower:
        return JournalFollower(journal.find, ledger, store, MemoryLimits(), keep=store.keep)

    following().read_events(100, lambda: border)
    assert store.count("call") == sum(end <= border for end in ends)
    assert following().read_events(100, lambda: border) == "early"
    assert following().read_events(100) == "all"
    texts = sorted(one.passage.text for one in store.search(PassageQuery(text="quito", principal="ann")))
    assert texts == [f'look_up(order="{order}"): ok, order {order} was shipped to Quito' for order in ("A7", "B8")]


@pytest.mark.parametrize("most", [1, 2, 3, 7])
async def test_calls_are_stored_whatever_the_page_size(tmp_path: Path, most: int) -> None:
    async with Engine([look_up], journal=MemoryJournal()) as engine:
        for order in ("A7", "B8"):
            await make(engine, "", "look_up", order=order)
        journal = engine.journal
    store = MemoryPassages()
    following = JournalFollower(journal.find, ReadPositions(Database(tmp_path / "m.db")), store, MemoryLimits(), keep=store.keep)
    while following.read_events(most) != "all":
        pass
    assert store.count("call") == 2


def test_the_memory_tools_declare_their_effect_category_and_runner(tmp_path: Path) -> None:
    """`recall` is read-only, repeated notes are stored once, and one principal's memory is one resource."""
    with Memory(tmp_path / "m.db") as memory:
        bound = list(ToolRegistry(memory.tools()))
        assert {one.name: (one.effect, one.category, one.runner) for one in bound} == {
            "remember": ("idempotent", "async_required", "thread"),
            "recall": ("none", "safe_chain", "thread"),
            "forget": ("idempotent", "async_required", "thread"),
        }
