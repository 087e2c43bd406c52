"""Match what a model wrote against the tools' names and schemas.

Used for formats that ordinary text may also have. Such text counts as a call only if the tool exists, has the named
parameters, and requires no others. Compares names only; the engine validates types.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from callgate.models.dialects.known_tools import MAX_NAME_CHARS, KnownTools
from callgate.models.dialects.text_cursor import Incremental, TextCursor
from callgate.models.dialects.typed_values import json_object, json_string

__all__ = ["is_tool_definition", "matches_known_schema", "matches_schema", "peek_known_name", "single_text_argument"]

Schema = Mapping[str, object]
_NAME = re.compile(r"[\w.\-/]*")
_SCHEMA_KEYWORDS = frozenset({"type", "properties", "required", "additionalProperties", "title", "description", "$schema", "$defs"})


def is_tool_definition(arguments: str, schema: Schema | None) -> bool:
    """Whether these arguments are the schema of a tool's arguments, as a tool's definition contains it."""
    if '"object"' not in arguments:
        return False
    try:
        value = json.loads(arguments, strict=False)
    except (ValueError, RecursionError):
        return False
    if value.get("type") != "object" or not _SCHEMA_KEYWORDS.issuperset(value):
        return False
    properties = schema.get("properties") if schema is not None else None
    return "type" not in properties if isinstance(properties, Mapping) else isinstance(value.get("properties"), dict)


def matches_schema(arguments: str, schema: Schema | None) -> bool:
    """Whether the tool has all parameters of this object and requires no others; true if the schema is unknown."""
    properties = schema.get("properties") if schema is not None else None
    if schema is None or not isinstance(properties, Mapping):
        return True
    try:
        names = set(json.loads(arguments, strict=False))
    except (ValueError, RecursionError):
        return False
    required = schema.get("required")
    required_names = {one for one in required if isinstance(one, str)} if isinstance(required, list) else set()
    return names >= required_names and (names <= set(properties) or schema.get("additionalProperties") not in (None, False))


def matches_known_schema(arguments: str, schema: Schema | None) -> bool:
    """Whether the schema is known and has all parameters of this object, and requires no others.

    An object without members matches only a tool without parameters.
    """
    properties = schema.get("properties") if schema is not None else None
    return isinstance(properties, Mapping) and (arguments != "{}" or not properties) and matches_schema(arguments, schema)


def peek_known_name(cursor: TextCursor, tools: KnownTools) -> Incremental[str]:
    """Return the name of a known tool that comes next, or an empty string. Consumes nothing."""
    while True:
        ahead = cursor.ahead(MAX_NAME_CHARS)
        found = _NAME.match(ahead)
        word = found.group() if found else ""
        if len(word) == len(ahead) < MAX_NAME_CHARS and tools.any_begins_with(word) and (yield from cursor.wait_more()):
            continue
        return word if not tools.is_empty and tools.has(word.removesuffix(".call")) else ""


def single_text_argument(text: str, schema: Schema | None) -> str | None:
    """Return bare text as the value of a tool's only parameter.

    None if the tool has several parameters, or if its only parameter does not accept text.
    """
    properties = schema.get("properties") if schema is not None else None
    if not isinstance(properties, Mapping) or len(properties) != 1 or not text:
        return None
    ((key, inner),) = properties.items()
    if not isinstance(inner, Mapping) or inner.get("type") != "string":
        return None
    return json_object({key: json_string(text)})
