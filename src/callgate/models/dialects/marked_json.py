"""Read JSON values between a family's markers from a stream: calls, and the arguments of a call.

`json_calls` tells which calls a value describes. This module finds where the value ends. Knows the markers of no family.
"""

from __future__ import annotations

import re

from callgate.models.dialects.dialect import ParsedCalls
from callgate.models.dialects.json_calls import parse_marked_calls
from callgate.models.dialects.known_tools import MAX_NAME_CHARS, KnownTools
from callgate.models.dialects.python_calls import read_python_calls
from callgate.models.dialects.text_and_call_parts import FoundCall
from callgate.models.dialects.text_cursor import Incremental, NotACall, TextCursor

__all__ = ["MarkedJson", "read_json_calls"]

_FENCES = ("```json", "```")
_TRAILING = re.compile(r"[\s;,\]}]*")
_PYTHON_LIST, _PYTHON_LIST_START = re.compile(r"\[\s*[^\W\d][\w.\-/]*\("), re.compile(r"\[\s*(?:[^\W\d][\w.\-/]*)?")


def read_json_calls(cursor: TextCursor, tools: KnownTools, *ends: str, keyed: bool = False) -> Incremental[list[FoundCall]]:
    """Read one JSON value after a marker, as `parse_marked_calls` does. If the brackets do not match, it ends at the first of `ends`."""
    text = yield from cursor.read_bracketed(*ends)
    found = parse_marked_calls(text, tools, keyed=keyed)
    if not found and text.strip("[] \t\r\n"):
        raise NotACall
    return found


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
                yield from (yield from read_json_calls(cursor, tools, *self._tags, keyed=self._keyed))
            yield from cursor.take_while(_TRAILING)
            yield from cursor.take("```")
            yield from cursor.skip_space()
        if self._closers:
            yield from cursor.take(*self._closers)
