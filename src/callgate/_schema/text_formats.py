"""Check text that stands for a date, a time, a UUID or a number, in schemas made from type annotations.

Such a schema has, for example, `format: date`, and the function gets a `datetime.date`. The validator checks the
format, so that invalid text is reported with its place and together with all other errors. In schemas that a user
wrote, formats are not checked, because JSON Schema defines them as annotations only.
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

from callgate._schema.times_without_seconds import with_seconds

__all__ = ["EXAMPLES", "TextFormats", "text_formats"]

TextFormats = Mapping[str, Callable[[str], bool]]
"""By format name, a function that returns whether a text has this format."""

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
_TIMES = (datetime.time, datetime.datetime)
_NUMBER = re.compile(r"[-+]?[0-9.]+")
"""Matches a number. Pydantic accepts a number as text for a timestamp; here it is refused."""
_UNCHECKED = (
    *("email", "idn-email", "hostname", "idn-hostname", "ipv4", "ipv6", "uri", "uri-reference", "iri", "iri-reference", "uri-template"),
    *("json-pointer", "relative-json-pointer", "regex"),
)


def text_formats() -> TextFormats:
    """Return a check for each format that the validator knows.

    Formats without a Python type in `_TYPES` accept any text.
    """
    return {name: partial(_is_text_of, kind) for name, kind in _TYPES.items()} | dict.fromkeys(_UNCHECKED, _any_text)


def _any_text(text: str) -> bool:
    del text
    return True


def _is_text_of(kind: type, text: str) -> bool:
    try:
        msgspec.convert(with_seconds(text) if kind in _TIMES else text, kind)
    except ValueError:
        return "pydantic" in sys.modules and not _NUMBER.fullmatch(text) and _pydantic_accepts(kind, text)
    return True


def _pydantic_accepts(kind: type, text: str) -> bool:
    """Return whether pydantic can parse the text. It accepts more forms of dates than msgspec."""
    import pydantic

    try:
        pydantic.TypeAdapter(kind).validate_json(msgspec.json.encode(text), strict=True)
    except ValueError:
        return False
    return True
