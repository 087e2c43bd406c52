"""Read JSON values between a family's markers from a stream: calls, and the arguments of a call.

`json_calls` tells which calls a value describes. This module finds where the value ends. Knows the markers of no family.
"""

from __future__ import annotations

import re

from callgate.models.dialects.dialect import ParsedCalls
from callgate.models.dialects.json_calls import parse_malformed_call, parse_marked_calls
from callgate.models.dialects.known_tools import MAX_NAME_CHARS, KnownTools
from callgate.models.dialects.python_calls import read_python_calls
from callgate.models.dialects.tag_values import TURN_ENDS
from callgate.models.dialects.text_and_call_parts import FoundCall
from callgate.models.dialects.text_cursor import Incremental, NotACall, TextCursor

__all__ = ["MarkedJson", "read_arguments", "read_json_calls", "read_rest"]

_FENCES = ("```json", "```")
_TRAILING = re.compile(r"[\s;,\]}]*")
_TRAILING_OR_FENCE = re.compile(r"[\s;,\]}`]*")
_PYTHON_LIST, _PYTHON_LIST_START = re.compile(r"\[\s*[^\W\d][\w.\-/]*\("), re.compile(r"\[\s*(?:[^\W\d][\w.\-/]*)?")


def read_arguments(cursor: TextCursor, *ends: str, stops: tuple[str, ...] = ()) -> Incremental[str]:
    """Consume the arguments of a call, one object, up to the first of `ends`, which is not consumed.

    Args:
        cursor: At the object.
        ends: The markers that end the arguments.
        stops: Other markers that may follow the arguments.
    """
    start = cursor.offset
    try:
        text = yield from cursor.read_bracketed(*ends)
        rest = yield from read_rest(cursor, ends, stops)
    except NotACall:
        return (yield from _read_malformed(cursor, start, ends))
    return text + rest


def read_json_calls(
    cursor: TextCursor, tools: KnownTools, *ends: str, stops: tuple[str, ...] = (), keyed: bool = False
) -> Incremental[list[FoundCall]]:
    """Read one JSON value after a marker, as `parse_marked_calls` does. If it is malformed, it ends at the first of `ends`."""
    start = cursor.offset
    try:
        text = yield from cursor.read_bracketed(*ends)
        found = parse_marked_calls(text, tools, keyed=keyed)
        if not found and not text.strip("[] \t\r\n"):
            return []
        rest = yield from read_rest(cursor, ends, stops, is_list=True)
    except NotACall:
        found, rest = [], ""
    if not found or rest:
        found = parse_malformed_call((yield from _read_malformed(cursor, start, ends)), tools)
    if not found:
        raise NotACall
    return found


def _read_malformed(cursor: TextCursor, start: int, ends: tuple[str, ...]) -> Incremental[str]:
    """Go back to `start` and consume the text before the first of `ends`.

    Raises:
        NotACall: There is no end, or the message was truncated, so that a marker may be part of a string.
    """
    if not ends or (cursor.truncated and cursor.ran_out):
        raise NotACall
    cursor.rewind(start)
    text, end = yield from cursor.read_until(*ends)
    cursor.give_back(end)
    return text.rstrip()


def read_rest(cursor: TextCursor, ends: tuple[str, ...], stops: tuple[str, ...], *, is_list: bool = False) -> Incremental[str]:
    """Consume and return the rest of an object whose closing bracket was read; empty if it was complete. Surplus brackets are skipped.

    If a quotation mark in a string is not escaped, a bracket in the string may close the object. The rest of the string then follows.

    Args:
        cursor: After the object.
        ends: The markers that end the call.
        stops: Other markers that may follow.
        is_list: Whether another object may follow.
    """
    start = cursor.offset
    surplus = yield from cursor.take_while(_TRAILING_OR_FENCE)
    following = yield from cursor.peek()
    is_complete = following == "" or (is_list and following in ("{", "[")) or (yield from cursor.at_any(*ends, *stops, *TURN_ENDS))
    if not is_complete or not surplus.strip("` \t\r\n"):
        cursor.rewind(start)
    if is_complete:
        return ""
    rest, marker = yield from cursor.read_until(*ends, *stops, end=True)
    cursor.give_back(marker)
    if (marker and marker in ends) or _is_end_of_object(rest):
        return rest.rstrip()
    cursor.rewind(start)
    return ""


def _is_end_of_object(text: str) -> bool:
    """Whether text without an end marker may be the end of an object: the last string ends in it."""
    return '"' in text and text.rstrip("` \t\r\n").endswith("}")


def _is_python_list(cursor: TextCursor) -> Incremental[bool]:
    """Return whether a list that begins with a name and a bracket comes next. Consumes nothing."""
    while True:
        ahead = cursor.ahead(MAX_NAME_CHARS)
        if _PYTHON_LIST.match(ahead):
            return True
        if not _PYTHON_LIST_START.fullmatch(ahead) or len(ahead) == MAX_NAME_CHARS or not (yield from cursor.wait_more()):
            return False


class MarkedJson:
    """Reads JSON calls between a family's markers: objects, and lists of objects, up to one of the closing markers.

    The markers prove that the text is a call, so its name may be unknown: the engine answers such a call with the known
    tools. The value ends at its own closing bracket; a missing closing marker, or surplus brackets, change nothing.
    Some models write a list of Python calls instead; these must be calls of known tools.

    Args:
        closers: The family's closing markers.
        keyed: Whether the family writes objects whose keys are the names of tools.
    """

    def __init__(self, *closers: str, keyed: bool = False) -> None:
        self._closers = closers
        self._tags = tuple(closer for closer in closers if closer[0] == "<")
        self._keyed = keyed

    def __call__(self, cursor: TextCursor, tools: KnownTools, opener: str) -> ParsedCalls:
        yield from cursor.skip_space()
        yield from cursor.take(*_FENCES)
        yield from cursor.skip_space()
        if (yield from cursor.peek()) not in ("{", "["):
            raise NotACall
        while (yield from cursor.peek()) in ("{", "[") and not (yield from cursor.at_any(*self._closers)):
            if (yield from _is_python_list(cursor)):
                yield from read_python_calls(cursor, tools, known_only=True)
            else:
                yield from (yield from read_json_calls(cursor, tools, *self._tags, stops=(opener, *self._closers), keyed=self._keyed))
            yield from cursor.take_while(_TRAILING)
            yield from cursor.take("```")
            yield from cursor.skip_space()
        if self._closers:
            yield from cursor.take(*self._closers)
