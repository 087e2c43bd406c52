"""MCP servers for tests of the command line: a shop whose tools are read from a file, and servers that misbehave."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

__all__ = ["BUY", "LOOK", "SHOP", "offer", "write_servers"]

_SHOP = """
import asyncio, json, os, sys
from pathlib import Path
import mcp_types as t
from mcp.server import Server
from mcp.server.stdio import stdio_server

OFFERED = Path(sys.argv[1])

async def list_tools(context, params):
    return t.ListToolsResult(tools=[t.Tool.model_validate(one) for one in json.loads(OFFERED.read_text())])

async def call_tool(context, params):
    if params.name == "crash":
        os._exit(1)
    with open("bought.txt", "a") as ledger:
        ledger.write(params.name + "\\n")
    said = f"{params.name} {json.dumps(params.arguments)} {os.environ.get('SHOP_KEY', '')}"
    return t.CallToolResult(content=[t.TextContent(type="text", text=said)])

async def main():
    server = Server("shop", version="1.2", on_list_tools=list_tools, on_call_tool=call_tool)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())

asyncio.run(main())
"""
_DEAD = "import sys; sys.exit('no licence found')"
LOOK: dict[str, Any] = {
    "name": "look",
    "description": "Look at the price of an article.",
    "inputSchema": {"type": "object", "properties": {"article": {"type": "string"}}},
    "annotations": {"readOnlyHint": True, "openWorldHint": False},
}
BUY: dict[str, Any] = {"name": "buy", "description": "Buy an article.", "inputSchema": {"type": "object"}}
SHOP = (sys.executable, "shop.py", "offered.json")
"""The command of the shop, in the folder of `write_servers`."""


def write_servers(folder: Path) -> None:
    """Write the programs, and let the shop offer `look` and `buy`."""
    (folder / "shop.py").write_text(_SHOP, encoding="utf-8")
    (folder / "dead.py").write_text(_DEAD, encoding="utf-8")
    offer(folder, LOOK, BUY)


def offer(folder: Path, *definitions: dict[str, Any]) -> None:
    """Let the shop offer these tools from now on."""
    (folder / "offered.json").write_text(json.dumps(definitions), encoding="utf-8")
