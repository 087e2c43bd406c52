"""Jamba, Hunyuan A13B, Apriel, MiniMax M1: a list, or one object a line, in one pair of tags. Some put each object into tags of its own.

    <tool_calls>[{"name": "get_weather", "arguments": {"city": "Paris"}}]</tool_calls>

Source: the chat templates of AI21-Jamba-1.5, Hunyuan-A13B-Instruct and MiniMax-M1.
"""

from __future__ import annotations

from callgate.models.dialects.cursor import Cursor
from callgate.models.dialects.marked import Marked
from callgate.models.dialects.names import ToolNames
from callgate.models.dialects.shape import Dialect, Reads

__all__ = ["JAMBA"]

_ENDS = ("</tool_calls>", "</function_calls>")
_SECTION, _TAGGED = Marked(*_ENDS), Marked("</tool_call>")


def _read(cursor: Cursor, tools: ToolNames, opener: str) -> Reads:
    yield from cursor.white()
    if not (yield from cursor.at("<tool_call>")):
        yield from _SECTION(cursor, tools, opener)
        return
    while (yield from cursor.take("<tool_call>")):
        yield from _TAGGED(cursor, tools, opener)
        yield from cursor.white()
    yield from cursor.take(*_ENDS)


JAMBA = Dialect(
    name="jamba",
    families="Jamba, Hunyuan A13B, Apriel 1.5, MiniMax M1",
    example='<tool_calls>[{"name": "get_weather", "arguments": {"city": "Paris"}}]</tool_calls>',
    openers=("<tool_calls>", "<function_calls>"),
    read=_read,
    silent=("[END FINAL RESPONSE]",),
    thoughts=(("", "[BEGIN FINAL RESPONSE]"),),
)
