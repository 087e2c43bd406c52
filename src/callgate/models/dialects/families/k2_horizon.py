"""K2 Horizon: alternating keys and values, with or without the type of each value, or JSON.

    <ifm|tool_calls><ifm|tool_call>get_weather<ifm|arg_key>city</ifm|arg_key><ifm|arg_value>Paris</ifm|arg_value></ifm|tool_call></ifm|tool_calls>

Source: vLLM's tool parser for K2 Horizon.
"""

from __future__ import annotations

from callgate.models.dialects.dialect import Dialect, ParsedCalls
from callgate.models.dialects.families.glm import KeyValueReader
from callgate.models.dialects.known_tools import KnownTools
from callgate.models.dialects.marked_json import MarkedJson
from callgate.models.dialects.text_cursor import NotACall, TextCursor

__all__ = ["K2_HORIZON"]

_SECTION, _END_SECTION = "<ifm|tool_calls>", "</ifm|tool_calls>"
_CALL, _END_CALL = "<ifm|tool_call>", "</ifm|tool_call>"
_read_json, _read_pairs = MarkedJson(_END_CALL), KeyValueReader(_END_CALL, prefix="ifm|", is_wrapped=True)


def _read(cursor: TextCursor, tools: KnownTools, opener: str) -> ParsedCalls:
    if opener == _CALL:
        cursor.give_back(opener)
    count = 0
    yield from cursor.skip_space()
    while (yield from cursor.take(_CALL)):
        yield from cursor.skip_space()
        yield from (_read_json if (yield from cursor.peek()) == "{" else _read_pairs)(cursor, tools, opener)
        count += 1
        yield from cursor.skip_space()
    if not count:
        raise NotACall
    yield from cursor.take(_END_SECTION)


K2_HORIZON = Dialect(
    name="k2-horizon",
    families="K2 Horizon",
    example=(
        "<ifm|tool_calls><ifm|tool_call>get_weather<ifm|arg_key>city</ifm|arg_key><ifm|arg_value>Paris</ifm|arg_value>"
        "</ifm|tool_call></ifm|tool_calls>"
    ),
    openers=(_SECTION, _CALL),
    read=_read,
    reasoning_markers=(("<ifm|think>", "</ifm|think>"),),
)
