"""An MCP server over stdio that asks for the folders of its client when a session begins, and when the client says that they have changed.

Its tool `folders` returns what it knows. It is of the handshake era, and needs only the standard library.
"""

from __future__ import annotations

import json
import sys
from itertools import count
from typing import Any

known: Any = None
ids = count(1)


def send(**message: Any) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def result_of(message: dict[str, Any]) -> dict[str, Any]:
    match message["method"]:
        case "initialize":
            return {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "folders", "version": "1"}}
        case "tools/list":
            return {"tools": [{"name": "folders", "inputSchema": {"type": "object"}}]}
        case "tools/call":
            return {"content": [{"type": "text", "text": json.dumps(known)}]}
    return {}


asks = False
for line in sys.stdin:
    message = json.loads(line)
    method = message.get("method")
    if method == "initialize":
        asks = "roots" in message["params"]["capabilities"]
    if method is None:
        known = message.get("result", {}).get("roots", "refused")
    elif method == "server/discover":
        send(id=message["id"], error={"code": -32601, "message": "Method not found"})
    elif "id" in message:
        send(id=message["id"], result=result_of(message))
    elif asks and method in ("notifications/initialized", "notifications/roots/list_changed"):
        send(id=f"roots-{next(ids)}", method="roots/list")
