"""Calls written as Python calls: `name(key=value)`, alone or in a list.

Arguments without a name are taken in the order of the tool's schema, if that is known. Knows no markers: dialects do.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from callgate.models.dialects.cursor import Cursor, NoCall, Wait
from callgate.models.dialects.fit import fits
from callgate.models.dialects.names import ToolNames
from callgate.models.dialects.parts import Found
from callgate.models.dialects.python_values import keyword_arguments
from callgate.models.dialects.shape import Reads
from callgate.models.dialects.typed import as_object

__all__ = ["python_arguments", "python_calls"]

_NAME = re.compile(r"[\w.\-]*")
_BREAK = re.compile(r"[\s,;]*")
_SUFFIX = ".call"


def python_calls(cursor: Cursor, tools: ToolNames, *, known: bool = False, listed: bool = False) -> Reads:
    """Read one call after the other, in square brackets or not.

    Args:
        cursor: Stands where they start.
        tools: Their schemas name the arguments that come without a name.
        known: Only calls of tools that may be called without markers are calls.
        listed: They have to stand in brackets.
    """
    yield from cursor.white()
    bracket = yield from cursor.take("[")
    if listed and not bracket:
        raise NoCall
    count = 0
    while True:
        yield from cursor.white()
        if bracket and (yield from cursor.take("]")):
            break
        found = yield from _one(cursor, tools, known)
        if found is None:
            break
        count += 1
        yield found
        yield from cursor.run(_BREAK)
    if not count:
        raise NoCall


def _one(cursor: Cursor, tools: ToolNames, known: bool) -> Wait[Found | None]:
    name = yield from cursor.run(_NAME)
    if not name or name[0].isdigit() or (yield from cursor.peek()) != "(":
        if name:
            raise NoCall
        return None
    name = name.removesuffix(_SUFFIX)
    if known and not tools.may_call(name):
        raise NoCall
    text = yield from cursor.value()
    return Found(name=tools.written(name), arguments=python_arguments(name, text[1:-1], tools))


def python_arguments(name: str, text: str, tools: ToolNames) -> str:
    """What stands between the brackets of a call, as an object. One object without a name that fits the tool is all of its arguments."""
    try:
        bare, named = keyword_arguments(text)
    except ValueError:
        raise NoCall from None
    schema = tools.schema(name)
    properties = schema.get("properties") if schema is not None else None
    if len(bare) == 1 and not named and bare[0].startswith("{") and fits(bare[0], schema):
        return bare[0]
    order = [key for key in properties if key not in named] if isinstance(properties, Mapping) else []
    if len(bare) > len(order):
        raise NoCall
    return as_object({**dict(zip(order, bare, strict=False)), **named})
