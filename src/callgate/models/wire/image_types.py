"""Replace images of types that a provider does not take by texts that say so.

OpenAI, Anthropic, Cohere and Bedrock document the same four types, and refuse the whole request for an image of another one.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from callgate.content_parts import Image, Part, Text
from callgate.messages import Message, ToolMessage, UserMessage

__all__ = ["with_accepted_images"]

_ACCEPTED = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_OTHER_NAMES = {"image/jpg": "image/jpeg", "image/pjpeg": "image/jpeg", "image/x-png": "image/png"}


def with_accepted_images(messages: Iterable[Message]) -> list[Message]:
    """Return the conversation with a text in place of each image that the provider would refuse."""
    return [_checked(message) for message in messages]


def _checked(message: Message) -> Message:
    if not isinstance(message, (UserMessage, ToolMessage)) or isinstance(message.content, str):
        return message
    if all(not isinstance(part, Image) or part.mime_type in _ACCEPTED for part in message.content):
        return message
    return replace(message, content=tuple([_accepted(part) if isinstance(part, Image) else part for part in message.content]))


def _accepted(image: Image) -> Part:
    kind = image.mime_type.partition(";")[0].strip().lower()
    kind = _OTHER_NAMES.get(kind, kind)
    if kind in _ACCEPTED:
        return replace(image, mime_type=kind)
    size_bytes = len(image.data) * 3 // 4 - image.data[-2:].count("=")
    return Text(
        text=f"[An image of type {image.mime_type[:80]} with {size_bytes} bytes was left out: the provider takes images as PNG, JPEG, GIF"
        " or WebP only.]"
    )
