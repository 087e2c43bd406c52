"""LongCat: JSON, or keys and values in turn, in tags of its own.

    <longcat_tool_call>{"name": "get_weather", "arguments": {"city": "Paris"}}</longcat_tool_call>

Source: the chat template of LongCat-Flash.
"""

from __future__ import annotations

from callgate.models.dialects.dialect import Dialect, ParsedCalls
from callgate.models.dialects.families.glm import KeyValueReader
from callgate.models.dialects.json_calls import MarkedJson
from callgate.models.dialects.known_tools import KnownTools
from callgate.models.dialects.text_cursor import TextCursor

__all__ = ["LONGCAT"]

_END = "</longcat_tool_call>"
_JSON, _PAIRS = MarkedJson(_END), KeyValueReader(_END, prefix="longcat_")


def _read(cursor: TextCursor, tools: KnownTools, opener: str) -> ParsedCalls:
    yield from cursor.skip_space()
    yield from (_JSON if (yield from cursor.peek()) in ("{", "[") else _PAIRS)(cursor, tools, opener)


LONGCAT = Dialect(
    name="longcat",
    families="LongCat",
    example='<longcat_tool_call>{"name": "get_weather", "arguments": {"city": "Paris"}}</longcat_tool_call>',
    openers=("<longcat_tool_call>",),
    read=_read,
    silent=("<longcat_s>", "</longcat_s>"),
    thoughts=(("<longcat_think>", "</longcat_think>"),),
)
