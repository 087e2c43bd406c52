"""Adapt tool schemas to what providers accept: an object at the root, without alternatives or a reference at that level, and objects
where JSON Schema also allows `true` and `false`.

The engine validates arguments against the tool's own schema; the schema that is sent only informs the model. Knows no
provider.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

from callgate._schema.subschemas import everywhere
from callgate._schema.tool_schema_repair import in_current_draft
from callgate.models.wire.json_fields import as_object, as_objects
from callgate.models.wire.request import ToolSpec

__all__ = [
    "FREE_TEXT_SCHEMA",
    "close_objects",
    "object_schema",
    "rename_properties",
    "resolve_reference",
    "tool_schema",
    "with_item_schemas",
]

FREE_TEXT_SCHEMA: Mapping[str, object] = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
"""The schema of a tool that takes free text, for providers without such tools."""

_ALTERNATIVES = ("anyOf", "oneOf", "allOf")
_MAPS_OF_SCHEMAS = ("properties", "patternProperties", "$defs", "definitions")
_LISTS_OF_SCHEMAS = (*_ALTERNATIVES, "prefixItems")


def tool_schema(tool: ToolSpec) -> dict[str, object]:
    """Return the arguments of a tool as a plain object schema of draft 2020-12, which providers assume."""
    return object_schema(FREE_TEXT_SCHEMA if tool.custom and not tool.schema else _without_boolean_schemas(in_current_draft(tool.schema)))


def object_schema(schema: Mapping[str, object]) -> dict[str, object]:
    """Return `schema` as an object schema with the properties of all alternatives and of the schema that its root refers to.

    The required properties are those of `schema` itself, of every branch of `allOf` and of that schema.
    """
    if isinstance(schema.get("$ref"), str):
        rest = {key: value for key, value in schema.items() if key != "$ref"}
        schema = {**rest, "allOf": [*as_objects(schema.get("allOf")), {"$ref": schema["$ref"]}]}
    result = {key: value for key, value in schema.items() if key not in (*_ALTERNATIVES, "$schema", "not", "enum", "if", "then", "else")}
    properties = dict(as_object(schema.get("properties")))
    required = _required(schema)
    for key in _ALTERNATIVES:
        branches = as_objects(schema.get(key))
        for branch in branches:
            nested = object_schema(resolve_reference(branch, schema))
            properties = {**as_object(nested["properties"]), **properties}
            if key == "allOf":
                required += _required(nested)
    result |= {"type": "object", "properties": properties}
    if required := [name for name in dict.fromkeys(required) if name in properties]:
        result["required"] = required
    else:
        result.pop("required", None)
    return result


def with_item_schemas(schema: dict[str, object]) -> dict[str, object]:
    """Return `schema` with an object under `items` in every array: OpenAI refuses a request with any other array.

    The items of a tuple become alternatives there, because OpenAI does not read `prefixItems`.
    """
    if not any(_lacks_items(array) for _, array in everywhere(schema)):
        return schema
    changed = copy.deepcopy(schema)
    for _, array in everywhere(changed):
        if _lacks_items(array):
            first = as_objects(array.get("prefixItems"))
            if array.get("items") is False:
                array.setdefault("maxItems", len(first))
            array["items"] = {"anyOf": list(first)} if first else {}
    return changed


def _lacks_items(schema: Mapping[str, object]) -> bool:
    kinds = schema.get("type")
    return (kinds == "array" or (isinstance(kinds, list) and "array" in kinds)) and not isinstance(schema.get("items"), dict)


def _without_boolean_schemas(schema: Mapping[str, object]) -> Mapping[str, object]:
    """Return `schema` with objects in place of the schemas `true` and `false`, which some SDKs refuse."""
    if not any(isinstance(found, bool) for found, _, _ in _schemas_inside(schema)):
        return schema
    changed = copy.deepcopy(dict(schema))
    for found, holder, key in list(_schemas_inside(changed)):
        if isinstance(found, bool):
            holder[key] = {} if found else {"not": {}}
    return changed


def _schemas_inside(root: Mapping[str, object]) -> Iterator[tuple[object, Any, Any]]:
    """Yield each value that is a schema inside of `root`, with the map or list that holds it and its place there."""
    for _, schema in everywhere(dict(root)):
        for keyword in _MAPS_OF_SCHEMAS:
            holder = schema.get(keyword)
            yield from [(found, holder, key) for key, found in holder.items()] if isinstance(holder, dict) else ()
        for keyword in _LISTS_OF_SCHEMAS:
            listed = schema.get(keyword)
            yield from [(found, listed, key) for key, found in enumerate(listed)] if isinstance(listed, list) else ()


def rename_properties(schema: Mapping[str, object], names: Mapping[str, str]) -> dict[str, object]:
    """Return an object schema with some of its properties renamed."""
    if not names:
        return dict(schema)
    renamed = {names.get(name, name): value for name, value in as_object(schema.get("properties")).items()}
    required = [names.get(name, name) for name in _required(schema)]
    return {**schema, "properties": renamed} | ({"required": required} if required else {})


def close_objects(schema: object) -> object:
    """Return `schema` with `additionalProperties: false` in every object, as structured answers require."""
    if isinstance(schema, list):
        return [close_objects(item) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    nested = {key: close_objects(value) for key, value in schema.items()}
    return nested | {"additionalProperties": False} if schema.get("type") == "object" and "properties" in schema else nested


def _required(schema: Mapping[str, object]) -> list[str]:
    names = schema.get("required")
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


def resolve_reference(branch: Mapping[str, object], root: Mapping[str, object]) -> Mapping[str, object]:
    """Return the branch, or the schema that its reference points to. Follows one reference only."""
    reference = branch.get("$ref")
    if not isinstance(reference, str) or not reference.startswith("#/"):
        return branch
    found: object = root
    for step in reference[2:].split("/"):
        found = as_object(found).get(step.replace("~1", "/").replace("~0", "~"))
    return {key: value for key, value in as_object(found).items() if key != "$ref"}
