"""JSON, strictly: what comes in is one object or refused, what goes out is RFC 8259 in valid UTF-8.

`strict_parser` reads untrusted text, `to_json` makes JSON data of what tools return, `malformed_text` judges text that is no JSON. Knows
nothing of tools,
schemas or calls.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from callgate._json.malformed_text import ends_inside, utf8
from callgate._json.not_json import type_name
from callgate._json.size import exceeds
from callgate._json.strict_parser import read_object, strict_object, strict_value
from callgate._json.to_json import small_jsonable, to_jsonable

__all__ = [
    "canonical",
    "decode",
    "ends_inside",
    "exceeds",
    "json_text",
    "plain_bytes",
    "read_object",
    "small_jsonable",
    "strict_object",
    "strict_value",
    "to_jsonable",
    "type_name",
    "utf8",
]

canonical: Callable[[object], bytes] = msgspec.json.Encoder(order="deterministic").encode
"""Encode plain JSON data, Structs included: no white space, keys sorted, the same bytes for the same value."""

plain_bytes: Callable[[object], bytes] = msgspec.json.Encoder().encode
"""The same in the value's own order."""

decode: Callable[[bytes | str], Any] = msgspec.json.Decoder().decode
"""Read JSON that callgate wrote."""


def json_text(value: object) -> str:
    """Plain JSON data as text, in its own order."""
    return plain_bytes(value).decode()
