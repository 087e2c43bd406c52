"""An MCP server of the handshake era over stdio that has more tools in a session after its tool `grow` was called there: `more`.

`shrink` takes it away again. It needs only the standard library.
"""

from __future__ import annotations

import json
import sys
from typing import Any

tools = ["grow", "shrink"]


def send(**message: Any) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def called(name: str) -> dict[str, Any]:
    if name in ("grow", "shrink"):
        tools[2:] = ["more"] if name == "grow" else []
        send(method="notifications/tools/list_changed")
    return {"content": [{"type": "text", "text": f"{name} was called"}]}


def result_of(message: dict[str, Any]) -> dict[str, Any]:
    match message["method"]:
        case "initialize":
            about = {"name": "growing", "version": "1"}
            return {"protocolVersion": "2025-11-25", "capabilities": {"tools": {"listChanged": True}}, "serverInfo": about}
        case "tools/list":
            return {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in tools]}
        case "tools/call":
            return called(message["params"]["name"])
    return {}


for line in sys.stdin:
    message = json.loads(line)
    if message.get("method") == "server/discover":
        send(id=message["id"], error={"code": -32601, "message": "Method not found"})
    elif "id" in message and "method" in message:
        send(id=message["id"], result=result_of(message))
