"""An MCP server that notes a payment in a file, and ends before it answers."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any


def pay(order: str) -> dict[str, Any]:
    """Return an error for no order; end this process for any other."""
    if order == "none":
        return {"content": [{"type": "text", "text": "Error executing tool pay: no such order"}], "isError": True}
    with Path(sys.argv[1]).open("a") as ledger:
        ledger.write(f"{order}\n")
    os._exit(1)


def result_of(method: str, params: dict[str, Any]) -> dict[str, Any]:
    match method:
        case "initialize":
            return {
                "protocolVersion": params["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "bank", "version": "1"},
            }
        case "tools/list":
            schema = {"type": "object", "properties": {"order": {"type": "string"}}, "required": ["order"]}
            return {"tools": [{"name": "pay", "inputSchema": schema}]}
        case "tools/call":
            return pay(params["arguments"]["order"])
    return {}


for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        result = result_of(message["method"], message.get("params") or {})
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}) + "\n")
        sys.stdout.flush()
