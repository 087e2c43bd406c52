"""The options of `@tool` that can be set on any tool, also on one that is not made from a function. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from callgate.tools.tool_declaration import Tool

__all__ = ["ATTRIBUTE_OPTIONS", "set_options"]

ATTRIBUTE_OPTIONS = (
    "category",
    "key",
    "requires_approval",
    "reads",
    "writes",
    "timeout_s",
    "attempt_timeout_s",
    "retry",
    "retryable",
    "cacheable",
    "cache_scope",
    "cache_ttl",
    "requires_actor",
    "aliases",
    "triggers",
    "parallel",
    "coerce",
)
_ATTRIBUTES = {"key": "effect_key"}
"""The options whose attribute of `Tool` has another name."""


def set_options(tool: Tool, options: Mapping[str, Any]) -> None:
    """Set options of `ATTRIBUTE_OPTIONS`. The registry checks their values."""
    for option, value in options.items():
        setattr(tool, _ATTRIBUTES.get(option, option), value)
