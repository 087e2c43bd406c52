"""What the lines before say of what stands on the next: quoted, or shown as an example.

A model that explains how a tool is called writes such a call, and does not make it. Sees the text that was let through, line by line, in
pieces of any size. Knows no dialect: that a mark of a dialect's own is never an example is for the reader to say.
"""

from __future__ import annotations

import re

__all__ = ["Lines"]

_MOST = 300
"""Of a line, as much is looked at."""
_WORD = r"(?:examples?|beispiele?|exemples?|ejemplos?|exemplos?|esempio|esempi)"
_PHRASE = rf"(?:\b(?:for instance|(?:for|zum|par|por|per) {_WORD})\b|\be\.g\.|\bz\. ?b\.)"
_FIRST = rf"^\W*(?:here(?:'s|\u2019s| is| are) )?(?:(?:an?|another|one|some|the following) )?(?:\w+ )?{_WORD}\b"
_SENTENCE = r"(?:(?![.!?]\s+(?-i:[A-Z])).)*$"
"""The rest of one sentence."""
_EXAMPLE = re.compile(rf"(?:{_PHRASE}|{_FIRST}){_SENTENCE}|\b{_WORD}\W*$|例如|比如|举例|示例|例えば", re.IGNORECASE)
_COLON = re.compile(r"[:\uff1a][*_`\s]*$")
"""A line that ends so and has such a word announces an example."""
_QUOTE_MARKS = frozenset({'"', '"""', "'''", "\u201c", "\u201d", "\u201e", "\u00ab", "\u00bb"})


class Lines:
    """The line that is being written, and what the ones before have announced."""

    def __init__(self) -> None:
        self._line = ""
        self._whole = True
        """Whether the line is here from its beginning: behind a mark it is not."""
        self._example = False
        self._between_quotes = False

    @property
    def quoted(self) -> bool:
        """Whether the line is of a quotation, as mail and Markdown mark one."""
        return self._whole and self._line.lstrip().startswith(">")

    @property
    def shows(self) -> bool:
        """Whether the lines before have announced an example that goes on, or opened a quotation."""
        return self._example or self._between_quotes

    def text(self, text: str) -> None:
        first, *rest = text.split("\n")
        self._add(first)
        for line in rest:
            self._end()
            self._line, self._whole = "", True
            self._add(line)

    def mark(self) -> None:
        """A mark or a call stood here: what came before is no longer what the next line is about."""
        self._line, self._whole, self._example = "", False, False

    def _add(self, text: str) -> None:
        self._line += text[: max(0, _MOST - len(self._line))]

    def _end(self) -> None:
        line = self._line.strip()
        if not line or not self._whole:
            return
        if line in _QUOTE_MARKS:
            self._between_quotes = not self._between_quotes
        if line[0].isalnum() or line[0] in "*_#(":
            self._example = bool(_COLON.search(line) and _EXAMPLE.search(line))
