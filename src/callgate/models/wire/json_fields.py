"""Take fields out of JSON that may be anything: what is missing or of another kind counts as nothing.

Every API's room reads through this; only that it is JSON is sure. Knows no provider.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import msgspec

from callgate._json import decode, json_text

__all__ = ["as_arguments", "as_object", "as_objects", "as_text", "as_token_count", "parse_json_or_text"]


def as_text(value: object) -> str:
    """A string; numbers and the like as text, null as nothing."""
    return value if isinstance(value, str) else "" if value is None else str(value)


def as_object(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def as_objects(value: object) -> Sequence[Mapping[str, object]]:
    """Those of a list's items that are objects; an object by itself is a list of one."""
    if isinstance(value, dict):
        return (value,)
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else ()


def as_arguments(value: object) -> str:
    """A call's arguments as JSON text, whether they came as text, as an object, or not at all."""
    if isinstance(value, str):
        return value
    try:
        return "" if value is None else json_text(value)
    except UnicodeEncodeError:  # half a character: escaped, so that the parse stage can tell of it
        return json.dumps(value)


def as_token_count(value: object) -> int:
    """A number of tokens; anything odd is 0."""
    return int(value) if isinstance(value, (int, float)) and 0 < value < 1e15 else 0


def parse_json_or_text(text: str) -> object:
    """The JSON value that `text` is, or the text."""
    try:
        return decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return text
