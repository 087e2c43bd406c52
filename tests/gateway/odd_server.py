"""A server over stdio whose definitions and results have what models of the protocol tend to lose: `python odd_server.py ERA [FOLDER]`.

`ERA` is `handshake` or `stateless`; the server knows nothing of the other one. With `FOLDER`, calls of `odd` wait for the file `go` in it.
It needs only the standard library.
"""

from __future__ import annotations

import json
import math
import sys
import time
from pathlib import Path
from typing import Any

REVISION = {"handshake": "2025-11-25", "stateless": "2026-07-28"}

SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {"Point": {"$anchor": "point", "type": "object", "properties": {"y": {"type": "number"}, "x": {"type": "number"}}}},
    "properties": {"z": {"$ref": "#/$defs/Point"}, "a": {"type": "string", "x-vendor": {"b": 1, "a": 2}}},
    "x-vendor": [3, 2, 1],
}
TOOLS: list[dict[str, Any]] = [
    {
        "zVendor": {"second": 2, "first": 1},
        "name": "odd",
        "title": "An odd tool",
        "description": "Returns what it is told to.",
        "inputSchema": SCHEMA,
        "annotations": {"readOnlyHint": True, "vendorHint": "yes", "title": "Odd"},
        "icons": [{"src": "data:image/png;base64,AA==", "sizes": ["any"], "theme": "dark", "vendor": 1}],
        "_meta": {"example/one": {"b": [], "a": None}},
        "execution": {"taskSupport": "forbidden"},
    },
    {"name": "_under-score.Dotted", "inputSchema": {"type": "object"}},
    {
        "name": "transfer",
        "description": "Transfer an amount. " * 3_000,
        "inputSchema": {"type": "object", "properties": {"wei": {"type": "integer", "maximum": 2**256 - 1, "default": -(2**64)}}},
    },
    {"name": "with_output", "inputSchema": {"type": "object"}, "outputSchema": {"type": ["object", "array"], "x-vendor": 1}},
    {"name": "echo", "inputSchema": {"type": "object"}},
]
TEXT = {"type": "text", "text": "hello"}
RESULTS: dict[str, Any] = {
    "partly done": {
        "content": [
            {"type": "text", "text": "Deleted 1 of 2 files.", "annotations": {"audience": ["user"]}},
            {"type": "image", "data": "AAEC", "mimeType": "image/png"},
        ],
        "structuredContent": {"success": False, "error": "rate limit: try again", "deleted": ["a"]},
        "vendor": 1,
    },
    "says that it has failed": {"content": [{"type": "text", "text": "t"}], "structuredContent": {"success": False}},
    "fields": {"vendorField": {"b": 1, "a": 2}, "content": [TEXT], "_meta": {"example/x": 1}, "isError": False},
    "related task": {"content": [TEXT], "_meta": {"io.modelcontextprotocol/related-task": {"taskId": "x"}, "progressToken": 5}},
    "annotations": {
        "content": [{"text": "first the text", "type": "text", "annotations": {"priority": 0.5, "audience": ["user"], "z": 1}}]
    },
    "structured object": {"content": [TEXT], "structuredContent": {"z": 1, "a": [1, 2, {"k": None}]}},
    "structured list": {"content": [TEXT], "structuredContent": [3, 1, 2]},
    "structured text": {"content": [TEXT], "structuredContent": "text"},
    "no content": {"structuredContent": {"b": 1, "a": 2}},
    "no content and no value": {"vendor": 1},
    "structured number": {"content": [], "structuredContent": 12345678901234567890123},
    "structured false": {"content": [], "structuredContent": False},
    "structured null": {"content": [TEXT], "structuredContent": None},
    "floats": {"content": [], "structuredContent": {"one": 1.0, "tiny": 1e-300, "half": 0.5}},
    "image": {"content": [{"type": "image", "mimeType": "image/png", "data": "AAEC", "_meta": {"example/i": 1}}]},
    "audio": {"content": [{"type": "audio", "data": "AAEC", "mimeType": "audio/wav", "vendor": True}]},
    "bad base64": {"content": [{"type": "image", "mimeType": "image/png", "data": "*no base64*"}]},
    "link": {"content": [{"type": "resource_link", "uri": "file:///x", "name": "x", "title": "X", "size": 3, "icons": [], "vendor": {}}]},
    "resource": {
        "content": [{"type": "resource", "resource": {"uri": "file:///x", "blob": "AA==", "_meta": {"example/r": 1}}, "vendor": 2}]
    },
    "unknown type": {"content": [{"type": "hologram", "depth": 3, "data": {"b": 1, "a": 2}}, TEXT]},
    "error": {"content": [TEXT, {"type": "image", "mimeType": "image/png", "data": "AAEC"}], "isError": True, "vendor": 1},
    "structured error": {"content": [TEXT], "structuredContent": {"code": 7}, "isError": True},
    "empty": {"content": []},
    "unicode": {"content": [{"type": "text", "text": "\u0000 \u2028 \U0001f600 \u202e e\u0301"}]},
    "large": {"content": [{"type": "text", "text": "x" * 3_000_000}], "vendor": 1},
}
ERRORS: dict[str, Any] = {
    "own code": {"code": -31999, "message": "Quota used up.", "data": {"b": 1, "a": [None]}},
    "positive code": {"code": 42, "message": ""},
    "internal": {"code": -32603, "message": "It broke."},
    "invalid params": {"code": -32602, "message": "No such thing.", "data": "text"},
    "null data": {"code": -31998, "message": "Nothing to add.", "data": None},
    "unknown fields": {"vendor": {"b": 1, "a": 2}, "code": -31997, "message": "More to say.", "hint": None},
}


def answer(era: str, method: str, params: dict[str, Any]) -> dict[str, Any]:
    """Return the `result` or `error` of a request."""
    complete = {"resultType": "complete"} if era == "stateless" else {}
    cache = {"ttlMs": 0, "cacheScope": "private"} if era == "stateless" else {}
    capabilities: dict[str, Any] = {"tools": {}}
    match method:
        case "initialize" if era == "handshake":
            return {
                "result": {"protocolVersion": REVISION[era], "capabilities": capabilities, "serverInfo": {"name": "odd", "version": "1"}}
            }
        case "server/discover" if era == "stateless":
            return {"result": {"supportedVersions": [REVISION[era]], "capabilities": capabilities, **complete, **cache}}
        case "tools/list":
            return {"result": {"tools": TOOLS, **complete, **cache}}
        case "tools/call" if params["name"] == "odd":
            wait_for_go(sys.argv[2:])
            wanted = params["arguments"]["a"]
            if wanted == "cut text":  # as JavaScript writes half a character
                return {"result": {"content": [{"type": "text", "text": "cut \ud83d"}], **complete}}
            if wanted == "large number":  # written as 1e400
                return {"result": {"content": [], "structuredContent": {"x": math.inf, "y": 1e300}, **complete}}
            return {"error": ERRORS[wanted]} if wanted in ERRORS else {"result": {**RESULTS[wanted], **complete}}
        case "tools/call":
            sent = {
                "arguments": params.get("arguments"),
                "meta": {k: v for k, v in params.get("_meta", {}).items() if k.startswith("example/")},
            }
            return {"result": {"content": [{"type": "text", "text": json.dumps(sent)}], **complete}}
        case "ping":
            return {"result": {}}
    return {"error": {"code": -32601, "message": "Method not found"}}


def wait_for_go(folders: list[str]) -> None:
    while not all((Path(folder) / "go").exists() for folder in folders):
        time.sleep(0.01)


if __name__ == "__main__":
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message:
            sent = {"jsonrpc": "2.0", "id": message["id"], **answer(sys.argv[1], message["method"], message.get("params", {}))}
            sys.stdout.write(json.dumps(sent).replace("Infinity", "1e400") + "\n")
            sys.stdout.flush()
