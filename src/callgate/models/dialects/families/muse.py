"""Muse: an address, then tags in a name space of their own.

    to=weather.get_weather<|message|><atem:function_calls><atem:invoke name="weather.get_weather">
    <atem:parameter name="city">Paris</atem:parameter></atem:invoke></atem:function_calls><|eot|>

The tool's name comes behind the name of its group.

Source: the chat template of Muse.
"""

from __future__ import annotations

from callgate.models.dialects.cursor import Cursor, NoCall
from callgate.models.dialects.names import ToolNames
from callgate.models.dialects.shape import Dialect, Reads
from callgate.models.dialects.tagged import Tags, read_tagged_calls

__all__ = ["MUSE"]

_SECTION = "<atem:function_calls>"
_TAGS = Tags(
    call=("<atem:invoke",),
    end=("</atem:invoke>",),
    parameter=("<atem:parameter",),
    end_parameter=("</atem:parameter>",),
    grouped=True,
)


def _read(cursor: Cursor, tools: ToolNames, opener: str) -> Reads:
    if opener == "to=":
        _, mark = yield from cursor.until("<|message|>", "\n")
        if mark == "\n":
            raise NoCall
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
