"""Check text that stands for a date, a time, a UUID or a number in schemas made from type annotations.

Such a schema says `format: date`, and the function gets a `datetime.date`. Checked by the validator, so that invalid text is reported in
its place, with all other errors. Schemas that a user wrote are not checked so: in JSON Schema, a format is only a comment.
"""

from __future__ import annotations

import datetime
import decimal
import re
import sys
import uuid
from collections.abc import Callable, Mapping
from functools import partial

import msgspec

__all__ = ["EXAMPLES", "TextFormats", "text_formats"]

TextFormats = Mapping[str, Callable[[str], bool]]
"""By the name of a format, whether a text has it."""

EXAMPLES: Mapping[str, str] = {
    "date": "2024-01-31",
    "date-time": "2024-01-31T12:00:00Z",
    "time": "12:00:00",
    "duration": "PT1H30M",
    "uuid": "123e4567-e89b-12d3-a456-426614174000",
    "decimal": "12.50",
}
_TYPES: Mapping[str, type] = {
    "date": datetime.date,
    "date-time": datetime.datetime,
    "time": datetime.time,
    "duration": datetime.timedelta,
    "uuid": uuid.UUID,
    "decimal": decimal.Decimal,
}
_NUMBER = re.compile(r"[-+]?[0-9.]+")
"""Pydantic takes a number as text for a time stamp."""
_UNCHECKED = (
    *("email", "idn-email", "hostname", "idn-hostname", "ipv4", "ipv6", "uri", "uri-reference", "iri", "iri-reference", "uri-template"),
    *("json-pointer", "relative-json-pointer", "regex"),
)


def text_formats() -> TextFormats:
    """Return a check for each format that the validator knows. Those without a type here accept any text."""
    return {name: partial(_is_text_of, kind) for name, kind in _TYPES.items()} | dict.fromkeys(_UNCHECKED, _any_text)


def _any_text(text: str) -> bool:
    del text
    return True


def _is_text_of(kind: type, text: str) -> bool:
    try:
        msgspec.convert(text, kind)
    except ValueError:
        return "pydantic" in sys.modules and not _NUMBER.fullmatch(text) and _pydantic_accepts(kind, text)
    return True


def _pydantic_accepts(kind: type, text: str) -> bool:
    """Return whether pydantic reads the text, which knows more forms of dates than msgspec. Only schemas with pydantic need it."""
    import pydantic

    try:
        pydantic.TypeAdapter(kind).validate_json(msgspec.json.encode(text), strict=True)
    except ValueError:
        return False
    return True
