"""GigaChat: an object after a message header with the role `function call`; from 3.5 on, tags with a special token in their names.

    <|message_sep|>

    function call<|role_sep|>
    {"name": "get_weather", "arguments": {"city": "Paris"}}

    <｜GCML｜tool_calls>
    <｜GCML｜invoke name="get_weather">
    <｜GCML｜parameter name="city" string="true">Paris</｜GCML｜parameter>
    </｜GCML｜invoke>
    </｜GCML｜tool_calls>

Source: the chat templates of GigaChat3-10B and GigaChat 3.5.
"""

from __future__ import annotations

from callgate.models.dialects.dialect import Dialect, ParsedCalls
from callgate.models.dialects.known_tools import KnownTools
from callgate.models.dialects.marked_json import MarkedJson
from callgate.models.dialects.tagged_calls import invoke_tags, read_tagged_calls
from callgate.models.dialects.text_cursor import TextCursor

__all__ = ["GIGACHAT"]

_read_json = MarkedJson("<|message_sep|>")
_OPENER_WITHOUT_SEPARATOR = 'function call{"name"'
_SECTION_START, _SECTION_END = "<｜GCML｜tool_calls>", "</｜GCML｜tool_calls>"
_TAGS = invoke_tags("｜GCML｜")


def _read(cursor: TextCursor, tools: KnownTools, opener: str) -> ParsedCalls:
    if opener == _SECTION_START:
        yield from read_tagged_calls(cursor, tools, _TAGS, _SECTION_END)
        return
    if opener == "<|message_sep|>":
        yield from cursor.skip_space()
        if not (yield from cursor.take("function call<|role_sep|>")):
            return
    if opener == _OPENER_WITHOUT_SEPARATOR:
        cursor.give_back('{"name"')
    yield from _read_json(cursor, tools, opener)


GIGACHAT = Dialect(
    name="gigachat",
    families="GigaChat 2 to 3.5",
    example='<|message_sep|>\n\nfunction call<|role_sep|>\n{"name": "get_weather", "arguments": {"city": "Paris"}}',
    openers=("<|message_sep|>", "<|function_call|>", "function call<|role_sep|>", _OPENER_WITHOUT_SEPARATOR, _SECTION_START),
    read=_read,
    ignored_markers=("assistant<|role_sep|>",),
)
