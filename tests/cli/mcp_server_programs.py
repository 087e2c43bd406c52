"""MCP servers for tests of the command line: a shop whose tools are read from a file, and servers that misbehave.

The shop answers clients of both eras as a server of the official SDK does, without the SDK, whose import takes a second of each start.
The SDK's own servers are in `tests/mcp/test_real_servers.py`, `tests/gateway/test_real_servers.py` and the pages of `docs/`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

__all__ = ["BUY", "LOOK", "SHOP", "offer", "write_servers"]

_SHOP = """
import json, os, sys
from pathlib import Path

OFFERED = Path(sys.argv[1])
ABOUT = {"capabilities": {"tools": {"listChanged": False}}}
PREFIX = "io.modelcontextprotocol/"
INFO = {"name": "shop", "version": "1.2"}

def result_of(method, params):
    match method:
        case "server/discover":
            return ABOUT | {"supportedVersions": ["2026-07-28"]}
        case "initialize":
            return ABOUT | {"protocolVersion": "2025-11-25", "serverInfo": INFO}
        case "ping":
            return {}
        case "tools/list":
            return {"tools": json.loads(OFFERED.read_text())}
        case "tools/call":
            return called(params["name"], params.get("arguments"))

def called(name, arguments):
    if name == "crash":
        os._exit(1)
    with open("bought.txt", "a") as ledger:
        ledger.write(name + "\\n")
    said = f"{name} {json.dumps(arguments)} {os.environ.get('SHOP_KEY', '')}"
    return {"content": [{"type": "text", "text": said}], "isError": False}

for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    params = message.get("params", {})
    result = result_of(message["method"], params)
    if result is None:
        answer = {"error": {"code": -32601, "message": "Method not found", "data": message["method"]}}
    elif f"{PREFIX}protocolVersion" in params.get("_meta", {}):  # of the stateless era
        answer = {"result": result | {"resultType": "complete", "_meta": {f"{PREFIX}serverInfo": INFO}}}
    else:
        answer = {"result": result}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}), flush=True)
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
