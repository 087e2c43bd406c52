"""Convert values that a model wrote as plain text to JSON text of the type that the tool's schema names.

If the schema allows only text, the value stays text. Without a schema, a value that is valid JSON, other than a JSON
string, is taken as JSON. A value that does not fit the schema stays text, which the engine coerces or rejects.
Lossless: a number keeps its digits. Follows only references within the schema.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress

from callgate.models.dialects.python_literals import python_to_json

__all__ = [
    "allowed_types",
    "has_parameter",
    "is_text_only",
    "items_schema",
    "json_object",
    "json_string",
    "json_type",
    "nested_schema",
    "parameter_schema",
    "to_typed_json",
]

Schema = Mapping[str, object]
_ALL_TYPES = frozenset({"string", "integer", "number", "boolean", "null", "array", "object"})
_TYPE_ALIASES = {
    "string": "str text char varchar",
    "integer": "int int32 int64 uint long short",
    "number": "num float float32 float64 double decimal",
    "boolean": "bool",
    "array": "arr list tuple set",
    "object": "obj dict map",
    "null": "none nil",
}
_TYPES = {name: kind for kind, names in _TYPE_ALIASES.items() for name in (kind, *names.split())}
"""Type names that hand-written schemas use."""
_CONSTANTS = {"true": "true", "false": "false", "null": "null", "none": "null"}
_MAX_SUBSCHEMAS = 32


def json_string(text: str) -> str:
    """Return `text` as a JSON string. Accepts any text, lone surrogates included."""
    return json.dumps(text, ensure_ascii=False)


def json_object(members: Mapping[str, str]) -> str:
    """Return a JSON object from names and JSON texts."""
    return "{" + ", ".join(f"{json_string(name)}: {value}" for name, value in members.items()) + "}"


def parameter_schema(schema: Schema | None, name: str) -> Schema | None:
    """Return the schema of one parameter."""
    properties = schema.get("properties") if schema is not None else None
    found = properties.get(name) if isinstance(properties, Mapping) else None
    return found if isinstance(found, Mapping) else None


def items_schema(schema: Schema | None) -> Schema | None:
    """Return the schema of a list's items."""
    found = schema.get("items") if schema is not None else None
    return found if isinstance(found, Mapping) else None


def is_text_only(schema: Schema | None, root: Schema | None = None) -> bool:
    """Whether a schema allows only text."""
    return allowed_types(schema, root) == {"string"}


def has_parameter(schema: Schema | None, name: str) -> bool:
    """Whether the tool's schema has this parameter. True for any name if the schema names no parameters."""
    properties = schema.get("properties") if schema is not None else None
    return not isinstance(properties, Mapping) or not properties or name in properties


def nested_schema(schema: Schema | None, name: str, root: Schema | None) -> Schema | None:
    """Return the schema of a value's member, or of its items."""
    parts = [*_walk_subschemas(schema, root)] if schema is not None else []
    members = (parameter_schema(part, name) for part in parts)
    others = (part.get("additionalProperties") for part in parts)
    return next((found for found in (*members, *map(items_schema, parts), *others) if isinstance(found, Mapping)), None)


def allowed_types(schema: Schema | None, root: Schema | None) -> frozenset[str]:
    """Return the JSON Schema types that a schema allows."""
    return frozenset(_collect_types_and_words(schema, root)[0])


def to_typed_json(text: str, schema: Schema | None, root: Schema | None = None) -> str:
    """Return `text` as JSON text of a type that `schema` allows. Local references are resolved in `root`."""
    types, words = _collect_types_and_words(schema, root)
    if types == {"string"} or text in words:
        return json_string(text)
    bare = text.strip()
    word = _CONSTANTS.get(bare.lower(), "") if schema is not None else ""
    for reading in (bare, word, *_generate_readings(bare)):
        kind = json_type(reading)
        if kind in types or (kind == "integer" and "number" in types) or (kind == "number" and _is_whole(reading) and "integer" in types):
            return reading if kind != "string" or "string" not in types else json_string(text)
    return "null" if word == "null" and "string" not in types else json_string(text)


def _generate_readings(text: str) -> Iterator[str]:
    """Yield other readings of a list or object: unquoted, in Python syntax, or unescaped once."""
    if text[:1] == '"':
        with suppress(ValueError, RecursionError):
            yield str(json.loads(text))
    if text[:1] in ("[", "{", "("):
        with suppress(ValueError):
            yield python_to_json(text)
        if '\\"' in text:
            with suppress(ValueError):
                yield str(json.loads(f'"{text}"'))


def _is_whole(number: str) -> bool:
    return float(number).is_integer()


def json_type(text: str) -> str:
    """Return the JSON Schema type of the JSON text; empty if it is not JSON."""
    try:
        value = json.loads(text, parse_constant=_reject_constant)
    except (ValueError, RecursionError):
        return ""
    match value:
        case bool():
            return "boolean"
        case None:
            return "null"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"


def _reject_constant(constant: str) -> None:
    raise ValueError(constant)


def _collect_types_and_words(schema: Schema | None, root: Schema | None) -> tuple[set[str], set[str]]:
    """Return the types that a schema allows, and the strings that it lists."""
    if schema is None:
        return set(_ALL_TYPES), set()
    types, words = set[str](), set[str]()
    for part in _walk_subschemas(schema, root):
        kind = part.get("type")
        named = kind if isinstance(kind, list) else [kind]
        types |= {_TYPES.get(one.lower(), one) for one in named if isinstance(one, str)}
        listed = part.get("enum")
        values = [*listed] if isinstance(listed, list) else []
        values += [part["const"]] if "const" in part else []
        words |= {value for value in values if isinstance(value, str)}
        if kind is None and values:
            types |= {json_type(json.dumps(value)) for value in values}
        elif kind is None and "properties" in part:
            types.add("object")
        elif kind is None and "items" in part:
            types.add("array")
    return types or set(_ALL_TYPES), words


def _walk_subschemas(schema: Schema, root: Schema | None) -> Iterator[Schema]:
    """Yield the schema, its alternatives and references, at most `_MAX_SUBSCHEMAS`."""
    waiting: list[object] = [schema]
    for _ in range(_MAX_SUBSCHEMAS):
        if not waiting:
            return
        part = waiting.pop()
        if not isinstance(part, Mapping):
            continue
        yield part
        for word in ("anyOf", "oneOf", "allOf"):
            inner = part.get(word)
            waiting += inner if isinstance(inner, list) else []
        if isinstance(part.get("$ref"), str):
            waiting.append(_resolve_reference(str(part["$ref"]), root))


def _resolve_reference(reference: str, root: Schema | None) -> object:
    found: object = root
    for step in reference.removeprefix("#/").split("/") if reference.startswith("#/") else ["?"]:
        found = found.get(step) if isinstance(found, Mapping) else None
    return found
