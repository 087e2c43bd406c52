"""Hermes, Qwen 2.5 and 3, ERNIE, EXAONE, Granite 4, MiMo, SmolLM and many more: a JSON object between tags.

    <tool_call>
    {"name": "get_weather", "arguments": {"city": "Paris"}}
    </tool_call>

Source: the chat templates of NousResearch Hermes 2 Pro and Qwen2.5.
"""

from __future__ import annotations

from callgate.models.dialects.dialect import Dialect
from callgate.models.dialects.marked_json import MarkedJson

__all__ = ["HERMES"]

_OTHER_TAGS, _END_OTHER_TAGS = ("<minimax:tool_call>", "<seed:tool_call>"), ("</minimax:tool_call>", "</seed:tool_call>")
"""Tags of families that sometimes write JSON instead of tags."""

HERMES = Dialect(
    name="hermes",
    families="Hermes, Qwen 2.5 and 3, ERNIE, EXAONE, Granite 4, SmolLM",
    example='<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>',
    openers=("<tool_call>", "<functioncall>", "<toolcall>", "<dots_function_call>", "<|tool_call_start|>", *_OTHER_TAGS),
    read=MarkedJson("</tool_call>", "</functioncall>", "</toolcall>", "</dots_function_call>", "<|tool_call_end|>", *_END_OTHER_TAGS),
)
