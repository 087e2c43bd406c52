"""Tell whether visible text is inside a JSON value, where no unmarked call can begin.

A value begins at the start of a line, and ends with its closing brackets. The text may not be JSON at all, so a value
also ends at a line that begins with a letter or an opening bracket, without indentation.
"""

from __future__ import annotations

import re

__all__ = ["JsonNesting"]

_TOKENS = re.compile(r'\\[^\n]|[{}\[\]"\n]|[^{}\[\]"\n\\]+|\\\Z')


class JsonNesting:
    """Bracket depth of the text since a value began."""

    def __init__(self) -> None:
        self._depth = 0
        self._in_string = False
        self._line_is_blank = True
        """Whether this line has only white space so far."""
        self._line_is_empty = True
        """Whether this line has nothing so far."""
        self._escape = ""
        """A backslash at the end of the last piece; the character that it escapes has not arrived yet."""

    @property
    def inside(self) -> bool:
        """Whether the next text is inside a value."""
        return self._depth > 0 and not self._line_is_empty

    def add_text(self, text: str) -> None:
        """Add more of the text, in pieces of any size."""
        tokens = _TOKENS.findall(self._escape + text)
        self._escape = tokens.pop() if tokens and tokens[-1] == "\\" else ""
        for token in tokens:
            if token == "\n":
                self._line_is_blank = self._line_is_empty = True
                self._in_string = False
                continue
            if self._line_is_empty and (token in ("{", "[") or token[0].isalpha()):
                self._depth, self._in_string = 0, False
            self._read_token(token)
            self._line_is_blank = self._line_is_blank and not token.strip()
            self._line_is_empty = False

    def _read_token(self, token: str) -> None:
        if token == '"':
            self._in_string = self._depth > 0 and not self._in_string
        elif not self._in_string and token in ("{", "["):
            self._depth += 1 if self._depth or self._line_is_blank else 0
        elif not self._in_string and token in ("}", "]"):
            self._depth = max(0, self._depth - 1)
