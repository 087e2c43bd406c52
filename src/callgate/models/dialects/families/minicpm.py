"""MiniCPM 5: XML without a marker of its own.

    <function name="get_weather"><param name="city">Paris</param></function>

Some of its tokenizers write a space as `Ġ` and a line break as `Ċ`.

Such tags are found in ordinary text, too. So the tool has to exist, the parameters have to be those of its schema, and the last
tag has to be there.

Source: the chat template of MiniCPM5-1B.
"""

from __future__ import annotations

from msgspec.structs import replace

from callgate.models.dialects.cursor import Cursor, NoCall
from callgate.models.dialects.fit import fits
from callgate.models.dialects.names import ToolNames
from callgate.models.dialects.shape import Dialect, Reads
from callgate.models.dialects.tagged import Tags, read_tagged

__all__ = ["MINICPM"]

_OPENERS = ("<function name=", "<functionĠname=", "<functionname=")
_TAGS = Tags(
    call=_OPENERS,
    end=("</function>",),
    parameter=("<param name=", "<paramname=", "<paramĠname=", "<parameter name="),
    end_parameter=("</param>", "</parameter>"),
    markup=True,
    once=True,
    around=("<arguments>", "</arguments>", "Ċ", "Ġ"),
)


def _read(cursor: Cursor, tools: ToolNames, opener: str) -> Reads:
    found = yield from read_tagged(cursor, tools, _TAGS)
    if "Ġ" in opener:
        found = replace(found, arguments=found.arguments.replace("Ġ", " ").replace("Ċ", "\\n"))
    if found.closed != "sealed" or not tools.may_call(found.name) or not fits(found.arguments, tools.schema(found.name)):
        raise NoCall
    yield found


MINICPM = Dialect(
    name="minicpm",
    families="MiniCPM 5",
    example='<function name="get_weather"><param name="city">Paris</param></function>',
    openers=_OPENERS,
    read=_read,
)
