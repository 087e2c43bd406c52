"""A tool with an effect, which a ledger counts."""

from __future__ import annotations

import asyncio
from typing import Any

from callgate import tool
from tests.ledger import Ledger

__all__ = ["paying"]


def paying(ledger: Ledger, hang: asyncio.Event | None = None, **settings: Any) -> Any:
    @tool(**settings)
    async def pay(to: str, amount: float = 1) -> str:
        """Pay somebody."""
        ledger.write(f"{to} {amount:g}")
        if hang is not None:
            await hang.wait()
        return f"paid {to}"

    return pay
