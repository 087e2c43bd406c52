"""A shop outside the engine: four tools that write their effects to a ledger.

The shop behaves like an external system: two requests with the same key set a price once, but two charges take the
money twice. Each tool reports the moments that it reaches, so that its process can be killed there. No tool declares
what it writes, so the calls run one after the other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from callgate.demo._effect_log import EffectLog, note_effect
from callgate.demo.crash._kill_points import ORDER
from callgate.tools import FunctionTool, ToolContext, Verified

__all__ = ["shop_tools"]

Reach = Callable[[str], None]
"""Called with the moment that a tool has reached. May never return."""


def shop_tools(ledger: EffectLog, reach: Reach) -> list[FunctionTool]:
    """Return the tools in the order of `ORDER`."""

    def stock(context: ToolContext, item: str) -> int:
        """Return how many of an item are in stock."""
        reach("inside stock")
        return 7

    def set_price(context: ToolContext, item: str, cents: int) -> str:
        """Set the price of an item."""
        if not _has_key(ledger, context.idempotency_key):
            _note(context, "set_price", reach)
        return f"{item} costs {cents} cents"

    def charge(context: ToolContext, account: str, cents: int) -> str:
        """Take money from an account."""
        _note(context, "charge", reach)
        return f"took {cents} cents from {account}"

    def ship(context: ToolContext, parcel: str) -> str:
        """Send a parcel."""
        _note(context, "ship", reach)
        return f"{parcel} has left"

    def has_left(arguments: dict[str, Any], key: str) -> Verified:
        """Check in the ledger whether the parcel was sent."""
        left = _has_key(ledger, key)
        return Verified(happened=left, result=f"{arguments['parcel']} has left" if left else None)

    made = [
        FunctionTool(stock, effect="none"),
        FunctionTool(set_price, effect="idempotent"),
        FunctionTool(charge, effect="once"),
        FunctionTool(ship, effect="once", verify=has_left),
    ]
    assert tuple(one.name for one in made) == ORDER
    return made


def _note(context: ToolContext, tool: str, reach: Reach) -> None:
    reach(f"before {tool}")
    note_effect(context, f"key {context.idempotency_key}")
    reach(f"after {tool}")


def _has_key(ledger: EffectLog, key: str) -> bool:
    return any(entry.what == f"key {key}" for entry in ledger.entries("effect"))
