"""Tools: declaration, context of a running call, registry, resources and retries. In reading order:

`tool_declaration` is the class `Tool`, `tool_decorator` makes one from a function, and `host_functions` checks the functions beside it.
`attribute_options` sets options on tools of other origin.
`required_approval`, `effect_key`, `resource_conflicts` and `retry_policy` are what a tool can declare; `key_patterns` parses the keys.
`registry` has the tools of an engine; `declaration_checks` checks them, and `prefixed_names` names those of servers. `argument_cleaning`
and `result_format` are for arguments and results. `tool_context` is what the code of a running call gets, with `_human_time`.
`effect_evidence` decides what an exception proves.
"""

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
