"""Jamba, Hunyuan A13B, Apriel, MiniMax M1: a list, or one object a line, in one pair of tags.

    <tool_calls>[{"name": "get_weather", "arguments": {"city": "Paris"}}]</tool_calls>

Source: the chat templates of AI21-Jamba-1.5, Hunyuan-A13B-Instruct and MiniMax-M1.
"""

from __future__ import annotations

from callgate.models.dialects.marked import Marked
from callgate.models.dialects.shape import Dialect

__all__ = ["JAMBA"]

JAMBA = Dialect(
    name="jamba",
    families="Jamba, Hunyuan A13B, Apriel 1.5, MiniMax M1",
    example='<tool_calls>[{"name": "get_weather", "arguments": {"city": "Paris"}}]</tool_calls>',
    openers=("<tool_calls>",),
    read=Marked("</tool_calls>"),
    silent=("[BEGIN FINAL RESPONSE]", "[END FINAL RESPONSE]"),
)
