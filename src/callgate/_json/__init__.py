"""Strict JSON: parse untrusted text as one object or refuse it; write RFC 8259 JSON in valid UTF-8.

`strict_parser` parses untrusted text, `mapping_arguments` copies a mapping, `to_json` converts tool results, `malformed_text` inspects text
that is not JSON. Knows nothing of tools, schemas or calls.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from callgate._json.json_size import exceeds
from callgate._json.malformed_text import ends_inside, utf8
from callgate._json.mapping_arguments import text_if_small
from callgate._json.strict_parser import read_object, strict_object, strict_value
from callgate._json.to_json import small_jsonable, to_jsonable
from callgate._json.unsupported_values import type_name

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
    "text_if_small",
    "to_jsonable",
    "type_name",
    "utf8",
]

canonical: Callable[[object], bytes] = msgspec.json.Encoder(order="deterministic").encode
"""Encode plain JSON data (Structs included) deterministically, without white space and with sorted keys.

Used for hashes.
"""

plain_bytes: Callable[[object], bytes] = msgspec.json.Encoder().encode
"""Encode plain JSON data, keeping the order of keys."""

decode: Callable[[bytes | str], Any] = msgspec.json.Decoder().decode
"""Decode JSON that callgate wrote."""


def json_text(value: object) -> str:
    """Return plain JSON data as text, keeping the order of keys."""
    return plain_bytes(value).decode()
