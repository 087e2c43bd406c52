"""Reduce JSON Schema to the dialect that function declarations are written in.

It knows no references, no `oneOf`, no `const`, only texts in an `enum`, few formats, and one type for each value; what it cannot say is
left out, or said in the description. The engine checks the arguments against the tool's own schema anyway.
"""

from __future__ import annotations

from collections.abc import Mapping

from callgate._json import json_text
from callgate.models.wire.json_fields import as_object, as_objects, as_text

__all__ = ["reduce_schema"]

_KEPT = ("nullable", "minItems", "maxItems", "minLength", "maxLength", "minimum", "maximum", "pattern")
_FORMATS = frozenset({"date-time", "enum", "int32", "int64", "float", "double"})
_TYPES = frozenset({"string", "number", "integer", "boolean", "array", "object"})

_Schema = dict[str, object]


def reduce_schema(schema: object, root: Mapping[str, object], within: frozenset[str] = frozenset()) -> _Schema:
    """`schema` in that dialect.

    Args:
        root: What references point into.
        within: The references that are being followed; one that comes back is an object of any shape.
    """
    plain = dict(as_object(schema))
    reference = as_text(plain.pop("$ref", ""))
    if reference:
        if reference in within:
            return {"type": "object"}
        within |= {reference}
        plain = {**_target(reference, root), **plain}
        if "$ref" in plain:
            return reduce_schema(plain, root, within)
    for branch in as_objects(plain.pop("allOf", None)):
        plain = _both(plain, reduce_schema(branch, root, within))
    alternatives = _alternatives(plain)
    if alternatives and not plain.get("properties"):
        return _any_of(plain, alternatives, root, within)
    return _one(plain, root, within)


def _target(reference: str, root: Mapping[str, object]) -> Mapping[str, object]:
    found: object = root if reference.startswith("#") else {}
    for step in reference.lstrip("#").split("/")[1:]:
        found = as_object(found).get(step.replace("~1", "/").replace("~0", "~"))
    return as_object(found)


def _both(one: _Schema, other: _Schema) -> _Schema:
    joined = {**other, **one}
    if "properties" in other:
        joined["properties"] = {**as_object(other["properties"]), **as_object(one.get("properties"))}
    required = [name for part in (one, other) for name in _names(part.get("required"))]
    return joined | {"required": required} if required else joined


def _alternatives(plain: _Schema) -> list[Mapping[str, object]]:
    branches = as_objects(plain.get("anyOf")) or as_objects(plain.get("oneOf"))
    types = plain.get("type")
    if not branches and isinstance(types, list):
        rest = {key: value for key, value in plain.items() if key != "type"}
        branches = [{**rest, "type": kind} for kind in types]
    return list(branches)


def _any_of(plain: _Schema, alternatives: list[Mapping[str, object]], root: Mapping[str, object], within: frozenset[str]) -> _Schema:
    """One of several: nothing may stand beside `anyOf`, and null is a property of the others."""
    described = {key: plain[key] for key in ("description",) if key in plain}
    real = [branch for branch in alternatives if branch.get("type") != "null"]
    made = [{**described, **reduce_schema(branch, root, within)} for branch in real]
    if len(real) < len(alternatives):
        made = [branch | {"nullable": True} for branch in made]
    if not made:
        return {**described, "type": "string", "nullable": True}
    return made[0] if len(made) == 1 else {"anyOf": made}


def _one(plain: _Schema, root: Mapping[str, object], within: frozenset[str]) -> _Schema:
    kind = _type_of(plain)
    made: _Schema = {"type": kind} | {key: plain[key] for key in _KEPT if key in plain}
    notes = [as_text(plain.get("description"))]
    if plain.get("format") in _FORMATS:
        made["format"] = plain["format"]
    elif plain.get("format"):
        notes.append(f"Format: {plain['format']}.")
    values = plain.get("enum", [plain["const"]] if "const" in plain else None)
    if isinstance(values, list):
        if kind == "string" and all(isinstance(value, str) and value for value in values):
            made["enum"] = values
        else:
            notes.append(f"One of: {', '.join(map(json_text, values))}.")
    if description := " ".join(note for note in notes if note):
        made["description"] = description
    return made | _inner(kind, plain, root, within)


def _inner(kind: str, plain: _Schema, root: Mapping[str, object], within: frozenset[str]) -> _Schema:
    if kind == "array":
        return {"items": _items(plain, root, within)}
    properties = as_object(plain.get("properties")) if kind == "object" else {}
    if not properties:
        return {}
    made: _Schema = {"properties": {name: reduce_schema(value, root, within) for name, value in properties.items()}}
    required = [name for name in dict.fromkeys(_names(plain.get("required"))) if name in properties]
    return made | {"required": required} if required else made


def _items(plain: _Schema, root: Mapping[str, object], within: frozenset[str]) -> _Schema:
    """One schema for all items; those of a tuple are alternatives."""
    items = plain.get("items")
    places = plain.get("prefixItems") if not isinstance(items, list) else items
    if isinstance(places, list) and places:
        return reduce_schema({"anyOf": places}, root, within)
    return reduce_schema(items, root, within)


def _type_of(plain: _Schema) -> str:
    """The type that is said, or that the other keywords mean; text, which can say anything, where there is none."""
    kind = as_text(plain.get("type")).lower()
    if kind in _TYPES:
        return kind
    if "properties" in plain or "additionalProperties" in plain:
        return "object"
    return "array" if "items" in plain or "prefixItems" in plain else "string"


def _names(value: object) -> list[str]:
    return [name for name in value if isinstance(name, str)] if isinstance(value, list) else []
