"""Llama 3.2 and 4, ToolACE, Watt: Python calls in a list, without any marker.

    [get_weather(city="Paris")]

Source: Meta's prompt format for Llama 3.2; the model cards of ToolACE-8B and watt-tool-8B.
"""

from __future__ import annotations

from callgate.models.dialects.cursor import Cursor, NoCall
from callgate.models.dialects.fit import fits, known_name
from callgate.models.dialects.names import ToolNames
from callgate.models.dialects.parts import Found
from callgate.models.dialects.python_calls import python_calls
from callgate.models.dialects.shape import Dialect, Reads

__all__ = ["PYTHONIC"]


def _read(cursor: Cursor, tools: ToolNames, opener: str) -> Reads:
    cursor.unread(opener)
    yield from python_calls(cursor, tools, known=True, listed=True)


def _read_first(cursor: Cursor, tools: ToolNames, opener: str) -> Reads:
    """Calls without brackets: tools that exist, arguments that fit them, and nothing else in the message."""
    yield from cursor.white()
    if not (yield from known_name(cursor, tools)):
        raise NoCall
    calls: list[Found] = []
    for found in python_calls(cursor, tools, known=True):
        if found is None:
            yield None
        else:
            calls.append(found)
    if (yield from cursor.peek()) not in ("", "<") or not all(fits(call.arguments, tools.schema(call.name)) for call in calls):
        raise NoCall
    yield from calls


PYTHONIC = Dialect(
    name="pythonic",
    families="Llama 3.2 and 4, ToolACE, Watt",
    example='[get_weather(city="Paris")]',
    openers=("[",),
    read=_read,
    bare=True,
    read_hinted=_read,
    read_first=_read_first,
)
