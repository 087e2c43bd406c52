"""JSON Schema: compiled once per tool, explained to models, and made from a function's signature.

Knows values and schemas, nothing of tools, calls on their way, or policies. The validator and the docstring parser load with first use.
"""

from __future__ import annotations

from callgate._schema.coercion import coerced
from callgate._schema.compile import CompiledSchema, compile_schema
from callgate._schema.integral_floats import whole_numbers
from callgate._schema.signature import FunctionSchema, function_schema
from callgate._schema.validation_errors import ValidationProblem

__all__ = ["CompiledSchema", "FunctionSchema", "ValidationProblem", "coerced", "compile_schema", "function_schema", "whole_numbers"]
