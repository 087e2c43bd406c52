"""Muse: a recipient, then tags in their own namespace.

    to=weather.get_weather<|message|><atem:function_calls><atem:invoke name="weather.get_weather">
    <atem:parameter name="city">Paris</atem:parameter></atem:invoke></atem:function_calls><|eot|>

The tool's name follows a namespace.

Source: the chat template of Muse.
"""

from __future__ import annotations

from callgate.models.dialects.dialect import Dialect, ParsedCalls
from callgate.models.dialects.known_tools import KnownTools
from callgate.models.dialects.tagged_calls import CallTags, read_tagged_calls
from callgate.models.dialects.text_cursor import NotACall, TextCursor

__all__ = ["MUSE"]

_SECTION, _MESSAGE = "<atem:function_calls>", "<|message|>"
_TAGS = CallTags(
    call=("<atem:invoke",),
    end=("</atem:invoke>",),
    parameter=("<atem:parameter",),
    end_parameter=("</atem:parameter>",),
    has_namespace=True,
)


def _read(cursor: TextCursor, tools: KnownTools, opener: str) -> ParsedCalls:
    if opener == "to=":
        _, marker = yield from cursor.read_until(_MESSAGE, "\n", "<", end=True)
        if marker != _MESSAGE:
            raise NotACall
        yield from cursor.expect(_SECTION)
    yield from read_tagged_calls(cursor, tools, _TAGS, "</atem:function_calls>")


MUSE = Dialect(
    name="muse",
    families="Muse",
    example=(
        '<atem:function_calls><atem:invoke name="get_weather"><atem:parameter name="city">Paris</atem:parameter>'
        "</atem:invoke></atem:function_calls>"
    ),
    openers=(_SECTION, "to="),
    read=_read,
)
