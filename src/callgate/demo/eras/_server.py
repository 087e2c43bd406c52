"""An MCP server that speaks one era only, over standard input and output: `python -m callgate.demo.eras._server ERA LEDGER PLACE`.

Its tool `order` asks the user how many pieces to order, writes the order to the ledger, and answers with fields that MCP does not define.
The eras differ in how the user is asked: in the older one by a request during the call, in the newer one by the result of the call, which
the client then makes again with the answer. Uses nothing of callgate.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

__all__ = ["DEFINITION", "REVISIONS", "Era"]

Era = str
REVISIONS = {"old": "2025-11-25", "new": "2026-07-28"}
DEFINITION: dict[str, Any] = {
    "name": "order",
    "description": "Order an item. Asks the user how many.",
    "inputSchema": {"type": "object", "$defs": {"Item": {"type": "string"}}, "properties": {"item": {"$ref": "#/$defs/Item"}}},
    "annotations": {"destructiveHint": True},
    "shopSection": {"shelf": 4, "row": "B"},
}
_QUESTION = {
    "message": "How many?",
    "mode": "form",
    "requestedSchema": {"type": "object", "properties": {"count": {"type": "integer"}}, "required": ["count"]},
}


class _ShopServer:
    def __init__(self, era: Era, ledger: str, place: str) -> None:
        self._era = era
        self._ledger = ledger
        self._place = place
        self._orders: dict[object, Callable[[int], None]] = {}
        """What goes on when the user has answered, by the id of the question."""

    def take(self, message: dict[str, Any]) -> None:
        """Handle one message of the client."""
        method, number, params = message.get("method"), message.get("id"), message.get("params", {})
        if method is None:
            self._orders.pop(number)(message["result"]["content"]["count"])
        elif method == "initialize" and self._era == "old":
            about = {"capabilities": {"tools": {}}, "serverInfo": {"name": "shop", "version": "1"}}
            self._reply(number, {"protocolVersion": REVISIONS["old"]} | about)
        elif method == "server/discover" and self._era == "new":
            self._reply(number, {"supportedVersions": [REVISIONS["new"]], "capabilities": {"tools": {}}} | _CACHED)
        elif method == "tools/list":
            self._reply(number, {"tools": [DEFINITION]} | (_CACHED if self._era == "new" else {}))
        elif method == "tools/call":
            self._order(number, params)
        elif number is not None:
            self._send({"id": number, "error": {"code": -32601, "message": "Method not found"}})

    def _order(self, number: object, params: dict[str, Any]) -> None:
        item = params["arguments"]["item"]
        if self._era == "old":
            self._orders[f"ask-{number}"] = lambda count: self._record_order(number, item, count)
            self._send({"id": f"ask-{number}", "method": "elicitation/create", "params": _QUESTION})
        elif "inputResponses" in params:
            self._record_order(number, item, params["inputResponses"]["count"]["content"]["count"])
        else:
            asked = {"count": {"method": "elicitation/create", "params": _QUESTION}}
            self._reply(number, {"resultType": "input_required", "inputRequests": asked, "requestState": item})

    def _record_order(self, number: object, item: str, count: int) -> None:
        with open(self._ledger, "a", encoding="utf-8") as ledger:
            ledger.write(f"{self._place}: {count} x {item}\n")
        text = {"type": "text", "text": f"ordered {count} x {item}", "shopColour": "blue"}
        self._reply(number, {"content": [text], "structuredContent": {"item": item, "count": count}, "shopReceipt": [3, 1, 2]})

    def _reply(self, number: object, result: dict[str, Any]) -> None:
        self._send({"id": number, "result": {"resultType": "complete"} | result if self._era == "new" else result})

    def _send(self, message: dict[str, Any]) -> None:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0"} | message) + "\n")
        sys.stdout.flush()


_CACHED = {"ttlMs": 0, "cacheScope": "private"}

if __name__ == "__main__":
    server = _ShopServer(*sys.argv[1:])
    for line in sys.stdin:
        server.take(json.loads(line))
