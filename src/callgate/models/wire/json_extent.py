"""Find where a JSON object that arrives in pieces ends, by reading each character once.

Looks at brackets and strings only; whether the text is valid JSON is for the parse stage to say.
"""

from __future__ import annotations

import re

__all__ = ["JsonExtent"]

_MARK = re.compile(r'"(?:[^"\\]++|\\.)*+"|[\[\]{}"]', re.DOTALL)
_INSIDE = re.compile(r'(?:[^"\\]++|\\.)*+', re.DOTALL)
_NOT_WHITE = re.compile(r"\S")


class JsonExtent:
    """How far an object has come."""

    __slots__ = ("_depth", "_ended", "_escaped", "_in_string", "_no_object")

    def __init__(self) -> None:
        self._depth = 0
        self._ended = False
        self._in_string = False
        self._escaped = False
        """The last character read was a backslash inside a string."""
        self._no_object = False
        """The text begins with something else, or goes on after the object's end."""

    def ends_in(self, text: str) -> bool:
        """Read the next piece; tells whether the object has come to its end, with nothing but white space after it."""
        if not self._no_object:
            self._read(text)
        return self._ended and not self._no_object

    def _read(self, text: str) -> None:
        at = self._leave_string(text, 0) if self._in_string else 0
        if self._depth == 0 and not self._opens(text):
            return
        for mark in _MARK.finditer(text, at):
            sign = text[mark.start()]
            if sign in "[{":
                self._depth += 1
            elif sign in "]}":
                self._depth -= 1
                if self._depth == 0:
                    self._ended = True
                    self._no_object = _NOT_WHITE.search(text, mark.end()) is not None
                    return
            elif mark.end() - mark.start() == 1:
                self._in_string = True
                self._leave_string(text, mark.end())
                return

    def _opens(self, text: str) -> bool:
        """Whether the object begins in a piece before which it has not, or has come to its end."""
        begin = _NOT_WHITE.search(text)
        if begin is None:
            return False
        self._no_object = self._ended or begin.group() != "{"
        return not self._no_object

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
