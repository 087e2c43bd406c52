"""Where schemas stand inside a schema. One table, read by everything that walks one.

Knows the keywords of all drafts from 4 to 2020-12 together: a keyword that a draft does not know is harmless to look into.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

__all__ = ["IN_PLACE", "Schema", "everywhere", "mapping", "pointer", "subschemas"]

Schema = dict[str, Any]

IN_PLACE = frozenset({"allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "dependencies"})
"""Keywords whose schemas are applied to the very value their own schema is applied to."""

_ONE = ("not", "if", "then", "else", "additionalProperties", "unevaluatedProperties", "propertyNames", "contains")
_ONE_OR_LIST = ("items", "additionalItems", "unevaluatedItems", "allOf", "anyOf", "oneOf", "prefixItems")
_MAPS = ("properties", "patternProperties", "dependentSchemas", "dependencies", "$defs", "definitions")


def subschemas(schema: Schema) -> Iterator[tuple[str, str | int | None, Schema]]:
    """Each object schema directly inside `schema`: its keyword, its key or index there, and itself."""
    for keyword in _ONE:
        if isinstance(schema.get(keyword), dict):
            yield keyword, None, schema[keyword]
    for keyword in _ONE_OR_LIST:
        found = schema.get(keyword)
        if isinstance(found, dict):
            yield keyword, None, found
        elif isinstance(found, list):
            for index, item in enumerate(found):
                if isinstance(item, dict):
                    yield keyword, index, item
    for keyword in _MAPS:
        found = schema.get(keyword)
        if isinstance(found, dict):
            for name, item in found.items():
                if isinstance(item, dict):
                    yield keyword, name, item


def mapping(schema: Schema, keyword: str) -> Schema:
    """What `keyword` maps; empty where it is absent, or something else in a draft that does not know it."""
    found = schema.get(keyword)
    return found if isinstance(found, dict) else {}


def everywhere(root: Schema) -> Iterator[tuple[str, Schema]]:
    """`root` and every schema inside, each with its JSON pointer."""
    stack = [("", root)]
    while stack:
        path, schema = stack.pop()
        yield path, schema
        for keyword, key, inner in subschemas(schema):
            stack.append((path + pointer([keyword] if key is None else [keyword, key]), inner))


def pointer(path: list[str | int]) -> str:
    """A JSON pointer of these steps."""
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in path)
