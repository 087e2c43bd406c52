"""Phi-4-mini and FireFunction 2: a list behind a word.

    functools[{"name": "get_weather", "arguments": {"city": "Paris"}}]

Source: the function-calling page of Phi-4-mini-instruct.
"""

from __future__ import annotations

from callgate.models.dialects.cursor import Cursor
from callgate.models.dialects.marked import Marked
from callgate.models.dialects.names import ToolNames
from callgate.models.dialects.shape import Dialect, Reads

__all__ = ["PHI4"]

_JSON = Marked()


def _read(cursor: Cursor, tools: ToolNames, opener: str) -> Reads:
    cursor.unread("[")
    yield from _JSON(cursor, tools, opener)


PHI4 = Dialect(
    name="phi4",
    families="Phi-4-mini, FireFunction 2",
    example='functools[{"name": "get_weather", "arguments": {"city": "Paris"}}]',
    openers=("functools[", "functools ["),
    read=_read,
)
