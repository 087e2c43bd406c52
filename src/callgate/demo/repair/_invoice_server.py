"""An MCP server with the shop's invoices: `python -m callgate.demo.repair._invoice_server`. Uses nothing of callgate."""

from __future__ import annotations

import json
import sys
from typing import Any

_INVOICES = {"A-04711": {"order": "A-04711", "customer": "C-17", "discount_percent": 90, "price_cents": 100, "invoiced_cents": 10}}
_TOOL = {
    "name": "find_invoice",
    "description": "Return the invoice of an order.",
    "inputSchema": {"type": "object", "properties": {"order": {"type": "string"}}, "required": ["order"]},
    "annotations": {"readOnlyHint": True},
}


def _answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    """Return the `result` or `error` of a request."""
    match method:
        case "initialize":
            about = {"name": "invoices", "version": "1"}
            return {"result": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": about}}
        case "tools/list":
            return {"result": {"tools": [_TOOL]}}
        case "tools/call":
            found = _INVOICES.get(params["arguments"]["order"])
            text = json.dumps(found) if found else "There is no such invoice."
            content = [{"type": "text", "text": text}]
            return {"result": {"content": content, "structuredContent": found} if found else {"content": content, "isError": True}}
    return {"error": {"code": -32601, "message": "Method not found"}}


if __name__ == "__main__":
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message:
            answer = _answer(message["method"], message.get("params", {}))
            sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}) + "\n")
            sys.stdout.flush()
