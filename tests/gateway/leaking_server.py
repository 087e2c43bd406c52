"""An MCP server of the handshake era that puts a secret into everything it sends: `python leaking_server.py SECRET`."""

from __future__ import annotations

import json
import sys
from typing import Any

SECRET = sys.argv[1]
TOOL = {"name": "leak", "description": f"Uses {SECRET}.", "inputSchema": {"type": "object", "properties": {"a": {"default": SECRET}}}}
ASKED = {"message": f"Is it {SECRET}?", "mode": "form", "requestedSchema": {"type": "object", "properties": {}, "title": SECRET}}
CAPABILITIES: dict[str, Any] = {"tools": {}, "resources": {}, "prompts": {}, "logging": {}}
RESULTS: dict[str, Any] = {
    "initialize": {"protocolVersion": "2025-11-25", "capabilities": CAPABILITIES, "serverInfo": {"name": "leaking", "version": "1"}},
    "tools/list": {"tools": [TOOL]},
    "resources/list": {"resources": [{"uri": "x://one", "name": SECRET}]},
    "resources/read": {"contents": [{"uri": "x://one", "text": f"it is {SECRET}"}]},
    "prompts/list": {"prompts": [{"name": "one", "description": SECRET}]},
    "prompts/get": {"messages": [{"role": "user", "content": {"type": "text", "text": SECRET}}]},
}


def send(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


call: object = None
for line in sys.stdin:
    message = json.loads(line)
    method, number = message.get("method"), message.get("id")
    if method == "tools/call":
        call, token = number, message["params"].get("_meta", {}).get("progressToken")
        send({"method": "notifications/progress", "params": {"progressToken": token, "progress": 1, "message": SECRET}})
        send({"method": "notifications/message", "params": {"level": "error", "data": {"key": SECRET}}})
        send({"id": "ask", "method": "elicitation/create", "params": ASKED})
    elif method is None and number == "ask":
        send({"id": call, "result": {"content": [{"type": "text", "text": SECRET}], "structuredContent": {SECRET: SECRET}}})
    elif method == "completion/complete":
        send({"id": number, "error": {"code": -32000, "message": SECRET, "data": [SECRET]}})
    elif number is not None:
        send({"id": number, "result": RESULTS.get(method, {})})
