"""A server with instructions for models, read from a file at each start: `python told_server.py NAME FILE ERA`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

NAME, FILE, ERA = sys.argv[1:4]
TEXT = Path(FILE).read_text(encoding="utf-8")


def result_of(method: str) -> dict[str, Any] | None:
    match method:
        case "server/discover" if ERA == "stateless":
            return {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "instructions": TEXT}
        case "initialize" if ERA == "handshake":
            about = {"name": NAME, "version": "1"}
            return {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": about, "instructions": TEXT}
        case "tools/list":
            return {"tools": [{"name": f"{NAME}_look", "inputSchema": {"type": "object"}}]}
    return None


for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        result = result_of(message["method"])
        answer = {"result": result} if result is not None else {"error": {"code": -32601, "message": "Method not found"}}
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}) + "\n")
        sys.stdout.flush()
