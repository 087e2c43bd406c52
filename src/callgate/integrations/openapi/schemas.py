"""Make the JSON Schema of a tool's arguments from the schemas of an OpenAPI document.

Schemas are copied unchanged, except that the schemas that they refer to are carried in `$defs`, that `nullable` of OpenAPI 3.0 becomes the
type `null`, and that `readOnly` properties, which only a server writes, are left out; no part of the same object requires them. Pure; the
document is not changed.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping
from copy import copy
from typing import Any

from callgate._schema.subschemas import Schema, mapping, subschemas
from callgate.errors import UsageError
from callgate.integrations.openapi.document import Document, describe_kind

__all__ = ["SchemaReader"]

_COMBINING = ("allOf", "anyOf", "oneOf")
_SAME_OBJECT = frozenset({*_COMBINING, "then", "else", "dependentSchemas"})
"""Keywords whose subschemas may require properties of the object; a condition (`if`, `not`) must not be weakened."""
_NOT_IN_NAME = re.compile(r"[^A-Za-z0-9._-]+")


class SchemaReader:
    """Reads the schemas of one operation, and collects in `definitions` what they refer to.

    Args:
        operation: The operation, for errors.
    """

    def __init__(self, document: Document, operation: str) -> None:
        self.definitions: dict[str, Any] = {}
        """The schemas under `$defs`, by name."""
        self._document = document
        self._operation = operation
        self._names: dict[tuple[str, frozenset[str]], str] = {}
        """The name in `$defs` of each `$ref`, with the properties that must not be required there."""
        self._unread: deque[tuple[str, frozenset[str], str]] = deque()

    def read(self, schema: object, place: str) -> Schema:
        """Return a schema for a property of the arguments, and read all schemas that it refers to.

        Args:
            place: Where the schema is in the operation, such as `parameters/limit`.

        Raises:
            UsageError: It is not a schema, or one of its references leads nowhere or to another document.
        """
        read: Schema = self._convert(schema, place)
        while self._unread:
            reference, hidden, name = self._unread.popleft()
            self.definitions[name] = self._convert(self._document.target(reference, self._where(place)), reference, hidden)
        return read

    def _where(self, place: str) -> str:
        return f"{self._operation}, {place}"

    def _convert(self, schema: object, place: str, hidden: frozenset[str] = frozenset()) -> Any:
        """Return a schema as JSON Schema.

        Args:
            hidden: Properties that another part of the same object leaves out.
        """
        if isinstance(schema, bool) and not self._document.is_3_0:
            return {} if schema else {"not": {}}
        if not isinstance(schema, Mapping):
            raise UsageError(f"{self._where(place)}: the schema is {describe_kind(schema)}; it must be an object.")
        made = dict(schema)
        if not made.keys().isdisjoint(("properties", *_COMBINING)) or made.keys() >= {"$ref", "required"}:
            hidden |= self._collect_hidden_names(made, place)[0]
        if "$ref" in made:
            made = self._reference(made, place, hidden)
        for keyword in ("$dynamicRef", "$recursiveRef"):
            if keyword in made:
                raise UsageError(f"{self._where(place)}: {keyword} cannot be read. Use $ref.")
        self._drop_read_only(made, place, hidden)
        self._convert_inside(made, place, hidden)
        return _with_null(made) if self._document.is_3_0 else made

    def _convert_inside(self, made: Schema, place: str, hidden: frozenset[str]) -> None:
        """Replace the subschemas. A list or map that holds some is copied first, because it belongs to the document."""
        copied = set[str]()
        for keyword, key, inner in subschemas(made):
            left_out = hidden if keyword in _SAME_OBJECT else frozenset[str]()
            if key is None:
                made[keyword] = self._convert(inner, f"{place}/{keyword}", left_out)
                continue
            if keyword not in copied:
                made[keyword] = copy(made[keyword])
                copied.add(keyword)
            made[keyword][key] = self._convert(inner, f"{place}/{keyword}/{key}", left_out)

    def _reference(self, schema: Schema, place: str, hidden: frozenset[str]) -> Schema:
        """Return the schema with a reference into `$defs`. In OpenAPI 3.0, keywords beside a reference have no effect."""
        reference = schema["$ref"]
        if self._document.is_3_0:
            schema = {key: schema[key] for key in ("$ref", "description") if key in schema}
        target = self._document.target(reference, self._where(place))
        if hidden:
            own, required = self._collect_hidden_names(target, place)
            hidden = (hidden - own) & required
        if (reference, hidden) not in self._names:
            self._names[reference, hidden] = name = self._free_name(reference)
            self._unread.append((reference, hidden, name))
        return schema | {"$ref": f"#/$defs/{self._names[reference, hidden]}"}

    def _free_name(self, reference: str) -> str:
        name = _NOT_IN_NAME.sub("_", reference.rpartition("/")[2]) or "document"
        taken, number = set(self._names.values()), 2
        free = name
        while free in taken:
            free, number = f"{name}_{number}", number + 1
        return free

    def _drop_read_only(self, schema: Schema, place: str, hidden: frozenset[str]) -> None:
        own = self._read_only(schema, place)
        if own:
            schema["properties"] = {name: inner for name, inner in schema["properties"].items() if name not in own}
        if hidden and isinstance(schema.get("required"), list):
            schema["required"] = [name for name in schema["required"] if name not in hidden]
            if not schema["required"]:
                del schema["required"]

    def _collect_hidden_names(self, schema: object, place: str) -> tuple[frozenset[str], frozenset[str]]:
        """Return the names that a schema and the schemas combined with it leave out, and those that they require."""
        hidden, required, seen, waiting = set[str](), set[str](), set[str](), [schema]
        while waiting:
            one = waiting.pop()
            if not isinstance(one, Mapping):
                continue
            reference = one.get("$ref")
            if isinstance(reference, str) and reference not in seen:
                seen.add(reference)
                waiting.append(self._document.target(reference, self._where(place)))
            if reference is None or not self._document.is_3_0:
                hidden |= self._read_only(one, place)
                required.update(name for name in _list(one, "required") if isinstance(name, str))
                waiting += [inner for keyword in _COMBINING for inner in _list(one, keyword)]
        return frozenset(hidden), frozenset(required)

    def _read_only(self, schema: Mapping[str, Any], place: str) -> set[str]:
        properties = mapping(dict(schema), "properties")
        return {name for name, inner in properties.items() if self._is_read_only(inner, f"{place}/properties/{name}")}

    def _is_read_only(self, schema: object, place: str, seen: frozenset[str] = frozenset()) -> bool:
        if not isinstance(schema, Mapping):
            return False
        if schema.get("readOnly") is True:
            return True
        if "$ref" in schema:
            target, reference = self._document.target(schema["$ref"], self._where(place)), str(schema["$ref"])
            return reference not in seen and self._is_read_only(target, place, seen | {reference})
        return any(self._is_read_only(one, f"{place}/allOf", seen) for one in _list(schema, "allOf"))


def _list(schema: Mapping[str, Any], keyword: str) -> list[Any]:
    found = schema.get(keyword)
    return found if isinstance(found, list) else []


def _with_null(schema: Schema) -> Schema:
    """Return a schema of OpenAPI 3.0 with `nullable` as JSON Schema writes it."""
    nullable = schema.pop("nullable", False)
    if nullable is not True:
        return schema
    if isinstance(schema.get("type"), str):
        if isinstance(schema.get("enum"), list) and None not in schema["enum"]:
            schema["enum"] = [*schema["enum"], None]
        return schema | {"type": [schema["type"], "null"]}
    return {"anyOf": [schema, {"type": "null"}]} if schema else schema
