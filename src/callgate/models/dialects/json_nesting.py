"""Whether text that was let through is inside a JSON value: what stands there is part of an answer, and no call of its own.

A value begins at the start of a line. It ends where its brackets do, and, because nothing says that it is JSON, also where a line begins
without indentation with a bracket that opens, or with a letter.
"""

from __future__ import annotations

import re

__all__ = ["JsonNesting"]

_PIECES = re.compile(r'\\[^\n]|[{}\[\]"\n]|[^{}\[\]"\n\\]+|\\\Z')


class JsonNesting:
    """How deep the text is in brackets, from where a value began."""

    def __init__(self) -> None:
        self._depth = 0
        self._string = False
        self._blank = True
        """Whether nothing but white space stands on this line yet."""
        self._flush = True
        """Whether nothing at all stands on it."""
        self._escape = ""
        """A backslash whose character has not come yet."""

    @property
    def inside(self) -> bool:
        """Whether what comes is inside a value."""
        return self._depth > 0 and not self._flush

    def text(self, text: str) -> None:
        """Take more of the text, in pieces of any size."""
        pieces = _PIECES.findall(self._escape + text)
        self._escape = pieces.pop() if pieces and pieces[-1] == "\\" else ""
        for piece in pieces:
            if piece == "\n":
                self._blank = self._flush = True
                self._string = False
                continue
            if self._flush and (piece in ("{", "[") or piece[0].isalpha()):
                self._depth, self._string = 0, False
            self._take(piece)
            self._blank = self._blank and not piece.strip()
            self._flush = False

    def _take(self, piece: str) -> None:
        if piece == '"':
            self._string = self._depth > 0 and not self._string
        elif not self._string and piece in ("{", "["):
            self._depth += 1 if self._depth or self._blank else 0
        elif not self._string and piece in ("}", "]"):
            self._depth = max(0, self._depth - 1)
