"""A server of the handshake era that answers `initialize` when a file exists, and has the tool `ready`, resources, and nothing else."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any


def result_of(method: str) -> dict[str, Any]:
    match method:
        case "initialize":
            while not Path(sys.argv[1]).exists():
                time.sleep(0.01)
            info = {"name": "slow", "version": "1"}
            return {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}, "resources": {}}, "serverInfo": info}
        case "tools/list":
            return {"tools": [{"name": "ready", "inputSchema": {"type": "object"}}]}
        case "resources/list":
            return {"resources": [{"uri": "slow://one", "name": "one"}]}
        case "tools/call":
            return {"content": [{"type": "text", "text": "done"}]}
    return {}


for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result_of(message["method"])}) + "\n")
        sys.stdout.flush()
