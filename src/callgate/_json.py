"""JSON, strictly: what comes in is one object or refused, what goes out is RFC 8259 in valid UTF-8."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

__all__ = ["canonical", "decode", "strict_object"]

_encode = msgspec.json.Encoder(order="deterministic").encode
decode = msgspec.json.Decoder().decode


def canonical(value: object) -> bytes:
    """Encode plain JSON data, Structs included: no white space, keys sorted, the same bytes for the same value."""
    return _encode(value)


def strict_object(text: str | bytes | Mapping[str, object]) -> dict[str, object]:
    """Placeholder until the strict reader lands."""
    return dict(text) if isinstance(text, Mapping) else decode(text or "{}")


def json_text(value: object) -> str:
    return msgspec.json.encode(value).decode()


def to_jsonable(value: object) -> tuple[object, tuple[object, ...]]:
    return decode(_encode(value)), ()
