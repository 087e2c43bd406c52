"""Granite 3 and the 20B function-calling model: a marker, then a list or an object.

    <|tool_call|>[{"name": "get_weather", "arguments": {"city": "Paris"}}]

Source: the chat templates of granite-3.1 and granite-20b-functioncalling.
"""

from __future__ import annotations

from callgate.models.dialects.dialect import Dialect
from callgate.models.dialects.marked_json import MarkedJson

__all__ = ["GRANITE"]

GRANITE = Dialect(
    name="granite",
    families="Granite 3, Granite 20B function calling, Arctic",
    example='<|tool_call|>[{"name": "get_weather", "arguments": {"city": "Paris"}}]',
    openers=("<|tool_call|>", "<function_call>"),
    read=MarkedJson("<|/tool_call|>", "</function_call>", "<|end_of_text|>"),
)
