"""Tools: declaration, context of a running call, registry, resources and retries."""

from __future__ import annotations

from callgate.tools.registry import BoundTool, ToolRegistry
from callgate.tools.resource_conflicts import TouchedKeys, conflict
from callgate.tools.result_format import validate_tool_result
from callgate.tools.retry_policy import RetryPolicy, is_retryable_error
from callgate.tools.tool_context import ToolContext
from callgate.tools.tool_declaration import Tool, ValidationResult, Verified
from callgate.tools.tool_decorator import FunctionTool, ToolOptions, tool

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
