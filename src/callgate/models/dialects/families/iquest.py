"""iQuest Coder 2: the name, then alternating keys and values.

    <iquestcoder_tool_call>get_weather<arg_key>city</arg_key><arg_value>Paris</arg_value></iquestcoder_tool_call>

Source: vLLM's tool parser for iQuest Coder V2.
"""

from __future__ import annotations

from callgate.models.dialects.dialect import Dialect
from callgate.models.dialects.families.glm import KeyValueReader

__all__ = ["IQUEST"]

IQUEST = Dialect(
    name="iquest",
    families="iQuest Coder 2",
    example="<iquestcoder_tool_call>get_weather<arg_key>city</arg_key><arg_value>Paris</arg_value></iquestcoder_tool_call>",
    openers=("<iquestcoder_tool_call>",),
    read=KeyValueReader("</iquestcoder_tool_call>", is_wrapped=True),
)
