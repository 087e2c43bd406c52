"""A server of the handshake era with one tool, one resource and one prompt, all named after it: `python content_server.py NAME`.

A call of the tool changes every resource whose changes a client wants to be told, or ends the server with the argument `exit: true`. A
second argument, a JSON object, is what it says of a change in addition to the URI. There is no resource `NAME://missing`.
"""

from __future__ import annotations

import json
import sys
from typing import Any

NAME = sys.argv[1]
MORE = json.loads(sys.argv[2]) if len(sys.argv) > 2 else {}


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
        case "tools/call":
            return sys.exit() if params.get("arguments", {}).get("exit") else {"content": []}
        case "prompts/list":
            return {"prompts": [{"name": "ask"}]}
        case "prompts/get":
            return {"messages": [{"role": "user", "content": {"type": "text", "text": f"asked by {NAME}"}}]}
        case "completion/complete":
            return {"completion": {"values": [NAME]}}
    return {}


wanted: list[str] = []
for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        if message["method"] == "resources/subscribe":
            wanted.append(message["params"]["uri"])
        for uri in wanted if message["method"] == "tools/call" else ():
            told = {"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": uri, **MORE}}
            sys.stdout.write(json.dumps(told) + "\n")
        params = message.get("params") or {}
        if params.get("uri") == f"{NAME}://missing":
            body: dict[str, Any] = {"error": {"code": -32002, "message": "Resource not found", "data": {"uri": params["uri"]}}}
        else:
            body = {"result": result_of(message["method"], params)}
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], **body}) + "\n")
        sys.stdout.flush()
