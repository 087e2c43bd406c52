"""Calls written as Python calls: `name(key=value)`, alone or in a list.

Positional arguments are assigned in the order of the tool's schema, if it is known. Knows no markers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from callgate.models.dialects.dialect import ParsedCalls
from callgate.models.dialects.known_tools import KnownTools
from callgate.models.dialects.python_literals import parse_keyword_arguments
from callgate.models.dialects.schema_matching import matches_schema
from callgate.models.dialects.text_and_call_parts import FoundCall
from callgate.models.dialects.text_cursor import Incremental, NotACall, TextCursor
from callgate.models.dialects.typed_values import json_object

__all__ = ["parse_python_arguments", "read_python_calls"]

_NAME = re.compile(r"[\w.\-/]*")
_SEPARATORS = re.compile(r"[\s,;]*")
_CLOSING = re.compile(r"[ \t,;)\]]*")
_QUOTES = frozenset("\"'")
_REST_END = re.compile(r"[\n<`]")
_MAX_REST_CHARS = 1_000
"""How far the line of a call is searched for the rest of it."""
_SUFFIX = ".call"


def read_python_calls(cursor: TextCursor, tools: KnownTools, *, known_only: bool = False, in_brackets: bool = False) -> ParsedCalls:
    """Read consecutive calls, in square brackets or not.

    Args:
        cursor: At the start of the calls.
        tools: Their schemas name positional arguments.
        known_only: Whether only tools that may be called without markers are accepted.
        in_brackets: Whether the calls must stand in brackets.
    """
    yield from cursor.skip_space()
    bracket = yield from cursor.take("[")
    if in_brackets and not bracket:
        raise NotACall
    count = 0
    while True:
        yield from cursor.skip_space()
        if bracket and (yield from cursor.take("]")):
            break
        found = yield from _read_call(cursor, tools, known_only)
        if found is None:
            break
        if (yield from _is_followed_by_rest(cursor)):
            raise NotACall
        count += 1
        yield found
        yield from cursor.take_while(_SEPARATORS)
    if not count:
        raise NotACall


def _read_call(cursor: TextCursor, tools: KnownTools, known_only: bool) -> Incremental[FoundCall | None]:
    name = yield from cursor.take_while(_NAME)
    if not name or name[0].isdigit() or (yield from cursor.peek()) != "(":
        if name:
            raise NotACall
        return None
    name = name.removesuffix(_SUFFIX)
    if known_only and not tools.may_call(name):
        raise NotACall
    text = yield from cursor.read_bracketed()
    return FoundCall(name=tools.clean_name(name), arguments=parse_python_arguments(name, text[1:-1], tools))


def _is_followed_by_rest(cursor: TextCursor) -> Incremental[bool]:
    """Return whether the rest of a call follows whose closing bracket was read. Consumes nothing.

    If a quotation mark in a string is not escaped, a bracket in the string may close the call. The rest of the string then follows: it
    begins with a quotation mark, or its line contains one and ends with a bracket.
    """
    start = cursor.offset
    yield from cursor.take_while(_CLOSING)
    is_complete = yield from _is_call_start(cursor)
    rest = "" if is_complete else (yield from _peek_line(cursor))
    cursor.rewind(start)
    if rest[:1] in _QUOTES or (rest and cursor.truncated and cursor.ran_out):
        return True
    return rest.rstrip().endswith((")", "]")) and not _QUOTES.isdisjoint(rest)


def _peek_line(cursor: TextCursor) -> Incremental[str]:
    """Return the start of the rest of the line, up to a tag or code. Consumes nothing."""
    while True:
        ahead = cursor.ahead(_MAX_REST_CHARS)
        end = _REST_END.search(ahead)
        if end is not None or len(ahead) == _MAX_REST_CHARS or not (yield from cursor.wait_more()):
            return ahead[: end.start()] if end else ahead


def _is_call_start(cursor: TextCursor) -> Incremental[bool]:
    name = yield from cursor.take_while(_NAME)
    return name != "" and (yield from cursor.peek()) == "("


def parse_python_arguments(name: str, text: str, tools: KnownTools) -> str:
    """Return the arguments in a call's brackets as the text of an object.

    If the only argument is positional and is an object that matches the tool, it becomes all arguments.
    """
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
