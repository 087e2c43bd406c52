"""A gateway for one client at standard input and output, or as a program: `python -m tests.gateway.stdio_gateway '{"servers": []}'`.

`servers` are commands, `effects` what the operator accepts, `options` other options of the servers, `limits` those of the gateway. It has
two tools of its own: `price`, which prints while it runs, and `pay`, which a human has to approve.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping
from typing import Any, BinaryIO

from callgate import Engine, SqliteJournal, tool
from callgate.gateway import Gateway, GatewayLimits, serve_stdio
from callgate.mcp import mcp


@tool(effect="none")
def price(item: str) -> dict[str, object]:
    """Return the price of an item."""
    sys.stdout.write("a line that a tool prints")
    return {"item": item, "price": 5}


@tool(requires_approval=True)
def pay(amount: int) -> str:
    """Pay an amount."""
    return f"paid {amount}"


async def serve(given: Mapping[str, Any], streams: tuple[BinaryIO, BinaryIO] | None = None) -> None:
    options = {"effects": given.get("effects", {}), **given.get("options", {})}
    servers = [mcp(command, name=f"server{n}", **options) for n, command in enumerate(given.get("servers", []))]
    journal = SqliteJournal(given["journal"]) if "journal" in given else None
    limits = GatewayLimits(**given.get("limits", {}))
    secret = b"the secret of the tests, 32 bytes"
    engine = Engine([price, pay], servers=servers, journal=journal)
    async with Gateway(engine, name="test gateway", instructions="Be careful.", limits=limits, secret=secret) as gateway:
        await serve_stdio(gateway, streams=streams)


if __name__ == "__main__":
    asyncio.run(serve(json.loads(sys.argv[1])))
