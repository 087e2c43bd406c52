"""Apertus: a list of objects whose only key is the tool's name.

    <|tools_prefix|>[{"get_weather": {"city": "Paris"}}]<|tools_suffix|>

Source: the chat template of Apertus-8B-Instruct.
"""

from __future__ import annotations

from callgate.models.dialects.dialect import Dialect
from callgate.models.dialects.marked_json import MarkedJson

__all__ = ["APERTUS"]

APERTUS = Dialect(
    name="apertus",
    families="Apertus",
    example='<|tools_prefix|>[{"get_weather": {"city": "Paris"}}]<|tools_suffix|>',
    openers=("<|tools_prefix|>",),
    read=MarkedJson("<|tools_suffix|>", keyed=True),
    ignored_markers=("<|assistant_end|>", "<|assistant_start|>"),
    reasoning_markers=(("<|inner_prefix|>", "<|inner_suffix|>"),),
)
