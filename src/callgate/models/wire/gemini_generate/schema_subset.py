"""Reduce JSON Schema to the subset that Gemini's function declarations accept.

The subset has no references, no `oneOf`, no `const`, only strings in `enum`, few formats, and one type per value. What it cannot express is
dropped or put into the description. The engine validates arguments against the tool's own schema. References are replaced by what they
point to, up to a limit, because a short schema whose references branch can stand for more objects than memory holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from callgate._json import json_text
from callgate.models.wire.json_fields import as_object, as_objects, as_text

__all__ = ["FollowedReferences", "reduce_schema"]

_KEPT_KEYWORDS = ("nullable", "minItems", "maxItems", "minLength", "maxLength", "minimum", "maximum", "pattern")
_FORMATS = frozenset({"date-time", "enum", "int32", "int64", "float", "double"})
_TYPES = frozenset({"string", "number", "integer", "boolean", "array", "object"})

_Schema = dict[str, object]
_MAX_SCHEMAS = 10_000
"""How many schemas of a tool are reduced before no further reference is followed."""
_MAX_DEPTH = 100
"""The nesting below which no reference is followed."""


class FollowedReferences:
    """Resolves the references of a schema, and limits how many are followed.

    Args:
        root: The schema that references point into.
    """

    def __init__(self, root: Mapping[str, object]) -> None:
        self._root = root
        self._schemas = 0
        self._depth = 0

    @contextmanager
    def reducing(self) -> Iterator[None]:
        """Count a schema that is reduced in the block."""
        self._schemas += 1
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1

    @property
    def used_up(self) -> bool:
        """Whether no further reference is followed here."""
        return self._schemas > _MAX_SCHEMAS or self._depth > _MAX_DEPTH

    def resolve(self, reference: str) -> Mapping[str, object]:
        """Return the schema that a reference points to; empty if there is none."""
        found: object = self._root if reference.startswith("#") else {}
        for step in reference.lstrip("#").split("/")[1:]:
            found = as_object(found).get(step.replace("~1", "/").replace("~0", "~"))
        return as_object(found)


def reduce_schema(schema: object, references: FollowedReferences, seen_references: frozenset[str] = frozenset()) -> _Schema:
    """Return `schema` in the subset. A recursive reference, or one above the limit, becomes an object of any shape.

    Args:
        schema: Any JSON Schema.
        seen_references: The references being followed.
    """
    with references.reducing():
        plain = dict(as_object(schema))
        reference = as_text(plain.pop("$ref", ""))
        if reference:
            if reference in seen_references or references.used_up:
                return {"type": "object"}
            seen_references |= {reference}
            plain = {**references.resolve(reference), **plain}
            if "$ref" in plain:
                return reduce_schema(plain, references, seen_references)
        for branch in as_objects(plain.pop("allOf", None)):
            plain = _merge(plain, reduce_schema(branch, references, seen_references))
        alternatives = _alternatives(plain)
        if alternatives and not plain.get("properties"):
            return _any_of(plain, alternatives, references, seen_references)
        return _reduce_plain(plain, references, seen_references)


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
    plain: _Schema, alternatives: list[Mapping[str, object]], references: FollowedReferences, seen_references: frozenset[str]
) -> _Schema:
    """Reduce alternatives: `anyOf` must be the only keyword, and null becomes `nullable`."""
    described = {key: plain[key] for key in ("description",) if key in plain}
    branches = [branch for branch in alternatives if branch.get("type") != "null"]
    result = [{**described, **reduce_schema(branch, references, seen_references)} for branch in branches]
    if len(branches) < len(alternatives):
        result = [branch | {"nullable": True} for branch in result]
    if not result:
        return {**described, "type": "string", "nullable": True}
    return result[0] if len(result) == 1 else {"anyOf": result}


def _reduce_plain(plain: _Schema, references: FollowedReferences, seen_references: frozenset[str]) -> _Schema:
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
    return result | _reduce_children(kind, plain, references, seen_references)


def _reduce_children(kind: str, plain: _Schema, references: FollowedReferences, seen_references: frozenset[str]) -> _Schema:
    if kind == "array":
        return {"items": _reduce_items(plain, references, seen_references)}
    properties = as_object(plain.get("properties")) if kind == "object" else {}
    if not properties:
        return {}
    result: _Schema = {"properties": {name: reduce_schema(value, references, seen_references) for name, value in properties.items()}}
    required = [name for name in dict.fromkeys(_required_names(plain.get("required"))) if name in properties]
    return result | {"required": required} if required else result


def _reduce_items(plain: _Schema, references: FollowedReferences, seen_references: frozenset[str]) -> _Schema:
    """Return one schema for all items; the items of a tuple become alternatives."""
    items = plain.get("items")
    tuple_items = plain.get("prefixItems") if not isinstance(items, list) else items
    if isinstance(tuple_items, list) and tuple_items:
        return reduce_schema({"anyOf": tuple_items}, references, seen_references)
    return reduce_schema(items, references, seen_references)


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
