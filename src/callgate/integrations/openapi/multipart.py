"""Write a body of the media type `multipart/form-data`. Pure.

The boundary is a hash of the parts, so that every attempt of a call sends the same bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from msgspec import Struct

__all__ = ["Part", "write_multipart"]


class Part(Struct, frozen=True, kw_only=True):
    """A field or a file of a form."""

    name: str
    content: bytes
    media_type: str = ""
    """Empty for a plain text field."""
    is_file: bool = False


def write_multipart(parts: Sequence[Part]) -> tuple[str, bytes]:
    """Return the boundary and the body."""
    written = [_head(part) + part.content for part in parts]
    boundary = hashlib.sha256(b"\0".join(written)).hexdigest()
    between = f"--{boundary}".encode()
    return boundary, b"".join(between + b"\r\n" + one + b"\r\n" for one in written) + between + b"--\r\n"


def _head(part: Part) -> bytes:
    name = _escape(part.name)
    lines = [f'Content-Disposition: form-data; name="{name}"' + (f'; filename="{name}"' if part.is_file else "")]
    if part.media_type:
        lines.append(f"Content-Type: {part.media_type}")
    return "\r\n".join([*lines, "", ""]).encode()


def _escape(name: str) -> str:
    """Return a name as HTML's forms write it, so that it cannot end its header."""
    return name.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")
