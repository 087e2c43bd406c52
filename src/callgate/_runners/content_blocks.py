"""Recognise the content blocks of providers' APIs and of MCP in what a tool returned, as tools that were written for an SDK do.

A list counts if each item is a block or a text, and if at least one block is an image, audio or a file with its bytes, which no model reads
as text, or if all are plain text blocks. Pure.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from callgate.content_parts import Audio, Image, Part, Resource, Text

__all__ = ["may_be_blocks", "parts_in_blocks"]

_TEXT_TYPES = ("text", "input_text")
_TYPES = frozenset({*_TEXT_TYPES, "image", "audio", "document", "input_file", "input_image", "image_url"})
_TEXT_FIELDS = frozenset({"type", "text", "annotations", "cache_control", "citations"})
"""The fields of a text block of an API. A dict with others is data of the tool's own, unless media are beside it."""
_MOST_BLOCKS = 1_000


def may_be_blocks(value: object) -> bool:
    """Return whether `parts_in_blocks` has to look at a value."""
    for item in value[:_MOST_BLOCKS] if type(value) is list else (value,):
        if type(item) is dict and "type" in item:
            kind = item["type"]
            if type(kind) is str and kind in _TYPES:
                return True
    return False


def parts_in_blocks(value: object) -> list[Part | str | dict[str, Any]] | None:
    """Return a block, or each item of a list of blocks, as a part; None if the value is anything else.

    A text, and a block of a kind that is no part, are returned as they are.
    """
    blocks = [value] if type(value) is dict else value
    if not isinstance(blocks, (list, tuple)) or not 0 < len(blocks) <= _MOST_BLOCKS:
        return None
    if not all(type(block) is str or (type(block) is dict and type(block.get("type")) is str) for block in blocks):
        return None
    found = [block if type(block) is str else _as_part(block) or block for block in blocks]
    if any(isinstance(part, (Image, Audio, Resource)) for part in found):
        return found
    plain = all(isinstance(part, Text) and block.keys() <= _TEXT_FIELDS for part, block in zip(found, blocks, strict=True))
    return found if plain else None


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
        case {"type": "document", "source": {"type": "base64" | "text" as kind, "media_type": str(mime), "data": str(data)}}:  # Anthropic
            name, field = block.get("title") or "document", "text" if kind == "text" else "blob"
        case {"type": "input_file", "file_data": str(url)} if url.startswith("data:") and ";base64," in url:  # OpenAI
            mime, _, data = url.removeprefix("data:").partition(";base64,")
            name, field = block.get("filename") or "file", "blob"
        case _:
            return None
    return Resource(resource={"uri": f"file:///{quote(str(name))}", "mimeType": mime, field: data})


def _from_data_url(url: str) -> Image | None:
    head, comma, data = url.partition(",")
    mime, semicolon, rest = head.removeprefix("data:").partition(";")
    is_image = head.startswith("data:image/") and semicolon and rest.endswith("base64")
    return Image(data=data, mime_type=mime) if comma and is_image else None
