"""An MCP server that notes a payment in a file, and ends before it answers."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from mcp.server import MCPServer

server = MCPServer("bank")


@server.tool()
def pay(order: str) -> str:
    """Pay an order."""
    if order == "none":
        raise ValueError("no such order")
    with Path(sys.argv[1]).open("a") as ledger:
        ledger.write(f"{order}\n")
    os._exit(1)


if __name__ == "__main__":
    server.run()
