"""LM Studio's own format, for models whose template has no calls: an object in square tags.

    [TOOL_REQUEST]{"name": "get_weather", "arguments": {"city": "Paris"}}[END_TOOL_REQUEST]

Source: LM Studio's documentation of tool use, "default tool use support".
"""

from __future__ import annotations

from callgate.models.dialects.dialect import Dialect
from callgate.models.dialects.marked_json import MarkedJson

__all__ = ["LM_STUDIO"]

LM_STUDIO = Dialect(
    name="lm-studio",
    families="models that LM Studio prompts",
    example='[TOOL_REQUEST]{"name": "get_weather", "arguments": {"city": "Paris"}}[END_TOOL_REQUEST]',
    openers=("[TOOL_REQUEST]",),
    read=MarkedJson("[END_TOOL_REQUEST]"),
)
