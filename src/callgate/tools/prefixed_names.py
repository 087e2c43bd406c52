"""The name of a tool with the name of its server before it, within the length that a name may have."""

from __future__ import annotations

import hashlib

__all__ = ["MAX_NAME_CHARS", "prefixed_name"]

MAX_NAME_CHARS = 128
"""The longest name of a tool."""
_DIGEST_CHARS = 12


def prefixed_name(server: str, name: str) -> str:
    """Return `SERVER.NAME`, whose end is replaced by a digest of the whole if it would be too long."""
    whole = f"{server}.{name}"
    if len(whole) <= MAX_NAME_CHARS or len(name) > MAX_NAME_CHARS:
        return whole
    digest = hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST_CHARS]
    return f"{whole[: MAX_NAME_CHARS - _DIGEST_CHARS - 1]}_{digest}"
