"""Tools with effects: payments, which a ledger counts, and one that acts until somebody ends it."""

from __future__ import annotations

import asyncio
from typing import Any

from callgate import Tool, tool
from tests.effect_ledger import Ledger

__all__ = ["Unending", "paying", "paying_amounts"]


def paying(ledger: Ledger, **settings: Any) -> Tool:
    """`pay(to)`, a line in the ledger for each."""

    @tool(name="pay", **settings)
    async def pay(to: str) -> str:
        """Pay somebody."""
        ledger.write(to)
        return f"paid {to}"

    return pay


def paying_amounts(ledger: Ledger, hang: asyncio.Event | None = None, **settings: Any) -> Tool:
    """`pay(to, amount)`, a line in the ledger for each; then it waits for `hang`."""

    @tool(name="pay", **settings)
    async def pay(to: str, amount: float = 1) -> str:
        """Pay somebody."""
        ledger.write(f"{to} {amount:g}")
        if hang is not None:
            await hang.wait()
        return f"paid {to}"

    return pay


class Unending:
    """A tool that acts until somebody ends it, and says that it began and that it was ended."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.ended = asyncio.Event()

    def tool(self, **settings: Any) -> Tool:
        @tool(name="act", **settings)
        async def act() -> str:
            """Act until somebody ends it."""
            self.begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.ended.set()
            return "acted"

        return act
