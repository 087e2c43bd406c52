"""Recognise the content blocks of providers' APIs and of MCP in what a tool returned, as tools that were written for an SDK do.

A block with the bytes of an image, audio or a file, which no model reads as text, counts anywhere in the data, and so does a text that is
nothing but their data URL. A list counts as content if each item is a block or a text, and if it has such a block or is all plain text
blocks. Anything ambiguous stays data: a block whose bytes are not Base64, what a tool has added to a block, and a block of any other kind.
Pure.
"""

from __future__ import annotations

import base64
from typing import Any
from urllib.parse import quote

from callgate._media_types import SURE_IMAGES, media_type_of_base64
from callgate.content_parts import Audio, Image, Link, Part, Resource, Text, data_of, is_base64

__all__ = ["DATA_URL", "MOST_ITEMS", "has_own_fields", "may_be_blocks", "media_part", "parts_in_blocks", "without_bytes"]

DATA_URL = "data:"
"""What a data URL begins with."""
MOST_ITEMS = 10_000
"""The number of items in which parts are searched, so that large data costs little."""
_TEXT_TYPES = ("text", "input_text")
_MEDIA_TYPES = ("image", "audio", "document", "file", "resource", "input_image", "image_url", "input_audio", "input_file")
_TYPES = frozenset({*_TEXT_TYPES, *_MEDIA_TYPES, "resource_link", "tool_result"})
_UNTYPED = ("inline_data", "inlineData", "isError")
"""Fields of dicts that have no `type`: parts of Gemini, and results of MCP."""
_TEXT_FIELDS = frozenset({"type", "text", "annotations", "cache_control", "citations", "_meta"})
"""The fields of a text block of an API. A dict with others is data of the tool's own, unless media are beside it."""
_MEDIA_FIELDS = frozenset(
    {
        *("type", "source", "data", "base64", "mimeType", "mime_type", "resource"),
        *("inline_data", "inlineData", "image", "document", "image_url", "detail", "input_audio", "file", "file_data"),
        *("annotations", "cache_control", "citations", "_meta"),
    }
)
"""The fields of other blocks that become parts. A dict with more of them, such as a caption, has data of the tool's own beside the part."""
_NAME_FIELDS = {"document": ("title",), "input_file": ("filename",), "resource_link": ("uri", "name")}
"""The further fields that are in the part, by type."""
_MOST_BLOCKS = 1_000
_MOST_LEVELS = 4
_AUDIO_TYPES = {"mp3": "audio/mpeg", "wav": "audio/wav"}


def may_be_blocks(value: object) -> bool:
    """Return whether a text, list or dict may have what `media_part` and `parts_in_blocks` read. Large values are not searched."""
    left = MOST_ITEMS
    waiting: list[Any] = [value]
    while waiting:
        item = waiting.pop()
        kind = type(item)
        if kind is str:
            if item.startswith(DATA_URL):
                return True
        elif kind is list or kind is dict or kind is tuple:
            left -= len(item)
            if left < 0:
                return True
            if kind is dict and (_is_known(item.get("type")) or not item.keys().isdisjoint(_UNTYPED)):
                return True
            waiting.extend(item.values() if kind is dict else item)
    return False


def _is_known(kind: object) -> bool:
    return type(kind) is str and kind in _TYPES


def parts_in_blocks(value: object) -> list[Part | str | dict[str, Any]] | None:
    """Return a block, or each item of a list of blocks, as a part; None if the value is anything else.

    A text, and a block of a kind that is no part, are returned as they are.
    """
    blocks = [value] if type(value) is dict else value
    if not isinstance(blocks, (list, tuple)) or not 0 < len(blocks) <= _MOST_BLOCKS:
        return None
    if not all(type(block) is str or (type(block) is dict and (type(block.get("type")) is str or media_part(block))) for block in blocks):
        return None
    found = [block if type(block) is str else _as_part(block) or block for block in blocks]
    if any(isinstance(part, (Image, Audio, Resource, Link)) for part in found):
        return found
    plain = all(isinstance(part, Text) and block.keys() <= _TEXT_FIELDS for part, block in zip(found, blocks, strict=True))
    return found if plain else None


def has_own_fields(block: dict[str, Any]) -> bool:
    """Return whether a block with a part has data of the tool's own beside it."""
    in_part = _NAME_FIELDS.get(str(block.get("type")), ())
    return any(value is not None and key not in _MEDIA_FIELDS and key not in in_part for key, value in block.items())


def _as_part(block: dict[str, Any]) -> Part | None:
    match block:
        case {"type": kind, "text": str(text)} if kind in _TEXT_TYPES:
            return Text(text=text)
        case _ if has_own_fields(block):
            return None
        case {"type": "resource_link", "uri": str(uri), "name": str(name)}:  # MCP
            return Link(uri=uri, name=name, mime_type=str(block.get("mimeType") or ""))
        case {"type": "resource", "resource": {"uri": str(), "text": str()} as resource}:
            return Resource(resource=resource)
        case {"type": "document", "source": {"type": "text", "media_type": str(mime), "data": str(text)}}:  # Anthropic
            return Resource(resource={"uri": _uri(block.get("title") or "document"), "mimeType": mime, "text": text})
    return media_part(block)


def media_part(value: object) -> Image | Audio | Resource | None:
    """Return the part of a block, or of a data URL, that has the bytes of an image, audio or a file; None if it is anything else."""
    if type(value) is str:
        return _from_url(value) if value.startswith(DATA_URL) else None
    return _from_block(value) if type(value) is dict else None


def _from_block(block: dict[str, Any]) -> Image | Audio | Resource | None:
    match block:
        case {"type": "image" | "document", "source": {"type": "base64", "media_type": str(mime), "data": str(data)}}:  # Anthropic
            return _media(mime, data, block.get("title") or "document")
        case {"type": "image" | "audio", "data": str(data), "mimeType": str(mime)}:  # MCP
            return _media(mime, data)
        case {"type": "image" | "audio" | "file" | "document", "data": str(data), "mime_type": str(mime)}:  # Gemini, LangChain
            return _media(mime, data)
        case {"type": "image" | "audio" | "file", "base64": str(data), "mime_type": str(mime)}:  # LangChain
            return _media(mime, data)
        case {"type": "resource", "resource": {"uri": str(), "blob": str(data)} as resource} if is_base64(data):  # MCP
            return Resource(resource=resource)
        case {"inline_data": {"mime_type": str(mime), "data": data}} | {"inlineData": {"mimeType": str(mime), "data": data}}:  # Gemini
            return _media(mime, data)
        case {"image": {"format": str(kind), "source": {"bytes": bytes(data)}}}:  # Bedrock
            return _media(f"image/{kind}", data)
        case {"document": {"format": "pdf", "source": {"bytes": bytes(data)}} as document}:
            return _media("application/pdf", data, document.get("name") or "document")
    return _from_openai_block(block)


def _from_openai_block(block: dict[str, Any]) -> Image | Audio | Resource | None:
    match block:
        case {"type": "image_url", "image_url": {"url": str(url)}} | {"type": "input_image" | "image", "image_url": str(url)}:
            return _from_url(url)
        case {"type": "input_audio", "input_audio": {"data": str(data), "format": str(kind)}}:
            return _media(_AUDIO_TYPES.get(kind, f"audio/{kind}"), data)
        case {"type": "file", "file": {"file_data": str(url)} as file}:
            return _from_url(url, file.get("filename") or "file")
        case {"type": "input_file", "file_data": str(url)}:
            return _from_url(url, block.get("filename") or "file")
    return None


def _from_url(url: str, name: str = "") -> Image | Audio | Resource | None:
    """Return the part of a data URL. Without a file's name, the bytes must show what they are."""
    head, comma, data = url.partition(",")
    mime, semicolon, rest = head.removeprefix(DATA_URL).partition(";")
    if not (url.startswith(DATA_URL) and comma and semicolon and rest.endswith("base64")):
        return None
    part = _media(mime, data, name)
    if part is None or name:
        return part
    shown = media_type_of_base64(data)
    is_media = shown.startswith(("image/", "audio/", "application/pdf"))
    return part if is_media and shown.partition("/")[0] == mime.partition("/")[0] else None


def _media(mime: str, data: object, name: object = "file") -> Image | Audio | Resource | None:
    if isinstance(data, (bytes, bytearray)):
        data = base64.b64encode(data).decode()
    if not isinstance(data, str) or not is_base64(data):
        return None
    if mime.startswith("image/"):
        return Image(data=data, mime_type=mime) if mime not in SURE_IMAGES or media_type_of_base64(data).startswith("image/") else None
    if mime.startswith("audio/"):
        return Audio(data=data, mime_type=mime)
    return Resource(resource={"uri": _uri(name or "file"), "mimeType": mime, "blob": data}) if "/" in mime else None


def _uri(name: object) -> str:
    return f"file:///{quote(str(name))}"


def without_bytes(value: object, part: Part, said: str) -> object:
    """Return a block or a data URL with a text in the place of the part's bytes. It keeps the form that its tool may have promised."""
    return _replace_bytes(value, data_of(part), said, 0)


def _replace_bytes(value: object, data: str, said: str, level: int) -> object:
    if isinstance(value, (bytes, bytearray)):
        return said
    if type(value) is str:
        return value.removesuffix(data) + said if data and value.endswith(data) else value
    if type(value) is dict and level < _MOST_LEVELS:
        return {key: _replace_bytes(item, data, said, level + 1) for key, item in value.items()}
    return value
