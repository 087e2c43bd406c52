"""Find the end of a JSON object that arrives in pieces, reading each character once.

Looks at brackets and strings only; the parse stage decides whether the text is valid JSON.
"""

from __future__ import annotations

import re

__all__ = ["JsonExtent"]

_STRING_OR_BRACKET = re.compile(r'"(?:[^"\\]++|\\.)*+"|[\[\]{}"]', re.DOTALL)
_STRING_CONTENT = re.compile(r'(?:[^"\\]++|\\.)*+', re.DOTALL)
_NOT_WHITE = re.compile(r"\S")


class JsonExtent:
    """Tracks where an object ends."""

    __slots__ = ("_depth", "_ended", "_escaped", "_in_string", "_not_an_object")

    def __init__(self) -> None:
        self._depth = 0
        self._ended = False
        self._in_string = False
        self._escaped = False
        """Whether the last character was a backslash inside a string."""
        self._not_an_object = False
        """Whether the text does not begin with an object, or continues after the object's end."""

    def feed(self, text: str) -> bool:
        """Read the next piece; return whether the object is complete, followed by nothing but white space."""
        if not self._not_an_object:
            self._read(text)
        return self._ended and not self._not_an_object

    def _read(self, text: str) -> None:
        at = self._skip_string(text, 0) if self._in_string else 0
        if self._depth == 0 and not self._object_begins(text):
            return
        for token in _STRING_OR_BRACKET.finditer(text, at):
            character = text[token.start()]
            if character in "[{":
                self._depth += 1
            elif character in "]}":
                self._depth -= 1
                if self._depth == 0:
                    self._ended = True
                    self._not_an_object = _NOT_WHITE.search(text, token.end()) is not None
                    return
            elif token.end() - token.start() == 1:
                self._in_string = True
                self._skip_string(text, token.end())
                return

    def _object_begins(self, text: str) -> bool:
        """Whether the object begins in this piece, at depth zero."""
        begin = _NOT_WHITE.search(text)
        if begin is None:
            return False
        self._not_an_object = self._ended or begin.group() != "{"
        return not self._not_an_object

    def _skip_string(self, text: str, at: int) -> int:
        """Return the position after the string's end; `_in_string` stays true if it does not end in `text`."""
        if self._escaped and at < len(text):
            at += 1
            self._escaped = False
        inside = _STRING_CONTENT.match(text, at)
        end = inside.end() if inside else at
        if end < len(text) and text[end] == '"':
            self._in_string = False
            return end + 1
        self._escaped = end < len(text)
        return len(text)
