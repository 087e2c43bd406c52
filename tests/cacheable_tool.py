"""A cacheable tool that counts its runs."""

from __future__ import annotations

from typing import Any, Unpack

from callgate import tool
from callgate.tools import ToolOptions

__all__ = ["Count", "counting"]


class Count:
    def __init__(self) -> None:
        self.runs = 0


def counting(count: Count, **options: Unpack[ToolOptions]) -> Any:
    @tool(**{"name": "look", "effect": "none", "cacheable": True} | options)
    async def look(at: str = "door") -> dict[str, Any]:
        """Look."""
        count.runs += 1
        return {"seen": at, "run": count.runs}

    return look
