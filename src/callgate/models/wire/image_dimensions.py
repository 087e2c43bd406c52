"""Find the dimensions of an image in its first bytes: PNG, GIF, JPEG and WebP. Pure."""

from __future__ import annotations

import base64

__all__ = ["image_dimensions"]

_FIRST_CHARS = 349_528
"""The length of the Base64 in which the dimensions are searched: a JPEG may have a profile or a preview before them."""
_Size = tuple[int, int]


def image_dimensions(data: str) -> _Size | None:
    """Return width and height of an image in pixels; None if they are not found.

    Args:
        data: Base64, as the host or a tool has given it.
    """
    first = _decode(data[:64])
    if first.startswith(b"\x89PNG\r\n\x1a\n"):
        return _integers(first, 16, 4)
    if first.startswith((b"GIF87a", b"GIF89a")):
        return _integers(first, 6, 2, "little")
    if first.startswith(b"RIFF") and first[8:12] == b"WEBP":
        return _of_webp(first)
    return _of_jpeg(_decode(data[:_FIRST_CHARS])) if first.startswith(b"\xff\xd8") else None


def _decode(data: str) -> bytes:
    """Return the bytes of Base64; none if it is not valid, such as without padding, which the provider judges."""
    try:
        return base64.b64decode(data)
    except ValueError:
        return b""


def _integers(data: bytes, start: int, size: int, order: str = "big") -> _Size | None:
    """Return two integers of `size` bytes."""
    if len(data) < start + 2 * size:
        return None
    first, second = data[start : start + size], data[start + size : start + 2 * size]
    return int.from_bytes(first, order), int.from_bytes(second, order)  # type: ignore[arg-type]


def _of_webp(data: bytes) -> _Size | None:
    kind = data[12:16]
    if kind == b"VP8L":
        bits = int.from_bytes(data[21:25], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    found = _integers(data, 24, 3, "little") if kind == b"VP8X" else _integers(data, 26, 2, "little")
    if found is None or kind == b"VP8X":
        return found and (found[0] + 1, found[1] + 1)
    return found[0] & 0x3FFF, found[1] & 0x3FFF


def _of_jpeg(data: bytes) -> _Size | None:
    """Return the dimensions in the first frame header; all segments before it have a length."""
    at = 2
    while at + 4 <= len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            found = _integers(data, at + 5, 2)
            return found and (found[1], found[0])
        at += 1 if marker == 0xFF else 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return None
