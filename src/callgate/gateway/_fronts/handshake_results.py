"""Turn a result of the latest revision into one that clients of the handshake era can read. Pure.

The SDKs of that era check what they get: an output schema of another type than `object` makes the whole list of tools unreadable for
them, and a structured result that is not an object makes the result of a call, which may have had an effect, an error.

Source: MCP 2025-11-25, Schema Reference: `Tool`, `CallToolResult`.
"""

from __future__ import annotations

from callgate.gateway._client_calls import PROTOCOL_PREFIX
from callgate.mcp._connection import Message

__all__ = ["adapt_result"]

_STATELESS_META = frozenset(f"{PROTOCOL_PREFIX}{name}" for name in ("serverInfo", "protocolVersion", "subscriptionId"))
_STATELESS_FIELDS = frozenset({"resultType", "ttlMs", "cacheScope"})


def adapt_result(method: str, result: Message) -> Message:
    """Return the result of a request without what only the stateless era has."""
    adapted = _without_fields(result)
    if method == "tools/list":
        return {**adapted, "tools": [_adapt_tool(tool) for tool in adapted["tools"]]}
    if method == "tools/call" and not isinstance(adapted.get("structuredContent", {}), dict):
        return {**adapted, "structuredContent": {"result": adapted["structuredContent"]}}
    return adapted


def _without_fields(result: Message) -> Message:
    meta = result.get("_meta")
    hop = isinstance(meta, dict) and not _STATELESS_META.isdisjoint(meta)
    if not hop and not _STATELESS_FIELDS & result.keys():
        return result
    adapted = {key: value for key, value in result.items() if key not in _STATELESS_FIELDS}
    if hop:
        left = {key: value for key, value in result["_meta"].items() if key not in _STATELESS_META}
        adapted = {**adapted, "_meta": left} if left else {key: value for key, value in adapted.items() if key != "_meta"}
    return adapted


def _adapt_tool(tool: Message) -> Message:
    """Return a definition without an output schema of a result that would be changed: its references could not be moved with it."""
    output = tool.get("outputSchema")
    if output is None or (isinstance(output, dict) and output.get("type") == "object"):
        return tool
    return {key: value for key, value in tool.items() if key != "outputSchema"}
