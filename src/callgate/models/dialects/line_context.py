"""What the lines before say of what stands on the next: quoted, or shown as an example.

A model that explains how a tool is called writes such a call, and does not make it. Sees the text that was let through, line by line, in
pieces of any size. Knows no dialect.
"""

from __future__ import annotations

import re

from callgate.models.dialects.example_phrases import announces_example, discusses_calls

__all__ = ["InlineCode", "LineContext"]

_MOST = 300
"""Of a line, as much is looked at."""
_TICKS = re.compile(r"`+|'+|[^`']+")
_QUOTE_MARKS = frozenset({'"', '"""', "'''", "\u201c", "\u201d", "\u201e", "\u00ab", "\u00bb"})


class LineContext:
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
    def between_quotes(self) -> bool:
        """Whether the lines before have opened a quotation."""
        return self._between_quotes

    @property
    def shows(self) -> bool:
        """Whether the lines before have announced an example that goes on: a line of prose ends it."""
        return self._example and not _is_prose(self._line.lstrip())

    @property
    def announces(self) -> bool:
        """Whether the line announces an example as far as it is written."""
        return self._whole and announces_example(self._line)

    @property
    def speaks(self) -> bool:
        """Whether the line is in the middle of a sentence about calls, and nobody says in it what he does himself."""
        return self._whole and len(self._line) < _MOST and discusses_calls(self._line)

    def text(self, text: str) -> None:
        first, *rest = text.split("\n")
        self._add(first)
        for line in rest:
            self._end()
            self._line, self._whole = "", True
            self._add(line)

    def mark(self, *, silent: bool = False) -> None:
        """A mark or a call stood here: what came before is no longer what the next line is about, unless the mark says nothing."""
        self._example = silent and (self._example or self.announces)
        self._line, self._whole = "", False

    def _add(self, text: str) -> None:
        self._line += text[: max(0, _MOST - len(self._line))]

    def _end(self) -> None:
        line = self._line.strip()
        if not line or not self._whole:
            return
        if line in _QUOTE_MARKS:
            self._between_quotes = not self._between_quotes
        if _is_prose(line):
            self._example = announces_example(line)


def _is_prose(line: str) -> bool:
    return line[:1].isalnum() or line[:1] in tuple("*_#(")


class InlineCode:
    """The inline code of one line: as Markdown has it, as many backticks as have opened it end it. ``Quotes'' of TeX are none."""

    __slots__ = ("_inside", "_quotes", "_run")

    def __init__(self) -> None:
        self._inside = 0
        """How many backticks have opened it; 0 outside."""
        self._run = 0
        """How many stand directly before what comes."""
        self._quotes = 0
        """The same of single quotes."""

    @property
    def open(self) -> bool:
        return bool(self._after_run())

    def text(self, text: str) -> None:
        """Take more of the line, in pieces of any size."""
        for piece in _TICKS.findall(text):
            if piece[0] == "`":
                self._run, self._quotes = self._run + len(piece), 0
                continue
            self._inside, self._run = self._after_run(), 0
            self._quotes = self._quotes + len(piece) if piece[0] == "'" else 0
            if self._quotes >= 2 and self._inside == 2:
                self._inside = 0

    def _after_run(self) -> int:
        if not self._run:
            return self._inside
        if not self._inside:
            return self._run
        return 0 if self._run == self._inside else self._inside
