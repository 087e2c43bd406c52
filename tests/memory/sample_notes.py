"""Notes and queries for the tests of vectors."""

from __future__ import annotations

from callgate import tool
from callgate.memory import Memory, PassageQuery

__all__ = ["NOTE", "PARAPHRASE", "look_up", "remembered", "texts"]

PARAPHRASE = "reimbursements for customers"
"""Shares no word and no prefix of a word with the note that it should find."""
NOTE = "The customer was reimbursed on Monday."


@tool(effect="none")
def look_up(order: str) -> str:
    """Look an order up."""
    return f"order {order} was shipped to Quito"


def texts(memory: Memory, text: str, principal: str = "ann", **filters: object) -> list[str]:
    query = PassageQuery(text=text, principal=principal, limit=50, **filters)  # type: ignore[arg-type]
    return [one.passage.text for one in memory.search(query)]


def remembered(memory: Memory, *notes: str, principal: str = "ann") -> list[str]:
    return [memory.remember(note, principal=principal) for note in notes]
