"""DeepSeek V3.2 to V4.1: tags with a special token in their names, and an attribute that says whether a value is text.

    <｜DSML｜function_calls>
    <｜DSML｜invoke name="get_weather">
    <｜DSML｜parameter name="city" string="true">Paris</｜DSML｜parameter>
    </｜DSML｜invoke>
    </｜DSML｜function_calls>

Source: the encoding module of DeepSeek-V3.2 and the chat template of DeepSeek-V4.
"""

from __future__ import annotations

from callgate.models.dialects.dialect import Dialect, ParsedCalls
from callgate.models.dialects.known_tools import KnownTools
from callgate.models.dialects.tagged_calls import invoke_tags, read_tagged_calls
from callgate.models.dialects.text_cursor import TextCursor

__all__ = ["DEEPSEEK_DSML"]

_BARS = tuple(f"{bars}DSML{bars}{gap}" for gap in ("", " ") for bars in ("｜", "|", "｜｜", "||"))
"""Version 4.1 puts a space into every tag; some models double the bars."""
_TAGS = invoke_tags(*_BARS)
_SECTIONS = ("function_calls", "tool_calls", "calls")
_CLOSERS = tuple(f"</{bar}{section}>" for bar in _BARS for section in _SECTIONS)


def _read(cursor: TextCursor, tools: KnownTools, opener: str) -> ParsedCalls:
    if opener in _TAGS.call:
        cursor.give_back(opener)
    yield from read_tagged_calls(cursor, tools, _TAGS, *_CLOSERS)


DEEPSEEK_DSML = Dialect(
    name="deepseek-dsml",
    families="DeepSeek V3.2, V4, V4.1",
    example=(
        '<｜DSML｜function_calls>\n<｜DSML｜invoke name="get_weather">\n<｜DSML｜parameter name="city" string="true">Paris'
        "</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>"
    ),
    openers=(*(f"<{bar}{section}>" for bar in _BARS for section in _SECTIONS), *_TAGS.call),
    read=_read,
)
