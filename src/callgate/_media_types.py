"""The media type of bytes: by their first bytes, else by the ending of a file's name. Pure.

A low layer, because values of the interface and readers of files use it. Knows no file and no provider.
"""

from __future__ import annotations

import base64
import codecs
from typing import Final

__all__ = ["BINARY", "SURE_IMAGES", "TEXT", "media_type", "media_type_of_base64"]

TEXT: Final = "text/plain"
BINARY: Final = "application/octet-stream"

SURE_IMAGES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""The types of images that the first bytes show beyond doubt."""
_FIRST_CHARS: Final = 64
"""The length of the Base64 of the bytes that show a type."""
_SIGNATURES: Final = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"BM", "image/bmp"),
    (b"II*\x00", "image/tiff"),
    (b"MM\x00*", "image/tiff"),
    (b"%PDF-", "application/pdf"),
    (b"ID3", "audio/mpeg"),
    (b"\xff\xfb", "audio/mpeg"),
    (b"\xff\xf3", "audio/mpeg"),
    (b"\xff\xf2", "audio/mpeg"),
    (b"\xff\xf1", "audio/aac"),
    (b"\xff\xf9", "audio/aac"),
    (b"fLaC", "audio/flac"),
    (b"OggS", "audio/ogg"),
    (b"PK\x03\x04", "application/zip"),
    (b"\x1f\x8b", "application/gzip"),
)
_RIFF: Final = {b"WEBP": "image/webp", b"WAVE": "audio/wav", b"AVI ": "video/x-msvideo"}
_BRANDS: Final = {b"M4A ": "audio/mp4", b"M4B ": "audio/mp4", b"avif": "image/avif", b"heic": "image/heic", b"mif1": "image/heif"}
_SUFFIXES: Final = {
    "csv": "text/csv",
    "docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    "htm": "text/html",
    "html": "text/html",
    "json": "application/json",
    "md": "text/markdown",
    "mp3": "audio/mpeg",
    "mp4": "video/mp4",
    "pptx": "application/vnd.openxmlformats-officedocument.presentationml.presentation",
    "svg": "image/svg+xml",
    "webm": "video/webm",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    "xml": "application/xml",
}


def media_type(data: bytes, name: str = "") -> str:
    """Return the media type of a file's content.

    Text is `text/plain`, unless the name says which text it is; bytes that are neither known nor text are `application/octet-stream`.

    Args:
        name: The file's name, whose ending decides where the content does not. Bytes that are not text never get a text type.
    """
    named = _SUFFIXES.get(name.rpartition(".")[2].lower(), "") if "." in name else ""
    found = _by_signature(data)
    if found == "application/zip" and named.startswith("application/vnd."):
        return named
    if found and not (found == "image/bmp" and _is_text(data)):
        return found
    if _is_text(data):
        return named if named.startswith(("text/", "image/svg", "application/json", "application/xml")) else TEXT
    return named if named.startswith(("audio/", "video/")) else BINARY


def media_type_of_base64(data: str) -> str:
    """Return the media type that the first bytes show.

    Args:
        data: Valid Base64.
    """
    return media_type(base64.b64decode(data[:_FIRST_CHARS]))


def _by_signature(data: bytes) -> str:
    if data[4:8] == b"ftyp":
        return _BRANDS.get(data[8:12], "video/mp4")
    if data[:4] == b"RIFF":
        return _RIFF.get(data[8:12], "")
    if data[:4] == b"\x1a\x45\xdf\xa3":
        return "video/webm"
    return next((kind for signature, kind in _SIGNATURES if data.startswith(signature)), "")


def _is_text(data: bytes) -> bool:
    if b"\0" in data:
        return False
    try:
        codecs.utf_8_decode(data, "strict", True)
    except UnicodeDecodeError:
        return False
    return True
