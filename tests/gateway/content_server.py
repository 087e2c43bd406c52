"""A server of the handshake era with one tool, one resource and one prompt, all named after it: `python content_server.py NAME`."""

from __future__ import annotations

import json
import sys
from typing import Any

NAME = sys.argv[1]


def result_of(method: str, params: dict[str, Any]) -> dict[str, Any]:
    match method:
        case "initialize":
            capabilities: dict[str, Any] = {"tools": {}, "resources": {"subscribe": True}, "prompts": {}, "completions": {}}
            return {"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": {"name": NAME, "version": "1"}}
        case "tools/list":
            return {"tools": [{"name": f"{NAME}_look", "inputSchema": {"type": "object"}}]}
        case "resources/list":
            return {"resources": [{"uri": f"{NAME}://one", "name": "one"}]}
        case "resources/templates/list":
            return {"resourceTemplates": [{"uriTemplate": f"{NAME}://{{id}}", "name": "any"}]}
        case "resources/read":
            return {"contents": [{"uri": params["uri"], "text": f"read by {NAME}"}]}
        case "prompts/list":
            return {"prompts": [{"name": "ask"}]}
        case "prompts/get":
            return {"messages": [{"role": "user", "content": {"type": "text", "text": f"asked by {NAME}"}}]}
        case "completion/complete":
            return {"completion": {"values": [NAME]}}
    return {}


for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        result = result_of(message["method"], message.get("params") or {})
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}) + "\n")
        sys.stdout.flush()
