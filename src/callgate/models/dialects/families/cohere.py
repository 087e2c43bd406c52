"""Command R7B, Command A and later: a list between action tokens.

    <|START_ACTION|>[{"tool_call_id": "0", "tool_name": "get_weather", "parameters": {"city": "Paris"}}]<|END_ACTION|>

Source: the chat template of c4ai-command-r7b-12-2024.
"""

from __future__ import annotations

from callgate.models.dialects.dialect import Dialect
from callgate.models.dialects.marked_json import MarkedJson

__all__ = ["COHERE"]

COHERE = Dialect(
    name="cohere",
    families="Command R7B, Command A",
    example='<|START_ACTION|>[{"tool_call_id": "0", "tool_name": "get_weather", "parameters": {"city": "Paris"}}]<|END_ACTION|>',
    openers=("<|START_ACTION|>",),
    read=MarkedJson("<|END_ACTION|>"),
    ignored_markers=(
        "<|START_RESPONSE|>",
        "<|END_RESPONSE|>",
        "<|START_TEXT|>",
        "<|END_TEXT|>",
        "<|END_OF_TURN_TOKEN|>",
        "<|START_OF_TURN_TOKEN|>",
        "<|CHATBOT_TOKEN|>",
    ),
    reasoning_markers=(("<|START_THINKING|>", "<|END_THINKING|>"),),
)
