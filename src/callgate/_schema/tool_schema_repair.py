"""Repair common mistakes in tool schemas that have only one possible meaning; refuse schemas that cannot be used.

Each repair is reported, and the repaired schema is valid JSON Schema. Pure. Knows no validator.
"""

from __future__ import annotations

import re
from typing import Any

from callgate._json import decode
from callgate._schema.regex_patterns import MAX_PATTERN, patterns
from callgate._schema.subschemas import Schema, Schemas
from callgate.errors import UsageError

__all__ = ["mended", "object_of_parameters", "refuse", "refuse_unusable"]

MAX_ENUM = 10_000
MAX_REFERENCES = 5_000
MAX_PATTERNS = 50_000
"""Maximum number of characters of all patterns together."""
_NUMERIC = frozenset(
    {"maximum", "minimum", "exclusiveMaximum", "exclusiveMinimum", "multipleOf", "maxLength", "minLength", "maxItems", "minItems"}
    | {"maxProperties", "minProperties"}
)
_BOOLEAN = frozenset({"additionalProperties", "unevaluatedProperties", "additionalItems", "uniqueItems", "nullable"})
_HOLDS_SCHEMAS = frozenset(
    {"properties", "patternProperties", "$defs", "definitions", "dependencies", "dependentSchemas", "dependentRequired", "propertyNames"}
    | {"additionalProperties", "unevaluatedProperties", "items", "contains", "if", "then", "else", "not"}
)
"""Keywords whose values are objects. They distinguish a schema from a map of parameters."""
_QUOTED = _NUMERIC | _BOOLEAN
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,100}")
_HEADER_TYPES = ("string", "integer", "boolean")


def refuse(where: str, fact: str, *, code: str = "schema_refused") -> UsageError:
    return UsageError(f"The schema of {where} cannot be used: {fact}", code=code)


def object_of_parameters(root: Schema, notes: list[str]) -> Schema:
    """Return an object schema if the root is a plain map from parameter names to schemas; otherwise the root."""
    if not root or not all(isinstance(inner, dict) for inner in root.values()):
        return root
    if root.keys() & _HOLDS_SCHEMAS and not any(isinstance(inner.get("required"), bool) for inner in root.values()):
        return root
    notes.append("the root was a map of parameters and became an object with these properties")
    return {"type": "object", "properties": root}


def mended(schemas: Schemas, draft: int) -> list[str]:
    """Repair a document's schemas in place; return a sentence for each change. No schema is added or removed."""
    notes: list[str] = []
    for path, schema in schemas:
        _move_required_flags(path, schema, notes)
        for keyword in schema.keys() & _QUOTED:
            _unquote(path, schema, keyword, notes)
        if draft > 4:
            _modern_bounds(path, schema, notes)
    return notes


def _move_required_flags(path: str, schema: Schema, notes: list[str]) -> None:
    named = schema.get("properties")
    for name, inner in named.items() if isinstance(named, dict) else ():
        if isinstance(inner, dict) and isinstance(inner.get("required"), bool):
            listed = schema.get("required")
            if inner.pop("required") and name not in (listed := listed if isinstance(listed, list) else []):
                schema["required"] = [*listed, name]
            notes.append(f"{path}/properties/{name}: a 'required' flag was taken for an entry of the object's 'required' list")
    if isinstance(schema.get("required"), bool):
        del schema["required"]
        notes.append(f"{path}: a 'required' flag that belongs to no property was dropped")


def _unquote(path: str, schema: Schema, keyword: str, notes: list[str]) -> None:
    said = schema[keyword]
    if not isinstance(said, str):
        return
    try:
        meant: Any = decode(said.lower() if keyword in _BOOLEAN else said)
    except ValueError:
        return
    if isinstance(meant, bool) if keyword in _BOOLEAN else isinstance(meant, (int, float)) and not isinstance(meant, bool):
        schema[keyword] = meant
        notes.append(f"{path}: {keyword} was text and became {meant}")


def _modern_bounds(path: str, schema: Schema, notes: list[str]) -> None:
    for flag, bound in (("exclusiveMaximum", "maximum"), ("exclusiveMinimum", "minimum")):
        said = schema.get(flag)
        if isinstance(said, bool):
            del schema[flag]
            if said and bound in schema:
                schema[flag] = schema.pop(bound)
            notes.append(f"{path}: {flag} was a flag, as in draft 4, and became a number")


def refuse_unusable(schemas: Schemas, where: str) -> None:
    """Raise `UsageError` if the schemas are too large to validate against or unsafe to show to a model."""
    options = references = letters = 0
    headers: set[str] = set()
    for path, schema in schemas:
        listed = schema.get("enum")
        options += len(listed) if isinstance(listed, list) else 0
        references += "$ref" in schema
        letters += sum(map(len, patterns(schema)))
        _check_patterns(schema, path, where)
        if "x-mcp-header" in schema:
            _check_header(schema, path, where, headers)
    if options > MAX_ENUM:
        raise refuse(where, f"it lists {options} enum values; {MAX_ENUM} is the limit. Take text and check it in the tool.")
    if references > MAX_REFERENCES:
        raise refuse(where, f"it has {references} references; {MAX_REFERENCES} is the limit. Split the tool.")
    if letters > MAX_PATTERNS:
        raise refuse(where, f"its patterns have {letters} characters together; {MAX_PATTERNS} is the limit. Check it in the tool.")


def _check_patterns(schema: Schema, path: str, where: str) -> None:
    for pattern in patterns(schema):
        if len(pattern) > MAX_PATTERN:
            place = path[:200] or "/"
            raise refuse(where, f"the pattern at {place} has {len(pattern)} characters; {MAX_PATTERN} is the limit. Shorten it.")


def _check_header(schema: Schema, path: str, where: str, headers: set[str]) -> None:
    name = schema["x-mcp-header"]
    if not isinstance(name, str) or not _TOKEN.fullmatch(name):
        raise refuse(where, f"x-mcp-header at {path[:200]} is no HTTP header name. Take letters, digits and '-', at most 100.")
    if schema.get("type") not in _HEADER_TYPES:
        raise refuse(where, f"x-mcp-header at {path[:200]} is on a value that is not of type {', '.join(_HEADER_TYPES)}. Drop it there.")
    if name.lower() in headers:
        raise refuse(where, f"x-mcp-header {name!r} is given twice. Header names differ in more than case; rename one.")
    headers.add(name.lower())
