"""Whether what a model wrote can be a call, where nothing but the tools' names and schemas say so.

For forms that ordinary text may have as well: they count only if there is such a tool, with the parameters that are named, which needs no
others. Looks at names alone; types are for the engine to judge.
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
_WORD = re.compile(r"[\w.\-]*")
_OF_SCHEMAS = frozenset({"type", "properties", "required", "additionalProperties", "title", "description", "$schema", "$defs"})


def is_tool_definition(arguments: str, schema: Schema | None) -> bool:
    """Whether this is the schema of a tool's arguments, as a definition of the tool has it in their place, and no arguments."""
    if '"object"' not in arguments:
        return False
    try:
        value = json.loads(arguments, strict=False)
    except (ValueError, RecursionError):
        return False
    if value.get("type") != "object" or not _OF_SCHEMAS.issuperset(value):
        return False
    properties = schema.get("properties") if schema is not None else None
    return "type" not in properties if isinstance(properties, Mapping) else isinstance(value.get("properties"), dict)


def matches_schema(arguments: str, schema: Schema | None) -> bool:
    """Whether a tool has the parameters of this object, and needs no others."""
    properties = schema.get("properties") if schema is not None else None
    if schema is None or not isinstance(properties, Mapping):
        return True
    try:
        given = set(json.loads(arguments, strict=False))
    except (ValueError, RecursionError):
        return False
    required = schema.get("required")
    needed = {one for one in required if isinstance(one, str)} if isinstance(required, list) else set()
    return given >= needed and (given <= set(properties) or schema.get("additionalProperties") not in (None, False))


def matches_known_schema(arguments: str, schema: Schema | None) -> bool:
    """Whether a schema that is known has just these parameters; none at all only if the tool has none."""
    properties = schema.get("properties") if schema is not None else None
    return isinstance(properties, Mapping) and (arguments != "{}" or not properties) and matches_schema(arguments, schema)


def peek_known_name(cursor: TextCursor, tools: KnownTools) -> Incremental[str]:
    """The name of a tool that is known to exist, if it comes next; nothing if not. It is not read."""
    while True:
        ahead = cursor.ahead(MAX_NAME_CHARS)
        found = _WORD.match(ahead)
        word = found.group() if found else ""
        if len(word) == len(ahead) < MAX_NAME_CHARS and tools.any_begins_with(word) and (yield from cursor.wait_more()):
            continue
        return word if not tools.is_empty and tools.has(word.removesuffix(".call")) else ""


def single_text_argument(text: str, schema: Schema | None) -> str | None:
    """Bare text as the value of a tool's only parameter; None if the tool has more than one, or that one is no text."""
    properties = schema.get("properties") if schema is not None else None
    if not isinstance(properties, Mapping) or len(properties) != 1 or not text:
        return None
    ((key, inner),) = properties.items()
    if not isinstance(inner, Mapping) or inner.get("type") != "string":
        return None
    return json_object({key: json_string(text)})
