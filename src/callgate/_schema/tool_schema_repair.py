"""Repair common mistakes in tool schemas that have only one possible meaning; refuse schemas that cannot be used.

Each repair is reported, and the repaired schema is valid JSON Schema. Pure. Knows no validator.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from callgate._json import decode
from callgate._schema.regex_patterns import MAX_PATTERN, patterns
from callgate._schema.subschemas import Schema, Schemas, everywhere
from callgate.errors import UsageError

__all__ = ["in_current_draft", "object_of_parameters", "refuse", "refuse_unusable", "repair_schemas", "split_tuples"]

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
_MAPS = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependencies", "dependentSchemas", "dependentRequired"})
_QUOTED = _NUMERIC | _BOOLEAN
_TYPES = frozenset({"string", "integer", "number", "boolean", "object", "array", "null"})
_NEVER_NULL = _HOLDS_SCHEMAS | _QUOTED | {"$schema", "required", "enum", "type", "title", "description", "pattern", "format", "examples"}
"""Keywords for which null means nothing. Some languages write it for a list, map or text that is not there."""
_OLD_FORMS = (("items", list), ("exclusiveMinimum", bool), ("exclusiveMaximum", bool))
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


def repair_schemas(schemas: Schemas, draft: int) -> list[str]:
    """Repair a document's schemas in place; return a sentence for each change. No schema is added or removed."""
    notes: list[str] = []
    for path, schema in schemas:
        for keyword in [one for one in schema if one in _NEVER_NULL and schema[one] is None]:
            del schema[keyword]
            notes.append(f"{path}: {keyword} was null and was dropped")
        for keyword in [one for one in schema if one in _MAPS and schema[one] == []]:
            schema[keyword] = {}
            notes.append(f"{path}: {keyword} was an empty list, as PHP writes an empty map, and became one")
        _move_required_flags(path, schema, notes)
        _mend_lists(path, schema, draft, notes)
        _mend_types(path, schema, notes)
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


def _mend_lists(path: str, schema: Schema, draft: int, notes: list[str]) -> None:
    dependent = schema.get("dependentRequired")
    holders = [(schema, ("required", "type")), *([(dependent, tuple(dependent))] if isinstance(dependent, dict) else [])]
    for holder, keywords in holders:
        for keyword in keywords:
            listed = holder.get(keyword)
            if isinstance(listed, list) and all(isinstance(one, str) for one in listed) and len(set(listed)) < len(listed):
                holder[keyword] = list(dict.fromkeys(listed))
                notes.append(f"{path}: {keyword} listed an entry twice")
    if draft == 4 and schema.get("required") == []:
        del schema["required"]
        notes.append(f"{path}: required was empty, which draft 4 does not allow, and was dropped")
    examples = schema.get("examples", [])
    if not isinstance(examples, list):
        schema["examples"] = [examples]
        notes.append(f"{path}: examples was not a list and became one")


def _mend_types(path: str, schema: Schema, notes: list[str]) -> None:
    """Write types in lower case, and say `nullable` as JSON Schema does: OpenAPI's keyword means nothing to a validator."""
    kinds = schema.get("type")
    if isinstance(kinds, str) and kinds not in _TYPES and kinds.lower() in _TYPES:
        kinds = schema["type"] = kinds.lower()
        notes.append(f"{path}: the type was written in capitals")
    listed = [kinds] if isinstance(kinds, str) else kinds if isinstance(kinds, list) else []
    if schema.get("nullable") is not True or not listed:
        return
    options = schema.get("enum")
    if "null" not in listed:
        schema["type"] = [*listed, "null"]
        notes.append(f"{path}: nullable became the type 'null'")
    if isinstance(options, list) and None not in options:
        schema["enum"] = [*options, None]


def split_tuples(schemas: Schemas) -> list[str]:
    """Write lists of schemas under `items`, as drafts before 2020-12 have them, as `prefixItems`, in place.

    References to what moves are changed, too. Return a sentence for each change.
    """
    moved: set[str] = set()
    notes: list[str] = []
    for path, schema in schemas:
        if not isinstance(schema.get("items"), list):
            continue
        first, rest = schema.pop("items"), schema.pop("additionalItems", None)
        if first:
            schema["prefixItems"] = first
        if rest is not None:
            schema["items"] = rest
        moved.add(path)
        notes.append(f"{path}: items was a list of schemas and became prefixItems, as draft 2020-12 has it")
    for _, schema in schemas if moved else ():
        reference = schema.get("$ref")
        if isinstance(reference, str) and reference.startswith("#/"):
            schema["$ref"] = f"#{_update_pointer(reference[1:], moved)}"
    return notes


def in_current_draft(source: Mapping[str, object]) -> Mapping[str, object]:
    """Return a schema of an older draft as one of draft 2020-12, for a reader that does not look at `$schema`.

    Changes tuples and the flags of bounds, the forms that draft 2020-12 refuses. Returns `source` itself if it has none of them.
    """
    if not any(isinstance(schema.get(keyword), kind) for _, schema in everywhere(dict(source)) for keyword, kind in _OLD_FORMS):
        return source
    root = copy.deepcopy(dict(source))
    schemas = everywhere(root)
    for path, schema in schemas:
        _modern_bounds(path, schema, [])
    split_tuples(schemas)
    return root


def _update_pointer(pointer: str, tuples: set[str]) -> str:
    """Return a JSON pointer, changed where it leads through the schemas of these pointers."""
    given, steps = "", pointer.split("/")[1:]
    written: list[str] = []
    for number, step in enumerate(steps):
        inner = {"items": "prefixItems", "additionalItems": "items"}.get(step) if given in tuples else None
        is_list = step == "items" and not "".join(steps[number + 1 : number + 2]).isdecimal()
        written.append(step if inner is None or is_list else inner)
        given += f"/{unquote(step)}"
    return "".join(f"/{step}" for step in written)


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
        raise refuse(where, f"x-mcp-header at {path[:200]} is not an HTTP header name. Take letters, digits and '-', at most 100.")
    if schema.get("type") not in _HEADER_TYPES:
        raise refuse(where, f"x-mcp-header at {path[:200]} is on a value that is not of type {', '.join(_HEADER_TYPES)}. Drop it there.")
    if name.lower() in headers:
        raise refuse(where, f"x-mcp-header {name!r} is given twice. Header names differ in more than case; rename one.")
    headers.add(name.lower())
