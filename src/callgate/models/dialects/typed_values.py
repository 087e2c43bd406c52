"""Values that a model wrote as bare text, as JSON text of the type that the tool's schema names.

Text stays text wherever only text is allowed. Where the schema is silent, what reads as JSON other than a string is taken as JSON. What
does not fit stays text, for the engine to coerce or to refuse. Lossless: a number keeps its digits. Never follows a reference out of the
schema.
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
_ANY = frozenset({"string", "integer", "number", "boolean", "null", "array", "object"})
_NAMES = {
    "string": "str text char varchar",
    "integer": "int int32 int64 uint long short",
    "number": "num float float32 float64 double decimal",
    "boolean": "bool",
    "array": "arr list tuple set",
    "object": "obj dict map",
    "null": "none nil",
}
_KINDS = {name: kind for kind, names in _NAMES.items() for name in (kind, *names.split())}
"""What schemas that were written by hand call the types."""
_WORDS = {"true": "true", "false": "false", "null": "null", "none": "null"}
_MAX_STEPS = 32


def json_string(text: str) -> str:
    """`text` as a JSON string. Takes every text, lone surrogates as well."""
    return json.dumps(text, ensure_ascii=False)


def json_object(members: Mapping[str, str]) -> str:
    """A JSON object from names to JSON texts."""
    return "{" + ", ".join(f"{json_string(name)}: {value}" for name, value in members.items()) + "}"


def parameter_schema(schema: Schema | None, name: str) -> Schema | None:
    """What a tool's schema says of one parameter."""
    properties = schema.get("properties") if schema is not None else None
    found = properties.get(name) if isinstance(properties, Mapping) else None
    return found if isinstance(found, Mapping) else None


def items_schema(schema: Schema | None) -> Schema | None:
    """What a list's schema says of its items."""
    found = schema.get("items") if schema is not None else None
    return found if isinstance(found, Mapping) else None


def is_text_only(schema: Schema | None, root: Schema | None = None) -> bool:
    """Whether a schema allows nothing but text."""
    return allowed_types(schema, root) == {"string"}


def has_parameter(schema: Schema | None, name: str) -> bool:
    """Whether a tool may have a parameter of this name: one of its schema, or any where that names none."""
    properties = schema.get("properties") if schema is not None else None
    return not isinstance(properties, Mapping) or not properties or name in properties


def nested_schema(schema: Schema | None, name: str, root: Schema | None) -> Schema | None:
    """What a value's schema says of one of its members, or of the items that it is a list of."""
    parts = [*_parts(schema, root)] if schema is not None else []
    members = (parameter_schema(part, name) for part in parts)
    others = (part.get("additionalProperties") for part in parts)
    return next((found for found in (*members, *map(items_schema, parts), *others) if isinstance(found, Mapping)), None)


def allowed_types(schema: Schema | None, root: Schema | None) -> frozenset[str]:
    """The JSON Schema types that a schema allows."""
    return frozenset(_allowed(schema, root)[0])


def to_typed_json(text: str, schema: Schema | None, root: Schema | None = None) -> str:
    """`text` as JSON text, by `schema`, whose local references are into `root`."""
    kinds, words = _allowed(schema, root)
    if kinds == {"string"} or text in words:
        return json_string(text)
    bare = text.strip()
    word = _WORDS.get(bare.lower(), "") if schema is not None else ""
    for reading in (bare, word, *_rewritten(bare)):
        kind = json_type(reading)
        if kind in kinds or (kind == "integer" and "number" in kinds) or (kind == "number" and _is_whole(reading) and "integer" in kinds):
            return reading if kind != "string" or "string" not in kinds else json_string(text)
    return json_string(text)


def _rewritten(text: str) -> Iterator[str]:
    """A list or object in Python's words, or escaped once more, with the quotes around it or without."""
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
    """The JSON Schema type of what `text` is as JSON; nothing if it is no JSON."""
    try:
        value = json.loads(text, parse_constant=_refuse)
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


def _refuse(constant: str) -> None:
    raise ValueError(constant)


def _allowed(schema: Schema | None, root: Schema | None) -> tuple[set[str], set[str]]:
    """The types that a schema allows, and the texts that it lists."""
    if schema is None:
        return set(_ANY), set()
    kinds, words = set[str](), set[str]()
    for part in _parts(schema, root):
        kind = part.get("type")
        named = kind if isinstance(kind, list) else [kind]
        kinds |= {_KINDS.get(one.lower(), one) for one in named if isinstance(one, str)}
        listed = part.get("enum")
        values = [*listed] if isinstance(listed, list) else []
        values += [part["const"]] if "const" in part else []
        words |= {value for value in values if isinstance(value, str)}
        if kind is None and values:
            kinds |= {json_type(json.dumps(value)) for value in values}
        elif kind is None and "properties" in part:
            kinds.add("object")
        elif kind is None and "items" in part:
            kinds.add("array")
    return kinds or set(_ANY), words


def _parts(schema: Schema, root: Schema | None) -> Iterator[Schema]:
    """The schema, its alternatives and what it refers to, a bounded number of them."""
    waiting: list[object] = [schema]
    for _ in range(_MAX_STEPS):
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
            waiting.append(_referred(str(part["$ref"]), root))


def _referred(reference: str, root: Schema | None) -> object:
    found: object = root
    for step in reference.removeprefix("#/").split("/") if reference.startswith("#/") else ["?"]:
        found = found.get(step) if isinstance(found, Mapping) else None
    return found
