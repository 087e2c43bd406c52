"""LongCat: JSON, or keys and values in turn, in tags of its own.

    <longcat_tool_call>{"name": "get_weather", "arguments": {"city": "Paris"}}</longcat_tool_call>

Source: the chat template of LongCat-Flash.
"""

from __future__ import annotations

from callgate.models.dialects.cursor import Cursor
from callgate.models.dialects.families.glm import PairReader
from callgate.models.dialects.marked import Marked
from callgate.models.dialects.names import ToolNames
from callgate.models.dialects.shape import Dialect, Reads

__all__ = ["LONGCAT"]

_END = "</longcat_tool_call>"
_JSON, _PAIRS = Marked(_END), PairReader(_END, prefix="longcat_")


def _read(cursor: Cursor, tools: ToolNames, opener: str) -> Reads:
    yield from cursor.white()
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
