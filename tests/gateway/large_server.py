"""An MCP server over stdio with large answers: `python large_server.py LEDGER`.

Its tool `large` writes the argument `n` to the file LEDGER, and returns 3 MB. `ask` asks its client for a name, and writes what it answers.
It needs only the standard library.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

LEDGER = Path(sys.argv[1])
FORM = {"type": "object", "properties": {"name": {"type": "string"}}}


def send(**message: Any) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def note(line: object) -> None:
    with LEDGER.open("a") as ledger:
        ledger.write(f"{line}\n")


def take(message: dict[str, Any]) -> None:
    number: Any = message.get("id")
    params = message.get("params", {})
    match message.get("method"):
        case "initialize":
            about = {"name": "large", "version": "1"}
            send(id=number, result={"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": about})
        case "tools/list":
            send(id=number, result={"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in ("large", "ask")]})
        case "tools/call" if params["name"] == "ask":
            send(id=f"ask {number}", method="elicitation/create", params={"message": "Name?", "requestedSchema": FORM})
        case "tools/call":
            note(params["arguments"]["n"])
            send(id=number, result={"content": [{"type": "text", "text": "x" * 3_000_000}]})
        case None if str(number).startswith("ask "):
            note(message["result"]["content"]["name"])
            send(id=int(number.split()[1]), result={"content": []})
        case method if method and number is not None:
            send(id=number, error={"code": -32601, "message": "Method not found"})


for line in sys.stdin:
    take(json.loads(line))
