"""LongCat: JSON, or alternating keys and values, in tags of its own.

    <longcat_tool_call>{"name": "get_weather", "arguments": {"city": "Paris"}}</longcat_tool_call>

Source: the chat template of LongCat-Flash.
"""

from __future__ import annotations

from callgate.models.dialects.dialect import Dialect, ParsedCalls
from callgate.models.dialects.families.glm import KeyValueReader
from callgate.models.dialects.known_tools import KnownTools
from callgate.models.dialects.marked_json import MarkedJson
from callgate.models.dialects.text_cursor import TextCursor

__all__ = ["LONGCAT"]

_END = "</longcat_tool_call>"
_read_json, _read_pairs = MarkedJson(_END), KeyValueReader(_END, prefix="longcat_")


def _read(cursor: TextCursor, tools: KnownTools, opener: str) -> ParsedCalls:
    yield from cursor.skip_space()
    yield from (_read_json if (yield from cursor.peek()) in ("{", "[") else _read_pairs)(cursor, tools, opener)


LONGCAT = Dialect(
    name="longcat",
    families="LongCat",
    example='<longcat_tool_call>{"name": "get_weather", "arguments": {"city": "Paris"}}</longcat_tool_call>',
    openers=("<longcat_tool_call>",),
    read=_read,
    ignored_markers=("<longcat_s>", "</longcat_s>"),
    reasoning_markers=(("<longcat_think>", "</longcat_think>"),),
)
