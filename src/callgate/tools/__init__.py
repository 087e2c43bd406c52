"""Tools: declaration, context of a running call, registry, resources and retries."""

from __future__ import annotations

from callgate.tools.base import Tool, ValidationResult, Verified
from callgate.tools.context import ToolContext
from callgate.tools.function import FunctionTool, ToolOptions, tool
from callgate.tools.registry import BoundTool, ToolRegistry
from callgate.tools.resources import TouchedKeys, conflict
from callgate.tools.result_format import validate_tool_result
from callgate.tools.retry import RetryPolicy, is_retryable_error

__all__ = [
    "BoundTool",
    "FunctionTool",
    "RetryPolicy",
    "Tool",
    "ToolContext",
    "ToolOptions",
    "ToolRegistry",
    "TouchedKeys",
    "ValidationResult",
    "Verified",
    "conflict",
    "is_retryable_error",
    "tool",
    "validate_tool_result",
]
