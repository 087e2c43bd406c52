"""A server over stdio that speaks both eras, but not whole: `python half_handshake_server.py FAULT LOG`. It needs the standard library.

FAULT is what is wrong with the handshake era: `refuses` the handshake, `ignores` it, `ends` at it, `fails` at each, is `busy` at the first,
`refuses_lists` of tools after it, or has `others`, tools that are described differently. `LOG` gets a line for each start, handshake and
call.
"""

from __future__ import annotations

import json
import sys
from typing import Any

FAULT, LOG = sys.argv[1], sys.argv[2]
shaken = False


def log(text: str) -> None:
    with open(LOG, "a", encoding="utf-8") as file:
        file.write(text + "\n")


def handshakes() -> int:
    with open(LOG, encoding="utf-8") as file:
        return file.read().split().count("handshake")


def answer(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    global shaken
    refusal = {"error": {"code": -32603, "message": "not here"}}
    match method:
        case "server/discover":
            return {"result": {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "ttlMs": 0, "cacheScope": "private"}}
        case "initialize":
            log("handshake")
            if FAULT == "ends":
                sys.exit(3)
            if FAULT == "ignores":
                return None
            if FAULT == "refuses":
                return {"error": {"code": -32601, "message": "Method not found"}}
            if FAULT == "fails" or (FAULT == "busy" and handshakes() == 1):
                return refusal
            shaken = True
            about = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "half", "version": "1"}}
            return {"result": about}
        case "tools/list" if shaken and FAULT == "refuses_lists":
            return refusal
        case "tools/list":
            described = {"description": "other"} if shaken and FAULT == "others" else {}
            return {"result": {"tools": [{"name": "work", "inputSchema": {"type": "object"}, **described}]}}
        case "tools/call":
            log("call")
            return {"result": {"content": [{"type": "text", "text": "after a handshake" if shaken else "without"}]}}
    return {"error": {"code": -32601, "message": "Method not found"}}


log("start")
for line in sys.stdin:
    message = json.loads(line)
    said = answer(message["method"], message.get("params", {})) if "id" in message else None
    if said is not None:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], **said}) + "\n")
        sys.stdout.flush()
