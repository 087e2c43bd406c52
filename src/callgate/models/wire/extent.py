"""Find where a JSON object that arrives in pieces ends, by reading each character once.

Looks at brackets and strings only; whether the text is valid JSON is for the parse stage to say.
"""

from __future__ import annotations

import re

__all__ = ["Extent"]

_MARK = re.compile(r'"(?:[^"\\]++|\\.)*+"|[\[\]{}"]', re.DOTALL)
_INSIDE = re.compile(r'(?:[^"\\]++|\\.)*+', re.DOTALL)


class Extent:
    """How far an object has come."""

    __slots__ = ("_depth", "_escaped", "_in_string", "_no_object")

    def __init__(self) -> None:
        self._depth = 0
        self._in_string = False
        self._escaped = False
        """The last character read was a backslash inside a string."""
        self._no_object = False

    def ends_in(self, text: str) -> bool:
        """Read the next piece; tells whether the object has come to its end, with nothing but white space after it."""
        at = 0
        if self._in_string:
            at = self._leave_string(text, 0)
            if self._in_string:
                return False
        if self._depth == 0 and not self._opens(text, at):
            return False
        for mark in _MARK.finditer(text, at):
            sign = text[mark.start()]
            if sign in "[{":
                self._depth += 1
            elif sign in "]}":
                self._depth -= 1
                if self._depth == 0:
                    return not text[mark.end() :].strip()
            elif mark.end() - mark.start() == 1:
                self._in_string = True
                self._leave_string(text, mark.end())
                return False
        return False

    def _opens(self, text: str, at: int) -> bool:
        begin = text[at:].lstrip()
        self._no_object = self._no_object or (bool(begin) and begin[0] != "{")
        return bool(begin) and not self._no_object

    def _leave_string(self, text: str, at: int) -> int:
        """The place after the string's end; `_in_string` stays true if it does not end in `text`."""
        if self._escaped and at < len(text):
            at += 1
            self._escaped = False
        inside = _INSIDE.match(text, at)
        end = inside.end() if inside else at
        if end < len(text) and text[end] == '"':
            self._in_string = False
            return end + 1
        self._escaped = end < len(text)
        return len(text)
