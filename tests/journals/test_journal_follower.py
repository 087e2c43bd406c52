"""Tests that a memory can follow every kind of journal."""

from __future__ import annotations

from pathlib import Path

from callgate import Engine, tool
from callgate.memory import Memory, PassageQuery
from callgate.protocols import Journal
from tests.journals.conftest import Open
from tests.memory.fakes import found, make


@tool(effect="none")
def look_up(order: str) -> str:
    """Look an order up."""
    return f"order {order} was shipped to Quito"


async def test_a_memory_indexes_ended_calls_and_can_be_rebuilt_from_every_journal(place: Open, tmp_path: Path) -> None:
    """The journal is the source of truth, so a second memory of the same journal has the same content."""
    memory = Memory(tmp_path / "first.db")
    async with Engine([look_up, *memory.tools()], journal=place(), memory=memory) as engine:
        await make(engine, "", "remember", text="Quito is high up")
        for number in range(3):
            await make(engine, "", "look_up", order=str(number))
        expected = [(one["from"], one["text"]) for one in await found(engine, "", "quito")]
        assert len(expected) == 4
    again = Memory(tmp_path / "again.db")
    journal: Journal = place()
    async with Engine([look_up, *again.tools()], journal=journal, memory=again):
        assert await again.settled()
        passages = [one.passage for one in again.search(PassageQuery(text="quito", principal="ann", limit=50))]
        assert sorted((one.kind, one.text) for one in passages) == sorted(expected)
