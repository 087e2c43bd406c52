"""Replace images of types that a provider does not take by texts that say so.

Providers document the types that they take, and refuse the whole request for an image of another one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from callgate.content_parts import Image, Part, Text
from callgate.messages import Message, ToolMessage, UserMessage

__all__ = ["GEMINI_IMAGES", "USUAL_IMAGES", "with_accepted_images"]

USUAL_IMAGES: Mapping[str, str] = {"image/png": "PNG", "image/jpeg": "JPEG", "image/gif": "GIF", "image/webp": "WebP"}
"""The images that OpenAI, Anthropic, Cohere and Bedrock take: the name of the format, by media type."""
GEMINI_IMAGES: Mapping[str, str] = {
    "image/png": "PNG",
    "image/jpeg": "JPEG",
    "image/webp": "WebP",
    "image/heic": "HEIC",
    "image/heif": "HEIF",
}
"""The images that Gemini takes."""
_OTHER_NAMES = {"image/jpg": "image/jpeg", "image/pjpeg": "image/jpeg", "image/x-png": "image/png"}


def with_accepted_images(messages: Iterable[Message], accepted: Mapping[str, str] = USUAL_IMAGES) -> list[Message]:
    """Return the conversation with a text in place of each image that the provider would refuse."""
    return [_replace_images(message, accepted) for message in messages]


def _replace_images(message: Message, accepted: Mapping[str, str]) -> Message:
    if not isinstance(message, (UserMessage, ToolMessage)) or isinstance(message.content, str):
        return message
    if all(not isinstance(part, Image) or part.mime_type in accepted for part in message.content):
        return message
    return replace(message, content=tuple([_as_accepted(part, accepted) if isinstance(part, Image) else part for part in message.content]))


def _as_accepted(image: Image, accepted: Mapping[str, str]) -> Part:
    kind = image.mime_type.partition(";")[0].strip().lower()
    kind = _OTHER_NAMES.get(kind, kind)
    if kind in accepted:
        return replace(image, mime_type=kind)
    size_bytes = len(image.data) * 3 // 4 - image.data[-2:].count("=")
    *names, last = accepted.values()
    return Text(
        text=f"[An image of type {image.mime_type[:80]} with {size_bytes} bytes was left out: the provider takes images as"
        f" {', '.join(names)} or {last} only.]"
    )
