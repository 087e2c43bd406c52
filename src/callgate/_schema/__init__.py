"""JSON Schema: compile tool schemas, explain validation errors to models, derive schemas from function signatures.

Read `schema_compiler` first, then `validation_errors`, `coercion` and `integral_floats` (checking and converting
arguments), `schema_from_signature` and `annotations` (schemas of Python functions), `validation_cost` and
`regex_patterns` (limits). Knows values and schemas, but no tools, calls or policies. The validator and the docstring
parser are imported on first use.

`text_formats` and `conversion_errors` serve the checks. `field_defaults`, `time_formats` and `times_without_seconds` are for signatures as
pydantic's users write them. `subschemas` walks a schema and `references` resolves its references; `tool_schema_repair` and `large_integers`
mend schemas of other tools. `value_descriptions` describes values in error messages.
"""

from __future__ import annotations

from callgate._schema.coercion import coerce_values
from callgate._schema.conversion_errors import model_problems
from callgate._schema.integral_floats import whole_numbers
from callgate._schema.schema_compiler import CompiledSchema, compile_schema
from callgate._schema.schema_from_signature import FunctionSchema, function_schema
from callgate._schema.text_formats import TextFormats, text_formats
from callgate._schema.validation_errors import ValidationProblem, without_new_number

__all__ = [
    "CompiledSchema",
    "FunctionSchema",
    "TextFormats",
    "ValidationProblem",
    "coerce_values",
    "compile_schema",
    "function_schema",
    "model_problems",
    "text_formats",
    "whole_numbers",
    "without_new_number",
]
