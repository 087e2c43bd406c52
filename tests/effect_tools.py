"""Tools with effects: payments and refunds that are written to a ledger, and a tool that runs until it is cancelled."""

from __future__ import annotations

import asyncio
from typing import Any

from callgate import Tool, tool
from tests.effect_ledger import Ledger

__all__ = ["Unending", "failing", "paying", "paying_amounts", "refunding", "returning_failure"]


def paying(ledger: Ledger, **settings: Any) -> Tool:
    """Return `pay(to)`, which writes one line to the ledger per run."""

    @tool(name="pay", **settings)
    async def pay(to: str) -> str:
        """Pay somebody."""
        ledger.write(to)
        return f"paid {to}"

    return pay


def paying_amounts(ledger: Ledger, hang: asyncio.Event | None = None, **settings: Any) -> Tool:
    """Return `pay(to, amount)`, which writes one line to the ledger per run and then waits for `hang`."""

    @tool(name="pay", **settings)
    async def pay(to: str, amount: float = 1) -> str:
        """Pay somebody."""
        ledger.write(f"{to} {amount:g}")
        if hang is not None:
            await hang.wait()
        return f"paid {to}"

    return pay


def refunding(ledger: Ledger, **settings: Any) -> Tool:
    """`refund(order, cents)`, a line in the ledger for each."""

    @tool(**({"name": "refund", "key": "refund:{order}"} | settings))
    async def refund(order: str, cents: int = 100) -> str:
        """Refund an order."""
        ledger.write(f"{order} {cents}")
        await asyncio.sleep(0)
        return f"refunded {order}"

    return refund


def failing(ledger: Ledger, error: Exception, **settings: Any) -> Tool:
    """`refund(order)`, a line in the ledger for each; then it raises."""

    @tool(name="refund", key="refund:{order}", **settings)
    async def refund(order: str) -> str:
        """Refund an order."""
        ledger.write(order)
        raise error

    return refund


def returning_failure(ledger: Ledger, **settings: Any) -> Tool:
    """`refund(order)`, a line in the ledger for each; then it returns that it failed."""

    @tool(name="refund", key="refund:{order}", **settings)
    async def refund(order: str) -> dict[str, object]:
        """Refund an order."""
        ledger.write(order)
        return {"success": False, "error": "the card is blocked"}

    return refund


class Unending:
    """A tool that runs until it is cancelled, with events that are set when it begins and ends."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.ended = asyncio.Event()

    def tool(self, **settings: Any) -> Tool:
        @tool(name="act", **settings)
        async def act() -> str:
            """Act until cancelled."""
            self.begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.ended.set()
            return "acted"

        return act
