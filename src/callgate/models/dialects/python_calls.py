"""Calls written as Python calls: `name(key=value)`, alone or in a list.

Arguments without a name are taken in the order of the tool's schema, if that is known. Knows no markers: dialects do.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from callgate.models.dialects.dialect import ParsedCalls
from callgate.models.dialects.known_tools import KnownTools
from callgate.models.dialects.parsed_parts import FoundCall
from callgate.models.dialects.python_literals import parse_keyword_arguments
from callgate.models.dialects.schema_matching import matches_schema
from callgate.models.dialects.text_cursor import Incremental, NotACall, TextCursor
from callgate.models.dialects.typed_values import json_object

__all__ = ["parse_python_arguments", "read_python_calls"]

_NAME = re.compile(r"[\w.\-]*")
_BREAK = re.compile(r"[\s,;]*")
_SUFFIX = ".call"


def read_python_calls(cursor: TextCursor, tools: KnownTools, *, known: bool = False, listed: bool = False) -> ParsedCalls:
    """Read one call after the other, in square brackets or not.

    Args:
        cursor: Stands where they start.
        tools: Their schemas name the arguments that come without a name.
        known: Only calls of tools that may be called without markers are calls.
        listed: They have to stand in brackets.
    """
    yield from cursor.skip_space()
    bracket = yield from cursor.take("[")
    if listed and not bracket:
        raise NotACall
    count = 0
    while True:
        yield from cursor.skip_space()
        if bracket and (yield from cursor.take("]")):
            break
        found = yield from _one(cursor, tools, known)
        if found is None:
            break
        count += 1
        yield found
        yield from cursor.take_while(_BREAK)
    if not count:
        raise NotACall


def _one(cursor: TextCursor, tools: KnownTools, known: bool) -> Incremental[FoundCall | None]:
    name = yield from cursor.take_while(_NAME)
    if not name or name[0].isdigit() or (yield from cursor.peek()) != "(":
        if name:
            raise NotACall
        return None
    name = name.removesuffix(_SUFFIX)
    if known and not tools.may_call(name):
        raise NotACall
    text = yield from cursor.read_bracketed()
    return FoundCall(name=tools.clean_name(name), arguments=parse_python_arguments(name, text[1:-1], tools))


def parse_python_arguments(name: str, text: str, tools: KnownTools) -> str:
    """What stands between the brackets of a call, as an object. One object without a name that fits the tool is all of its arguments."""
    try:
        bare, named = parse_keyword_arguments(text)
    except ValueError:
        raise NotACall from None
    schema = tools.schema(name)
    properties = schema.get("properties") if schema is not None else None
    if len(bare) == 1 and not named and bare[0].startswith("{") and matches_schema(bare[0], schema):
        return bare[0]
    order = [key for key in properties if key not in named] if isinstance(properties, Mapping) else []
    if len(bare) > len(order):
        raise NotACall
    return json_object({**dict(zip(order, bare, strict=False)), **named})
