"""Recognise the content blocks of providers' APIs and of MCP in what a tool returned, as tools that were written for an SDK do.

A list counts only if each item is a block and at least one is an image, audio or a file with its bytes, which no model reads as text. Pure.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from callgate.content_parts import Audio, Image, Resource, Text

__all__ = ["may_be_blocks", "parts_in_blocks"]

_TEXT_TYPES = ("text", "input_text")
_TYPES = frozenset({*_TEXT_TYPES, "image", "audio", "document", "input_file", "input_image", "image_url"})
_MOST_BLOCKS = 1_000


def may_be_blocks(value: object) -> bool:
    """Return whether `parts_in_blocks` has to look at a value."""
    first = value[0] if type(value) is list and value else value
    if type(first) is not dict:
        return False
    kind = first.get("type")
    return type(kind) is str and kind in _TYPES


def parts_in_blocks(value: object) -> list[Text | Image | Audio | Resource] | None:
    """Return the parts of a block or of a list of blocks with an image, audio or a file among them; None if the value is anything else."""
    blocks = [value] if type(value) is dict else value
    if not isinstance(blocks, (list, tuple)) or not 0 < len(blocks) <= _MOST_BLOCKS:
        return None
    found: list[Text | Image | Audio | Resource] = []
    for block in blocks:
        part = _as_part(block) if type(block) is dict else None
        if part is None:
            return None
        found.append(part)
    return found if any(not isinstance(part, Text) for part in found) else None


def _as_part(block: dict[str, Any]) -> Text | Image | Audio | Resource | None:
    match block:
        case {"type": kind, "text": str(text)} if kind in _TEXT_TYPES:
            return Text(text=text)
        case {"type": "image", "source": {"type": "base64", "media_type": str(mime), "data": str(data)}}:  # Anthropic
            return Image(data=data, mime_type=mime)
        case {"type": "image", "data": str(data), "mimeType": str(mime)}:  # MCP
            return Image(data=data, mime_type=mime)
        case {"type": "audio", "data": str(data), "mimeType": str(mime)}:
            return Audio(data=data, mime_type=mime)
        case {"type": "input_image", "image_url": str(url)} | {"type": "image_url", "image_url": {"url": str(url)}}:  # OpenAI
            return _from_data_url(url)
        case {"type": "document" | "input_file"}:
            return _as_file(block)
    return None


def _as_file(block: dict[str, Any]) -> Resource | None:
    match block:
        case {"type": "document", "source": {"type": "base64", "media_type": str(mime), "data": str(data)}}:  # Anthropic
            name = block.get("title") or "document"
        case {"type": "input_file", "file_data": str(url)} if url.startswith("data:") and ";base64," in url:  # OpenAI
            mime, _, data = url.removeprefix("data:").partition(";base64,")
            name = block.get("filename") or "file"
        case _:
            return None
    return Resource(resource={"uri": f"file:///{quote(str(name))}", "mimeType": mime, "blob": data})


def _from_data_url(url: str) -> Image | None:
    head, comma, data = url.partition(",")
    mime, semicolon, rest = head.removeprefix("data:").partition(";")
    is_image = head.startswith("data:image/") and semicolon and rest.endswith("base64")
    return Image(data=data, mime_type=mime) if comma and is_image else None
