"""Turn a stored result back into the result or error that an MCP server has sent.

The engine keeps a server's result as a value, as parts of content, and as what neither of them has (`Metadata.server_fields`). Put
together, they are what the server has sent, except the order of the keys of the result and its items, `isError: false`, and what was too
large to be kept. The notes of the engine, which are not part of it, are returned separately. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from callgate._json import decode
from callgate._pipeline.result_notes import content_and_notes
from callgate.calls import ToolResult
from callgate.content_parts import Part, Text
from callgate.mcp._connection import Message
from callgate.mcp._messages import RpcError

__all__ = ["declared_failure", "part_item", "recorded_error", "recorded_success", "text_item"]

_OWN = frozenset({"content", "structuredContent"})
"""The keys of the server's fields that describe other fields."""


def recorded_error(result: ToolResult) -> RpcError | None:
    """Return the error with which a server has answered a call; None if it has not."""
    details = result.structured if isinstance(result.structured, dict) else {}
    error = _fields(result).get("error")
    if result.status != "error" or "jsonrpc_code" not in details or not isinstance(error, dict):
        return None
    return RpcError.received({"code": details["jsonrpc_code"], "message": "", **error})


def declared_failure(result: ToolResult) -> Message | None:
    """Return the result by which a server has said that its tool has failed; None if no server has."""
    fields = _fields(result)
    extras = fields.get("content")
    if result.failure_class != "tool_declared" or not isinstance(extras, list):
        return None
    parts = [text_item(result.error or ""), *(part_item(part) for part in result.content if not isinstance(part, Text))]
    return {
        "content": _with_extras(parts, extras),
        **_structured_content(result.structured, fields),
        "isError": True,
        **_unknown_fields(fields),
    }


def recorded_success(result: ToolResult, whole: bytes | None) -> Message:
    """Return the result of a call that has succeeded, without the engine's notes.

    Args:
        whole: The whole content, if `result` has only a part of it and the rest is kept.
    """
    fields, value = _fields(result), result.structured
    parts, _notes = content_and_notes(result)
    content = [part_item(part) for part in parts]
    if whole is not None:
        content = [text_item(whole.decode("utf-8", "replace")), *(item for item in content if item["type"] != "text")]
    extras = fields.get("content")
    if isinstance(extras, list) and len(content) >= len(extras):
        content = _with_extras(content, extras)
    if value is None and whole is not None and result.metadata.mime == "application/json":
        value = decode(whole)
    sent: Message = {} if extras is None and "content" in fields else {"content": content}
    return {**sent, **_structured_content(value, fields), **_unknown_fields(fields)}


def _with_extras(items: Sequence[Message], extras: Sequence[Message | None]) -> list[Message]:
    """Return the items that a server has sent.

    Args:
        extras: What each of them has beyond its part: the whole item, if it has a type.
    """
    padded = [*items, *({} for _ in extras[len(items) :])]
    return [(extra or {}) if extra and "type" in extra else {**item, **(extra or {})} for item, extra in zip(padded, extras, strict=False)]


def _structured_content(value: object, fields: Mapping[str, Any]) -> Message:
    return {"structuredContent": value} if isinstance(value, dict) or "structuredContent" in fields else {}


def _unknown_fields(fields: Mapping[str, Any]) -> Message:
    return {key: value for key, value in fields.items() if key not in _OWN}


def part_item(part: Part) -> Message:
    """Return a part as an item of a result's content."""
    item: Message = msgspec.to_builtins(part)
    return {key: value for key, value in item.items() if value != "" or key == "text"}


def text_item(text: str) -> Message:
    return {"type": "text", "text": text}


def _fields(result: ToolResult) -> Mapping[str, Any]:
    return result.metadata.server_fields or {}
