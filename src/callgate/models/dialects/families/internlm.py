"""InternLM 2 and later: an object between action tokens.

    <|action_start|><|plugin|>{"name": "get_weather", "parameters": {"city": "Paris"}}<|action_end|>

Source: the chat format document of InternLM2.
"""

from __future__ import annotations

from callgate.models.dialects.dialect import Dialect
from callgate.models.dialects.marked_json import MarkedJson

__all__ = ["INTERNLM"]

INTERNLM = Dialect(
    name="internlm",
    families="InternLM 2, 2.5, 3",
    example='<|action_start|><|plugin|>{"name": "get_weather", "parameters": {"city": "Paris"}}<|action_end|>',
    openers=("<|action_start|><|plugin|>", "<|action_start|> <|plugin|>", "<|action_start|>\n<|plugin|>"),
    read=MarkedJson("<|action_end|>"),
)
