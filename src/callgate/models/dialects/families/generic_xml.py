"""Models that were prompted with, or trained on, calls in the common XML form, such as dots.

    <function_calls>
    <invoke name="get_weather">
    <parameter name="city">Paris</parameter>
    </invoke>
    </function_calls>

Some put a namespace before every tag.

Source: Anthropic's guide to tool use by prompt; the answers of models that imitate it; SGLang's tool parser for dots.
"""

from __future__ import annotations

from callgate.models.dialects.dialect import Dialect, ParsedCalls
from callgate.models.dialects.known_tools import KnownTools
from callgate.models.dialects.tagged_calls import invoke_tags, read_tagged_calls
from callgate.models.dialects.text_cursor import TextCursor

__all__ = ["OTHER_XML"]

_SPACES = ("", "antml:")
_TAGS = invoke_tags(*_SPACES)
_SECTIONS = (*(f"{space}function_calls>" for space in _SPACES), "tool_calls>", "dots_function_call>")
_CLOSERS = (*(f"</{section}" for section in _SECTIONS), "</minimax:tool_call>")


def _read(cursor: TextCursor, tools: KnownTools, opener: str) -> ParsedCalls:
    if opener in _TAGS.call:
        cursor.give_back(opener)
    yield from read_tagged_calls(cursor, tools, _TAGS, *_CLOSERS)


OTHER_XML = Dialect(
    name="other-xml",
    families="prompted models, dots",
    example='<function_calls>\n<invoke name="get_weather">\n<parameter name="city">Paris</parameter>\n</invoke>\n</function_calls>',
    openers=(*(f"<{section}" for section in _SECTIONS), *_TAGS.call),
    read=_read,
)
