"""Read the result of a tool call as an `Execution`: its value, its content, or what the server says has failed.

Pure. What a server sends is untrusted: a result without the form that MCP gives it is a protocol error, and never a success. Content of a
type that is not known is kept as its JSON.

Sources: MCP 2025-11-25 and 2026-07-28, Tools: "Tool Result", "Error Handling".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from callgate._json import json_text, plain_bytes
from callgate._runners.returned_content import part_data
from callgate._server_processes.content_items import content_part, is_content
from callgate.content_parts import Part, Text
from callgate.mcp._connection import Message, ProtocolError
from callgate.mcp._messages import INVALID_PARAMS, METHOD_NOT_FOUND, RpcError
from callgate.protocols import Execution

__all__ = ["execution_of_error", "execution_of_result"]

_DATA_BYTES = 2_048
_SHORT_CHARS = 1_000
_NOTHING_HAPPENED = frozenset({METHOD_NOT_FOUND, INVALID_PARAMS, -32020, -32021, -32022})
"""Errors with which a server refuses a request before it does anything."""

_READ = frozenset({"content", "structuredContent", "isError", "resultType"})
"""The fields of a result that become its value, its parts and its status."""
_MEDIA: Mapping[str, type] = {"data": str, "mimeType": str}
_KEPT_BY_PARTS: Mapping[str, Mapping[str, type]] = {
    "text": {"text": str},
    "image": _MEDIA,
    "audio": _MEDIA,
    "resource_link": {"uri": str, "name": str, "mimeType": str},
    "resource": {"resource": dict},
}
"""The fields that a part keeps, by the type of the item."""


def execution_of_result(server: str, result: Message) -> Execution:
    """Return the execution of a call that the server has answered with a result.

    Raises:
        ProtocolError: It is not a result of a tool.
    """
    content, is_error = result.get("content", []), result.get("isError", False)
    if not is_content(content):
        raise ProtocolError(f"The MCP server '{server}' sent a result whose content is not a list of parts.")
    if not isinstance(is_error, bool):
        raise ProtocolError(f"The MCP server '{server}' sent a result whose isError is {is_error!r:.40}; it must be true or false.")
    changes: list[str] = []
    parts = tuple([content_part(item, changes) for item in content])
    if is_error:
        return _declared_failure(result, parts, tuple(changes))
    value, shown = _value(result, parts)
    fields = _other_fields(result, parts)
    return Execution(status="returned", value=value, content=shown, read=True, changes=tuple(changes), server_fields=fields)


def execution_of_error(server: str, error: RpcError) -> Execution:
    """Return the execution of a call that the server has answered with an error."""
    said = f"The MCP server '{server}' answered with an error: {error.message or 'without a text'} ({error.code})"
    fields: dict[str, object] = {"error": error.body}
    details: dict[str, object] = {"jsonrpc_code": error.code}
    if error.data is not None:
        data = plain_bytes(error.data)
        details["jsonrpc_data"] = error.data if len(data) <= _DATA_BYTES else f"{data[:_DATA_BYTES].decode('utf-8', 'ignore')} [cut]"
    if error.code in _NOTHING_HAPPENED:
        return Execution(status="raised", error_type="McpError", error=said, evidence="not_sent", details=details, server_fields=fields)
    return Execution(status="returned", failure=said, details=details, read=True, server_fields=fields)


def _declared_failure(result: Message, parts: Sequence[Part], changes: tuple[str, ...]) -> Execution:
    """Return the execution of a call whose tool says that it has failed."""
    text = "\n".join(part.text for part in parts if isinstance(part, Text)).strip()
    value = result.get("structuredContent")
    if value is None and len(text) > _SHORT_CHARS:
        value = text  # the error is cut, and the whole is kept as the value
    failure = text or "The tool reported a failure without a text"
    others = tuple(part for part in parts if not isinstance(part, Text))
    fields = (_other_fields(result, parts) or {}) | {"content": _failed_content(result.get("content", []), parts)}
    return Execution(status="returned", value=value, content=others, failure=failure, read=True, changes=changes, server_fields=fields)


def _failed_content(items: Sequence[Message], parts: Sequence[Part]) -> list[Message | None]:
    """Return what the items of a failure have beyond the text of its error and the other parts; whole items, unless the error is the text
    of the first one, and there is no other text."""
    texts = [part.text for part in parts if isinstance(part, Text)]
    is_first = len(texts) == 1 and isinstance(parts[0], Text) and 0 < len(texts[0].strip()) == len(texts[0]) <= _SHORT_CHARS
    return [_other_item_fields(item, part) if is_first else item for item, part in zip(items, parts, strict=True)]


def _value(result: Message, parts: tuple[Part, ...]) -> tuple[object, tuple[Part, ...]]:
    """Return the value of a result, and the parts that the model is shown instead of its text."""
    if "structuredContent" in result:
        value = result["structuredContent"]
        return value, () if _is_same(parts, value) else parts
    if len(parts) == 1 and isinstance(parts[0], Text):
        return parts[0].text, ()
    return [part_data(part) for part in parts], parts


def _is_same(parts: tuple[Part, ...], value: object) -> bool:
    """Return whether the content is only the text of the structured value, as MCP asks of servers."""
    if not parts:
        return True
    return len(parts) == 1 and isinstance(parts[0], Text) and parts[0].text == json_text(value)


def _other_fields(result: Message, parts: Sequence[Part]) -> dict[str, object] | None:
    """Return what a result has beyond its value and its parts; None if that is nothing."""
    fields = {key: value for key, value in result.items() if key not in _READ}
    if "structuredContent" in result and not isinstance(result["structuredContent"], dict):
        fields["structuredContent"] = None
        if "resultType" in result:
            fields["resultType"] = result["resultType"]  # of the era in which structured content may be of any type
    items = [_other_item_fields(item, part) for item, part in zip(result.get("content", []), parts, strict=True)]
    if any(items) or not items:
        fields["content"] = items if "content" in result else None
    return fields or None


def _other_item_fields(item: Message, part: Part) -> Message | None:
    """Return what an item of the content has that its part has not: the whole item if it was not read as its type."""
    kept = _KEPT_BY_PARTS.get(item["type"])
    if kept is None or (isinstance(part, Text) and item["type"] != "text"):
        return item
    return {key: value for key, value in item.items() if key != "type" and not isinstance(value, kept.get(key, ()))} or None
