"""Replace images that a provider does not take by texts that say so.

Providers document the types, sizes and dimensions that they take, and refuse the whole request for any other image, and all later requests
of the conversation with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from callgate.content_parts import Image, Part, Text
from callgate.messages import Message, ToolMessage, UserMessage
from callgate.models.wire.image_dimensions import image_dimensions

__all__ = ["GEMINI_IMAGES", "INTERACTION_IMAGES", "USUAL_IMAGES", "with_accepted_images"]

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
INTERACTION_IMAGES: Mapping[str, str] = {**GEMINI_IMAGES, "image/gif": "GIF", "image/bmp": "BMP", "image/tiff": "TIFF"}
"""The images that Gemini's interactions take."""
_MOST_CHARS = 5_242_880
"""The largest Base64 of an image that Anthropic and Bedrock take: 3.75 MiB of bytes."""
_MOST_PIXELS = 8_000
"""The longest side of an image that they take."""
_OTHER_NAMES = {"image/jpg": "image/jpeg", "image/pjpeg": "image/jpeg", "image/x-png": "image/png"}


def with_accepted_images(
    messages: Iterable[Message], accepted: Mapping[str, str] = USUAL_IMAGES, *, bounded: bool = False
) -> list[Message]:
    """Return the conversation with a text in place of each image that the provider would refuse.

    Args:
        bounded: Whether the provider refuses large images, as Anthropic and Bedrock do.
    """
    return [_replace_images(message, accepted, bounded=bounded) for message in messages]


def _replace_images(message: Message, accepted: Mapping[str, str], *, bounded: bool) -> Message:
    if not isinstance(message, (UserMessage, ToolMessage)) or isinstance(message.content, str):
        return message
    if not any(isinstance(part, Image) for part in message.content):
        return message
    parts = [_as_accepted(part, accepted, bounded=bounded) if isinstance(part, Image) else part for part in message.content]
    return replace(message, content=tuple(parts))


def _as_accepted(image: Image, accepted: Mapping[str, str], *, bounded: bool) -> Part:
    kind = image.mime_type.partition(";")[0].strip().lower()
    kind = _OTHER_NAMES.get(kind, kind)
    if kind in accepted:
        return (_too_large(image) if bounded else None) or replace(image, mime_type=kind)
    size_bytes = len(image.data) * 3 // 4 - image.data[-2:].count("=")
    *names, last = accepted.values()
    return Text(
        text=f"[An image of type {image.mime_type[:80]} with {size_bytes} bytes was left out: the provider takes images as"
        f" {', '.join(names)} or {last} only.]"
    )


def _too_large(image: Image) -> Text | None:
    """Return what is said in place of an image that is too large; None if it is not."""
    width, height = image_dimensions(image.data) or (0, 0)
    if max(width, height) > _MOST_PIXELS:
        what, most = f"{width} x {height} pixels", f"{_MOST_PIXELS} pixels on each side"
    elif len(image.data) > _MOST_CHARS:
        what, most = f"{len(image.data) * 3 // 4} bytes", f"{_MOST_CHARS * 3 // 4} bytes"
    else:
        return None
    return Text(text=f"[An image with {what} was left out: the provider takes at most {most}. Ask for a smaller one, or for a part of it.]")
