"""JSON Schema: compiled once per tool, explained to models, and made from a function's signature.

Knows values and schemas, nothing of tools, calls on their way, or policies. The validator and the docstring parser load with first use.
"""

from __future__ import annotations

from callgate._schema.coerce import coerced
from callgate._schema.compile import CompiledSchema, compile_schema
from callgate._schema.problems import Problem
from callgate._schema.signature import FunctionSchema, function_schema
from callgate._schema.wholes import whole_numbers

__all__ = ["CompiledSchema", "FunctionSchema", "Problem", "coerced", "compile_schema", "function_schema", "whole_numbers"]
