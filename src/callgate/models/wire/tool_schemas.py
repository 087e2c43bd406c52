"""Tool schemas as providers take them: every one of them wants an object at the root, and most refuse alternatives there.

The engine checks arguments against the tool's own schema anyway; what is sent only has to tell the model enough. Knows no provider.
"""

from __future__ import annotations

from collections.abc import Mapping

from callgate.models.wire.json_fields import as_object, as_objects
from callgate.models.wire.request import ToolSpec

__all__ = ["FREE_TEXT_SCHEMA", "close_objects", "object_schema", "rename_properties", "tool_schema"]

FREE_TEXT_SCHEMA: Mapping[str, object] = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
"""What a tool that takes free text asks for where a provider knows no such tools."""

_ALTERNATIVES = ("anyOf", "oneOf", "allOf")


def tool_schema(tool: ToolSpec) -> dict[str, object]:
    """The arguments of a tool as a plain object schema."""
    return object_schema(FREE_TEXT_SCHEMA if tool.custom and not tool.schema else tool.schema)


def object_schema(schema: Mapping[str, object]) -> dict[str, object]:
    """`schema` with an object at its root: the properties of all alternatives, of which only what all demand stays required."""
    plain = {key: value for key, value in schema.items() if key not in (*_ALTERNATIVES, "$schema", "not", "enum", "if", "then", "else")}
    properties = dict(as_object(schema.get("properties")))
    required = _required(schema)
    for key in _ALTERNATIVES:
        branches = as_objects(schema.get(key))
        for branch in branches:
            inner = object_schema(_resolved(branch, schema))
            properties = {**as_object(inner["properties"]), **properties}
            if key == "allOf":
                required += _required(inner)
    plain |= {"type": "object", "properties": properties}
    if required := [name for name in dict.fromkeys(required) if name in properties]:
        plain["required"] = required
    else:
        plain.pop("required", None)
    return plain


def rename_properties(schema: Mapping[str, object], names: Mapping[str, str]) -> dict[str, object]:
    """An object schema with other names for some of its properties."""
    if not names:
        return dict(schema)
    renamed = {names.get(name, name): value for name, value in as_object(schema.get("properties")).items()}
    required = [names.get(name, name) for name in _required(schema)]
    return {**schema, "properties": renamed} | ({"required": required} if required else {})


def close_objects(schema: object) -> object:
    """`schema` with every object in it closed to further keys, as structured answers demand."""
    if isinstance(schema, list):
        return [close_objects(item) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    inner = {key: close_objects(value) for key, value in schema.items()}
    return inner | {"additionalProperties": False} if schema.get("type") == "object" and "properties" in schema else inner


def _required(schema: Mapping[str, object]) -> list[str]:
    names = schema.get("required")
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


def _resolved(branch: Mapping[str, object], root: Mapping[str, object]) -> Mapping[str, object]:
    """The branch itself, or what it refers to inside the schema, one step far."""
    reference = branch.get("$ref")
    if not isinstance(reference, str) or not reference.startswith("#/"):
        return branch
    found: object = root
    for step in reference[2:].split("/"):
        found = as_object(found).get(step.replace("~1", "/").replace("~0", "~"))
    return {key: value for key, value in as_object(found).items() if key != "$ref"}
