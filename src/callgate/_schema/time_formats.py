"""Add the formats `date-time` and `time` to schemas that msgspec made.

msgspec describes these values as plain text, because a format does not tell whether a time zone may be missing. With
the format, a model knows what to write, and the validator reports invalid text with its place. Pure.
"""

from __future__ import annotations

from typing import Any

import msgspec

from callgate._schema.subschemas import Schema, mapping

__all__ = ["add_time_formats"]

_REF = "#/$defs/"


def add_time_formats(kind: Any, schema: Schema, defs: Schema) -> None:
    """Add the formats to a type's schema, in place.

    Args:
        kind: The type.
        schema: The type's schema.
        defs: The schemas that references in `schema` name.
    """
    _add(msgspec.inspect.type_info(kind), schema, defs, set())


def _add(info: Any, schema: Any, defs: Schema, seen: set[str]) -> None:
    known = msgspec.inspect
    if not isinstance(schema, dict):
        return
    match info:
        case known.Metadata():
            _add(info.type, schema, defs, seen)
        case known.DateTimeType():
            schema.setdefault("format", "date-time")
        case known.TimeType():
            schema.setdefault("format", "time")
        case known.ListType() | known.SetType() | known.FrozenSetType() | known.VarTupleType() | known.CollectionType():
            _add(info.item_type, schema.get("items"), defs, seen)
        case known.TupleType():
            for one, inner in zip(info.item_types, schema.get("prefixItems", ()), strict=False):
                _add(one, inner, defs, seen)
        case known.DictType():
            _add(info.value_type, schema.get("additionalProperties"), defs, seen)
        case known.UnionType():
            for branch in schema.get("anyOf", ()):
                _add_to_branch(info, branch, defs, seen)
        case _ if hasattr(info, "fields"):
            _add_to_fields(info, schema, defs, seen)


def _add_to_branch(info: msgspec.inspect.UnionType, branch: Schema, defs: Schema, seen: set[str]) -> None:
    """Add the formats to one alternative of a union.

    At most one type of a union is text, one a list, and one an object.
    """
    text = (msgspec.inspect.DateTimeType, msgspec.inspect.TimeType)
    kind = branch.get("type")
    for one in info.types:
        is_time = isinstance(one, text)
        if is_time == (kind == "string") and (is_time or kind in ("array", "object", None)):
            _add(one, branch, defs, seen)


def _add_to_fields(info: Any, schema: Schema, defs: Schema, seen: set[str]) -> None:
    name = str(schema.get("$ref", "")).removeprefix(_REF)
    if name in seen:
        return
    seen.add(name)
    properties = mapping(defs.get(name, schema), "properties")
    for field in info.fields:
        _add(field.type, properties.get(getattr(field, "encode_name", "")), defs, seen)
