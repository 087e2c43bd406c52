"""MiniMax M2: tags with names as attributes, in a section of their own.

    <minimax:tool_call>
    <invoke name="get_weather">
    <parameter name="city">Paris</parameter>
    </invoke>
    </minimax:tool_call>

Source: the tool-calling guide of MiniMax-M2.
"""

from __future__ import annotations

from callgate.models.dialects.dialect import Dialect, ParsedCalls
from callgate.models.dialects.known_tools import KnownTools
from callgate.models.dialects.tagged_calls import invoke_tags, read_tagged_calls
from callgate.models.dialects.text_cursor import TextCursor

__all__ = ["MINIMAX_M2"]

_TAGS = invoke_tags("")


def _read(cursor: TextCursor, tools: KnownTools, opener: str) -> ParsedCalls:
    yield from read_tagged_calls(cursor, tools, _TAGS, "</minimax:tool_call>")


MINIMAX_M2 = Dialect(
    name="minimax-m2",
    families="MiniMax M2, M2.1, M2.5",
    example=('<minimax:tool_call>\n<invoke name="get_weather">\n<parameter name="city">Paris</parameter>\n</invoke>\n</minimax:tool_call>'),
    openers=("<minimax:tool_call>",),
    read=_read,
    ignored_markers=("[e~[",),
)
