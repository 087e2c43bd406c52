"""Convert JSON values of any type. Missing values and values of an unexpected type become empty ones.

Decoders read frames through these functions, because a frame is only guaranteed to be valid JSON. Knows no provider.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import msgspec

from callgate._json import decode, json_text

__all__ = ["as_arguments", "as_object", "as_objects", "as_text", "as_token_count", "parse_json_or_text"]


def as_text(value: object) -> str:
    """Return a string as it is, null as an empty string, and any other value as text."""
    return value if isinstance(value, str) else "" if value is None else str(value)


def as_object(value: object) -> Mapping[str, object]:
    """Return an object; an empty one for any other value."""
    return value if isinstance(value, dict) else {}


def as_objects(value: object) -> Sequence[Mapping[str, object]]:
    """Return the objects in a list; a single object counts as a list of one."""
    if isinstance(value, dict):
        return (value,)
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else ()


def as_arguments(value: object) -> str:
    """Return a call's arguments as JSON text, whether they are text, an object, or null."""
    if isinstance(value, str):
        return value
    try:
        return "" if value is None else json_text(value)
    except UnicodeEncodeError:  # a lone surrogate: escaped, so that the parse stage can report it
        return json.dumps(value)


def as_token_count(value: object) -> int:
    """Return a number of tokens; 0 for anything unexpected."""
    return int(value) if isinstance(value, (int, float)) and 0 < value < 1e15 else 0


def parse_json_or_text(text: str) -> object:
    """Return the JSON value of `text`, or the text itself."""
    try:
        return decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return text
