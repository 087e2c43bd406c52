"""Reduce JSON Schema to the subset that Gemini's function declarations accept.

The subset has no references, no `oneOf`, no `const`, only strings in `enum`, few formats, and one type per value. What it cannot express is
dropped or put into the description. The engine validates arguments against the tool's own schema.
"""

from __future__ import annotations

from collections.abc import Mapping

from callgate._json import json_text
from callgate.models.wire.json_fields import as_object, as_objects, as_text

__all__ = ["reduce_schema"]

_KEPT_KEYWORDS = ("nullable", "minItems", "maxItems", "minLength", "maxLength", "minimum", "maximum", "pattern")
_FORMATS = frozenset({"date-time", "enum", "int32", "int64", "float", "double"})
_TYPES = frozenset({"string", "number", "integer", "boolean", "array", "object"})

_Schema = dict[str, object]


def reduce_schema(schema: object, root: Mapping[str, object], seen_references: frozenset[str] = frozenset()) -> _Schema:
    """Return `schema` in the subset.

    Args:
        schema: Any JSON Schema.
        root: The schema that references point into.
        seen_references: The references being followed; a recursive one becomes an object of any shape.
    """
    plain = dict(as_object(schema))
    reference = as_text(plain.pop("$ref", ""))
    if reference:
        if reference in seen_references:
            return {"type": "object"}
        seen_references |= {reference}
        plain = {**_resolve(reference, root), **plain}
        if "$ref" in plain:
            return reduce_schema(plain, root, seen_references)
    for branch in as_objects(plain.pop("allOf", None)):
        plain = _merge(plain, reduce_schema(branch, root, seen_references))
    alternatives = _alternatives(plain)
    if alternatives and not plain.get("properties"):
        return _any_of(plain, alternatives, root, seen_references)
    return _reduce_plain(plain, root, seen_references)


def _resolve(reference: str, root: Mapping[str, object]) -> Mapping[str, object]:
    found: object = root if reference.startswith("#") else {}
    for step in reference.lstrip("#").split("/")[1:]:
        found = as_object(found).get(step.replace("~1", "/").replace("~0", "~"))
    return as_object(found)


def _merge(one: _Schema, other: _Schema) -> _Schema:
    joined = {**other, **one}
    if "properties" in other:
        joined["properties"] = {**as_object(other["properties"]), **as_object(one.get("properties"))}
    required = [name for part in (one, other) for name in _required_names(part.get("required"))]
    return joined | {"required": required} if required else joined


def _alternatives(plain: _Schema) -> list[Mapping[str, object]]:
    branches = as_objects(plain.get("anyOf")) or as_objects(plain.get("oneOf"))
    types = plain.get("type")
    if not branches and isinstance(types, list):
        rest = {key: value for key, value in plain.items() if key != "type"}
        branches = [{**rest, "type": kind} for kind in types]
    return list(branches)


def _any_of(
    plain: _Schema, alternatives: list[Mapping[str, object]], root: Mapping[str, object], seen_references: frozenset[str]
) -> _Schema:
    """Reduce alternatives: `anyOf` must be the only keyword, and null becomes `nullable`."""
    described = {key: plain[key] for key in ("description",) if key in plain}
    branches = [branch for branch in alternatives if branch.get("type") != "null"]
    result = [{**described, **reduce_schema(branch, root, seen_references)} for branch in branches]
    if len(branches) < len(alternatives):
        result = [branch | {"nullable": True} for branch in result]
    if not result:
        return {**described, "type": "string", "nullable": True}
    return result[0] if len(result) == 1 else {"anyOf": result}


def _reduce_plain(plain: _Schema, root: Mapping[str, object], seen_references: frozenset[str]) -> _Schema:
    kind = _infer_type(plain)
    result: _Schema = {"type": kind} | {key: plain[key] for key in _KEPT_KEYWORDS if key in plain}
    notes = [as_text(plain.get("description"))]
    if plain.get("format") in _FORMATS:
        result["format"] = plain["format"]
    elif plain.get("format"):
        notes.append(f"Format: {plain['format']}.")
    values = plain.get("enum", [plain["const"]] if "const" in plain else None)
    if isinstance(values, list):
        if kind == "string" and all(isinstance(value, str) and value for value in values):
            result["enum"] = values
        else:
            notes.append(f"One of: {', '.join(map(json_text, values))}.")
    if description := " ".join(note for note in notes if note):
        result["description"] = description
    return result | _reduce_children(kind, plain, root, seen_references)


def _reduce_children(kind: str, plain: _Schema, root: Mapping[str, object], seen_references: frozenset[str]) -> _Schema:
    if kind == "array":
        return {"items": _reduce_items(plain, root, seen_references)}
    properties = as_object(plain.get("properties")) if kind == "object" else {}
    if not properties:
        return {}
    result: _Schema = {"properties": {name: reduce_schema(value, root, seen_references) for name, value in properties.items()}}
    required = [name for name in dict.fromkeys(_required_names(plain.get("required"))) if name in properties]
    return result | {"required": required} if required else result


def _reduce_items(plain: _Schema, root: Mapping[str, object], seen_references: frozenset[str]) -> _Schema:
    """Return one schema for all items; the items of a tuple become alternatives."""
    items = plain.get("items")
    tuple_items = plain.get("prefixItems") if not isinstance(items, list) else items
    if isinstance(tuple_items, list) and tuple_items:
        return reduce_schema({"anyOf": tuple_items}, root, seen_references)
    return reduce_schema(items, root, seen_references)


def _infer_type(plain: _Schema) -> str:
    """Return the declared type, or the type that other keywords imply; string, which accepts any text, if there is none."""
    kind = as_text(plain.get("type")).lower()
    if kind in _TYPES:
        return kind
    if "properties" in plain or "additionalProperties" in plain:
        return "object"
    return "array" if "items" in plain or "prefixItems" in plain else "string"


def _required_names(value: object) -> list[str]:
    return [name for name in value if isinstance(name, str)] if isinstance(value, list) else []
