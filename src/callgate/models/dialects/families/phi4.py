"""Phi-4-mini and FireFunction 2: a list after the word `functools`.

    functools[{"name": "get_weather", "arguments": {"city": "Paris"}}]

Source: the function-calling page of Phi-4-mini-instruct.
"""

from __future__ import annotations

from callgate.models.dialects.dialect import Dialect, ParsedCalls
from callgate.models.dialects.known_tools import KnownTools
from callgate.models.dialects.marked_json import MarkedJson
from callgate.models.dialects.text_cursor import TextCursor

__all__ = ["PHI4"]

_read_json = MarkedJson()


def _read(cursor: TextCursor, tools: KnownTools, opener: str) -> ParsedCalls:
    cursor.give_back("[")
    yield from _read_json(cursor, tools, opener)


PHI4 = Dialect(
    name="phi4",
    families="Phi-4-mini, FireFunction 2",
    example='functools[{"name": "get_weather", "arguments": {"city": "Paris"}}]',
    openers=("functools[", "functools ["),
    read=_read,
)
