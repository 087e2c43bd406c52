"""A small MCP server without dependencies, for the documentation: the prices of a shop, over standard input and output."""

from __future__ import annotations

import json
import sys
from typing import Any

PRICES = {"tea": 420, "milk": 95}
SCHEMA = {"type": "object", "properties": {"article": {"type": "string"}}, "required": ["article"]}
TOOLS = [
    {
        "name": "get_price",
        "description": "Return the price of an article in cents.",
        "inputSchema": SCHEMA,
        "annotations": {"readOnlyHint": True},
    },
    {"name": "order", "description": "Order an article.", "inputSchema": SCHEMA},
]

HOURS = {"uri": "shop://hours", "name": "hours", "mimeType": "text/plain"}


def call(name: str, article: str) -> dict[str, Any]:
    if article not in PRICES:
        return {"content": [{"type": "text", "text": f"There is no {article}."}], "isError": True}
    text = str(PRICES[article]) if name == "get_price" else f"ordered {article}"
    return {"content": [{"type": "text", "text": text}]}


def answer(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    """Return the result of a request; None if the server does not know it."""
    match method:
        case "initialize":
            info = {"name": "prices", "version": "1.0"}
            return {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}, "resources": {}, "prompts": {}}, "serverInfo": info}
        case "tools/list":
            return {"tools": TOOLS}
        case "tools/call":
            return call(params["name"], params["arguments"]["article"])
        case "resources/list":
            return {"resources": [HOURS]}
        case "resources/read" if params["uri"] == HOURS["uri"]:
            return {"contents": [{**HOURS, "text": "9 to 17"}]}
        case "prompts/list":
            return {"prompts": [{"name": "offer", "arguments": [{"name": "article", "required": True}]}]}
        case "prompts/get":
            text = f"Write an offer for {params['arguments']['article']}."
            return {"messages": [{"role": "user", "content": {"type": "text", "text": text}}]}
        case "ping":
            return {}
    return None


for line in sys.stdin:
    request = json.loads(line)
    if "id" in request:
        result = answer(request["method"], request.get("params", {}))
        failure = {"error": {"code": -32601, "message": f"unknown method {request['method']}"}}
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], **({"result": result} if result is not None else failure)}), flush=True)
