"""JSON Schema: compile a tool's schema once, explain validation errors to models, derive schemas from function signatures.

Read `schema_compiler` first, then `validation_errors`, `coercion` and `integral_floats` (what happens to arguments),
`schema_from_signature` and `annotations` (schemas from Python functions), `validation_cost` and `regex_patterns` (bounds). Knows values and
schemas, nothing of tools, calls or policies. The validator and the docstring parser are imported on first use.
"""

from __future__ import annotations

from callgate._schema.coercion import coerced
from callgate._schema.integral_floats import whole_numbers
from callgate._schema.schema_compiler import CompiledSchema, compile_schema
from callgate._schema.schema_from_signature import FunctionSchema, function_schema
from callgate._schema.text_formats import TextFormats, text_formats
from callgate._schema.validation_errors import ValidationProblem

__all__ = [
    "CompiledSchema",
    "FunctionSchema",
    "TextFormats",
    "ValidationProblem",
    "coerced",
    "compile_schema",
    "function_schema",
    "text_formats",
    "whole_numbers",
]
