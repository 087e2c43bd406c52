"""MiniCPM 5: XML without a marker of its own.

    <function name="get_weather"><param name="city">Paris</param></function>

Some of its tokenizers write a space as `Ġ` and a line break as `Ċ`.

Such tags also occur in ordinary text. So the tool must be known, the parameters must match its schema, and the last tag must be present.

Source: the chat template of MiniCPM5-1B.
"""

from __future__ import annotations

from msgspec.structs import replace

from callgate.models.dialects.dialect import Dialect, ParsedCalls
from callgate.models.dialects.known_tools import KnownTools
from callgate.models.dialects.schema_matching import matches_schema
from callgate.models.dialects.tagged_calls import CallTags, read_tagged_call
from callgate.models.dialects.text_cursor import NotACall, TextCursor

__all__ = ["MINICPM"]

_OPENERS = ("<function name=", "<functionĠname=", "<functionname=")
_TAGS = CallTags(
    call=_OPENERS,
    end=("</function>",),
    parameter=("<param name=", "<paramname=", "<paramĠname=", "<parameter name="),
    end_parameter=("</param>", "</parameter>"),
    is_xml=True,
    unique_parameters=True,
    ignored_tags=("<arguments>", "</arguments>", "Ċ", "Ġ"),
)


def _read(cursor: TextCursor, tools: KnownTools, opener: str) -> ParsedCalls:
    found = yield from read_tagged_call(cursor, tools, _TAGS)
    if "Ġ" in opener:
        found = replace(found, arguments=found.arguments.replace("Ġ", " ").replace("Ċ", "\\n"))
    if found.closed != "sealed" or not tools.may_call(found.name) or not matches_schema(found.arguments, tools.schema(found.name)):
        raise NotACall
    yield found


MINICPM = Dialect(
    name="minicpm",
    families="MiniCPM 5",
    example='<function name="get_weather"><param name="city">Paris</param></function>',
    openers=_OPENERS,
    read=_read,
)
