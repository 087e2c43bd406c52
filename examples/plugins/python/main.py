"""A plugin in Python: the tools of a small shop, in a process of their own."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

from callgate import NotDone, ToolContext, tool
from callgate.plugins.serving import serve

FILE = Path(os.environ.get("INVOICES_FILE", "invoices.json"))


def stored() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    return found


@tool(effect="none")
def find_invoice(number: str) -> dict[str, Any]:
    """Find an invoice by its number, such as R-7."""
    invoice: dict[str, Any] = stored().get(number, {})
    return invoice


@tool(effect="once", key="send:{number}")
def send_invoice(number: str, amount: float) -> str:
    """Write an invoice and send it to the customer."""
    if amount <= 0:
        raise NotDone(f"An invoice needs an amount above zero, and {amount:g} is not. Nothing was sent.")
    print(f"sending {number}")  # to standard error: standard output belongs to the protocol
    FILE.write_text(json.dumps(stored() | {number: {"amount": amount}}), encoding="utf-8")
    return f"sent {number}"


@tool(effect="none", timeout_s=60)
async def count_invoices(ctx: ToolContext) -> int:
    """Count all invoices, one after the other."""
    found = 0
    for number in stored():
        ctx.progress(f"counted {number}")
        await asyncio.sleep(0)
        found += 1
    return found


if __name__ == "__main__":
    serve([find_invoice, send_invoice, count_invoices])
