"""Llama 3.2 and 4, ToolACE, Watt: Python calls in a list, without any marker.

    [get_weather(city="Paris")]

Source: Meta's prompt format for Llama 3.2; the model cards of ToolACE-8B and watt-tool-8B.
"""

from __future__ import annotations

from callgate.models.dialects.dialect import Dialect, ParsedCalls
from callgate.models.dialects.known_tools import KnownTools
from callgate.models.dialects.python_calls import read_python_calls
from callgate.models.dialects.schema_matching import matches_schema, peek_known_name
from callgate.models.dialects.text_and_call_parts import FoundCall
from callgate.models.dialects.text_cursor import Incremental, NotACall, TextCursor

__all__ = ["PYTHONIC"]


def _read(cursor: TextCursor, tools: KnownTools, opener: str) -> ParsedCalls:
    """Read a list of calls. All of its items must be calls: a list comprehension is text."""
    cursor.give_back(opener)
    yield from (yield from _read_all(cursor, tools, in_brackets=True))


def _read_all(cursor: TextCursor, tools: KnownTools, *, in_brackets: bool = False) -> Incremental[list[FoundCall]]:
    calls: list[FoundCall] = []
    for found in read_python_calls(cursor, tools, known_only=True, in_brackets=in_brackets):
        if found is None:
            yield
        else:
            calls.append(found)
    return calls


def _read_first(cursor: TextCursor, tools: KnownTools, opener: str) -> ParsedCalls:
    """Read calls without brackets: known tools, matching arguments, and nothing else in the message."""
    yield from cursor.skip_space()
    if not (yield from peek_known_name(cursor, tools)):
        raise NotACall
    calls = yield from _read_all(cursor, tools)
    if (yield from cursor.peek()) not in ("", "<") or not all(matches_schema(call.arguments, tools.schema(call.name)) for call in calls):
        raise NotACall
    yield from calls


PYTHONIC = Dialect(
    name="pythonic",
    families="Llama 3.2 and 4, ToolACE, Watt",
    example='[get_weather(city="Paris")]',
    openers=("[",),
    read=_read,
    line_start_only=True,
    read_hinted=_read,
    read_first=_read_first,
)
