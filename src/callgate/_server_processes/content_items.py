"""Read the items of a result's content, in the form that MCP gives them, as parts. Untrusted: what is not valid is kept as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from callgate._json import json_text
from callgate._option_checks import without_check
from callgate.content_parts import Audio, Image, Link, Part, Resource, Text, is_base64

__all__ = ["content_part", "is_content"]

_text_part = without_check(Text, Text(text=""))


def is_content(value: object) -> bool:
    """Return whether a value is a list of items with types."""
    return isinstance(value, list) and all(isinstance(item, dict) and isinstance(item.get("type"), str) for item in value)


def content_part(item: Mapping[str, Any], changes: list[str]) -> Part:
    """Return an item of a result's content as a part. Adds a sentence to `changes` if it was not read as its type."""
    match item:
        case {"type": "text", "text": str(text)}:
            return _text_part(text=text)
        case {"type": "image", "data": str(data), "mimeType": str(mime)} if is_base64(data):
            return Image(data=data, mime_type=mime)
        case {"type": "audio", "data": str(data), "mimeType": str(mime)} if is_base64(data):
            return Audio(data=data, mime_type=mime)
        case {"type": "resource_link", "uri": str(uri)}:
            return Link(uri=uri, name=_text(item.get("name")), mime_type=_text(item.get("mimeType")))
        case {"type": "resource", "resource": dict(resource)} if isinstance(resource.get("uri"), str):
            return Resource(resource=resource)
    changes.append(f"content of the type {item['type']!r:.60} was kept as its JSON")
    return Text(text=json_text(item))


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
