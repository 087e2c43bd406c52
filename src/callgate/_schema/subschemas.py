"""Find the subschemas of a schema. All code that walks a schema uses the table of keywords in this module.

The table has the keywords of all drafts from 4 to 2020-12. It does no harm to follow a keyword that the schema's draft
does not define.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

__all__ = ["IN_PLACE", "Schema", "Schemas", "everywhere", "mapping", "pointer", "subschemas"]

Schema = dict[str, Any]
Schemas = Sequence[tuple[str, Schema]]
"""The schemas of a document, each with its JSON pointer."""

IN_PLACE = frozenset({"allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "dependencies"})
"""Keywords whose subschemas apply to the same value as the schema that contains them."""

_ONE = ("not", "if", "then", "else", "additionalProperties", "unevaluatedProperties", "propertyNames", "contains")
_ONE_OR_LIST = ("items", "additionalItems", "unevaluatedItems", "allOf", "anyOf", "oneOf", "prefixItems")
_MAPS = ("properties", "patternProperties", "dependentSchemas", "dependencies", "$defs", "definitions")
_ORDER = {keyword: number for number, keyword in enumerate((*_ONE, *_ONE_OR_LIST, *_MAPS))}


def subschemas(schema: Schema) -> Iterator[tuple[str, str | int | None, Schema]]:
    """Yield each object schema directly inside `schema`: keyword, key or index, schema."""
    if _ORDER.keys().isdisjoint(schema):
        return
    present = _ORDER.keys() & schema.keys()
    for keyword in sorted(present, key=_ORDER.__getitem__) if len(present) > 1 else present:
        found = schema[keyword]
        items: Iterable[tuple[str | int | None, Any]] = ()
        if isinstance(found, dict):
            items = found.items() if keyword in _MAPS else ((None, found),)
        elif isinstance(found, list) and keyword in _ONE_OR_LIST:
            items = enumerate(found)
        for key, item in items:
            if isinstance(item, dict):
                yield keyword, key, item


def mapping(schema: Schema, keyword: str) -> Schema:
    """Return the object under `keyword`. Return an empty dict if it is absent or not an object."""
    found = schema.get(keyword)
    return found if isinstance(found, dict) else {}


def everywhere(root: Schema) -> Schemas:
    """Return `root` and every schema inside it, each with its JSON pointer."""
    found = list[tuple[str, Schema]]()
    stack = [("", root)]
    while stack:
        path, schema = stack.pop()
        found.append((path, schema))
        for keyword, key, inner in subschemas(schema):
            stack.append((f"{path}/{keyword}" if key is None else f"{path}/{keyword}{pointer([key])}", inner))
    return found


def pointer(path: list[str | int]) -> str:
    """Return the JSON pointer for these keys and indexes."""
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in path)
