"""HyperCLOVA X Seed Think, openPangu 1: a list of JSON calls after a role or between tokens.

    <|im_start|>assistant -> tool/function_call
    [{"name": "get_weather", "arguments": {"city": "Paris"}}]<|im_end|>

    [unused11][{"name": "get_weather", "arguments": {"city": "Paris"}}][unused12]

Source: vLLM's tool parsers for HyperCLOVA X Seed Think and openPangu.
"""

from __future__ import annotations

from callgate.models.dialects.dialect import Dialect
from callgate.models.dialects.marked_json import MarkedJson

__all__ = ["HYPERCLOVA"]

HYPERCLOVA = Dialect(
    name="hyperclova",
    families="HyperCLOVA X Seed Think, openPangu 1",
    example='<|im_start|>assistant -> tool/function_call\n[{"name": "get_weather", "arguments": {"city": "Paris"}}]<|im_end|>',
    openers=("<|im_start|>assistant -> tool/function_call", "-> tool/function_call", "[unused11]"),
    read=MarkedJson("<|im_end|>", "[unused12]"),
    ignored_markers=("<|im_start|>assistant/think\n", "<|endofturn|>", "<|stop|>", "[unused10]"),
    reasoning_markers=(("[unused16]", "[unused17]"),),
)
