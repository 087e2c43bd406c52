"""Read what has the form of a whole tool result: a `tool_result` block of Anthropic, and a `CallToolResult` of MCP.

Tools that pass on what an MCP server answered return such values. Their content is the tool's content, and their error is the tool's error.
Objects of MCP's SDKs become the dicts that MCP sends.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

__all__ = ["WrappedResult", "mcp_data", "wrapped_result"]

_MODULES = frozenset({"mcp", "mcp_types", "fastmcp"})
_TO_CONTENT = ("to_image_content", "to_audio_content")
_BLOCK_FIELDS = frozenset({"type", "tool_use_id", "content", "is_error", "cache_control"})
_RESULT_FIELDS = frozenset({"content", "isError", "structuredContent", "resultType", "_meta"})


class WrappedResult(Struct, frozen=True):
    """A value that has the form of a tool result."""

    value: dict[str, Any]
    content: str | list[Any]
    is_error: bool

    @property
    def structured(self) -> object:
        """The structured data of a result of MCP."""
        return self.value.get("structuredContent")

    def with_content(self, content: object) -> dict[str, Any]:
        """Return the value with another content, a list."""
        return self.value if isinstance(self.content, str) else {**self.value, "content": content}


def wrapped_result(value: object) -> WrappedResult | None:
    """Return a value that has the form of a tool result; None for any other."""
    if type(value) is not dict:
        return None
    match value:
        case {"type": "tool_result", "content": str() | list() as content} if value.keys() <= _BLOCK_FIELDS:
            return WrappedResult(value, content, value.get("is_error") is True)
        case {"content": list(content), "isError": bool(is_error)} if value.keys() <= _RESULT_FIELDS and all(map(_is_item, content)):
            return WrappedResult(value, content, is_error)
    return None


def _is_item(item: object) -> bool:
    return type(item) is dict and type(item.get("type")) is str


def mcp_data(value: object) -> object:
    """Return an object of MCP's SDKs, or a list with some, as the data that MCP sends; any other value as it is."""
    if type(value) in (list, tuple) and any(map(_is_object, value)):  # type: ignore[call-overload]
        return [mcp_data(item) for item in value]  # type: ignore[attr-defined]
    if not _is_object(value):
        return value
    content: Any = next((getattr(value, name)() for name in _TO_CONTENT if hasattr(value, name)), value)
    return content.model_dump(mode="json", by_alias=True) if hasattr(content, "model_dump") else content


def _is_object(value: object) -> bool:
    return str(type(value).__module__).partition(".")[0] in _MODULES
