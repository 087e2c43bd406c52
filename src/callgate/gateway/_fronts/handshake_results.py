"""Turn a result of the stateless era into one that clients of the handshake era can read. Pure.

The SDKs of that era check what they get: a structured result that is not an object makes the result of a call, which may have had an
effect, an error. What a server of their own era sends is theirs to judge, and stays as it is.

Source: MCP 2025-11-25, Schema Reference: `CallToolResult`.
"""

from __future__ import annotations

from callgate.gateway._client_calls import PROTOCOL_PREFIX
from callgate.mcp._connection import Message

__all__ = ["adapt_result"]

_STATELESS_META = frozenset(f"{PROTOCOL_PREFIX}{name}" for name in ("serverInfo", "protocolVersion", "subscriptionId"))
_STATELESS_FIELDS = frozenset({"resultType", "ttlMs", "cacheScope"})


def adapt_result(method: str, result: Message) -> Message:
    """Return the result of a request without what only the stateless era has."""
    if method == "tools/call" and "resultType" in result and not isinstance(result.get("structuredContent", {}), dict):
        result = {**result, "structuredContent": {"result": result["structuredContent"]}}
    meta = result.get("_meta")
    hop = isinstance(meta, dict) and not _STATELESS_META.isdisjoint(meta)
    if not hop and not _STATELESS_FIELDS & result.keys():
        return result
    adapted = {key: value for key, value in result.items() if key not in _STATELESS_FIELDS}
    if hop:
        left = {key: value for key, value in result["_meta"].items() if key not in _STATELESS_META}
        adapted = {**adapted, "_meta": left} if left else {key: value for key, value in adapted.items() if key != "_meta"}
    return adapted
