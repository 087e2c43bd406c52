"""iQuest Coder 2 and iQuest Q1: the name, then alternating keys and values.

    <iquestcoder_tool_call>get_weather<arg_key>city</arg_key><arg_value>Paris</arg_value></iquestcoder_tool_call>

iQuest Q1 writes `iquest_tool_call`.

Source: vLLM's tool parser for iQuest Coder V2; SGLang's for iQuest Q1.
"""

from __future__ import annotations

from callgate.models.dialects.dialect import Dialect, ParsedCalls
from callgate.models.dialects.families.glm import KeyValueReader
from callgate.models.dialects.known_tools import KnownTools
from callgate.models.dialects.text_cursor import TextCursor

__all__ = ["IQUEST"]

_READERS = {f"<{tag}>": KeyValueReader(f"</{tag}>", is_wrapped=True) for tag in ("iquestcoder_tool_call", "iquest_tool_call")}


def _read(cursor: TextCursor, tools: KnownTools, opener: str) -> ParsedCalls:
    yield from _READERS[opener](cursor, tools, opener)


IQUEST = Dialect(
    name="iquest",
    families="iQuest Coder 2, iQuest Q1",
    example="<iquestcoder_tool_call>get_weather<arg_key>city</arg_key><arg_value>Paris</arg_value></iquestcoder_tool_call>",
    openers=tuple(_READERS),
    read=_read,
)
