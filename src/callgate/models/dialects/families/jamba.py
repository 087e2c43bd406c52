"""Jamba, Hunyuan A13B, Apriel, MiniMax M1: a list, or one object per line, in a pair of tags. Some wrap each object in tags of its own.

    <tool_calls>[{"name": "get_weather", "arguments": {"city": "Paris"}}]</tool_calls>

Source: the chat templates of AI21-Jamba-1.5, Hunyuan-A13B-Instruct and MiniMax-M1.
"""

from __future__ import annotations

from callgate.models.dialects.dialect import Dialect, ParsedCalls
from callgate.models.dialects.known_tools import KnownTools
from callgate.models.dialects.marked_json import MarkedJson
from callgate.models.dialects.text_cursor import TextCursor

__all__ = ["JAMBA"]

_ENDS = ("</tool_calls>", "</function_calls>")
_read_section, _read_tagged = MarkedJson(*_ENDS), MarkedJson("</tool_call>")


def _read(cursor: TextCursor, tools: KnownTools, opener: str) -> ParsedCalls:
    yield from cursor.skip_space()
    if not (yield from cursor.at("<tool_call>")):
        yield from _read_section(cursor, tools, opener)
        return
    while (yield from cursor.take("<tool_call>")):
        yield from _read_tagged(cursor, tools, opener)
        yield from cursor.skip_space()
    yield from cursor.take(*_ENDS)


JAMBA = Dialect(
    name="jamba",
    families="Jamba, Hunyuan A13B, Apriel 1.5, MiniMax M1",
    example='<tool_calls>[{"name": "get_weather", "arguments": {"city": "Paris"}}]</tool_calls>',
    openers=("<tool_calls>", "<function_calls>", "<answer><tool_calls>", "<answer>\n<tool_calls>"),
    read=_read,
    ignored_markers=("[END FINAL RESPONSE]",),
    reasoning_markers=(("", "[BEGIN FINAL RESPONSE]"),),
)
