"""The context of the current line: whether the lines before it opened a quotation or announced an example.

A model that explains how to call a tool writes such a call without making it. Receives the visible text, in pieces of
any size. Knows no dialect.
"""

from __future__ import annotations

import re

from callgate.models.dialects.example_phrases import (
    announces_example,
    announces_quotation,
    asks,
    describes_text,
    discusses_calls,
    introduces_example,
    without_first_sentence,
)

__all__ = ["InlineCode", "LineContext"]

_MAX_LINE_CHARS = 300
"""Characters at the start and at the end of a line that are examined."""
_LETTER_OR_TAG = re.compile(r"[^\W\d_]|<")
_TICK_RUNS = re.compile(r"`+|'+|[^`']+")
_FENCE = "```"
_QUOTATION_PARTS = (_FENCE, "<")
"""A line with a fence or a quoted call does not end a quotation."""
_AGENT_LABEL = re.compile(r"[*_]*(?:thought|action(?: input)?|observation)(?: \d)?[*_]* ?:", re.IGNORECASE)
"""Begins a line of a ReAct call. Such a line does not end an example or a quotation."""
_EXAMPLE_END = re.compile(r"</(?:\w*examples?|pre|code|blockquote|samp|kbd|quote|documents?|transcript)>|-->", re.IGNORECASE)
_QUOTE_MARKS = frozenset({'"', '"""', "'''", "\u201c", "\u201d", "\u201e", "\u00ab", "\u00bb"})


class LineContext:
    """The current line, and whether earlier lines opened a quotation or announced an example."""

    def __init__(self) -> None:
        self._line = ""
        """The start of the line."""
        self._line_end = ""
        self._line_chars = 0
        self._announces: bool | None = None
        """Whether the line announces an example; None if that was not examined since text was added."""
        self._from_line_start = True
        """Whether `_line` contains the line from its start. False after a marker, which cuts the line."""
        self._example = False
        self._quotation = False
        """Whether the last line with text, a fence apart, announced a quotation."""
        self._in_shown_fence = False
        self._between_quotes = False

    @property
    def is_quoted(self) -> bool:
        """Whether the line is a quotation that begins with `>`, as in mail and Markdown."""
        return self._from_line_start and self._line.lstrip().startswith(">")

    @property
    def is_before_words(self) -> bool:
        """Whether the line has no word so far, only a mark or a number as in a list."""
        return not any(character.isalpha() for character in self._line)

    @property
    def between_quotes(self) -> bool:
        """Whether a line before opened a quotation."""
        return self._between_quotes

    @property
    def in_shown_fence(self) -> bool:
        """Whether a fence is open that follows an announcement. All of its lines belong to the example or quotation."""
        return self._in_shown_fence

    @property
    def in_example(self) -> bool:
        """Whether earlier lines announced an example that has not ended. A line of prose outside of its fence ends it."""
        line = self._line.lstrip()
        return self._in_shown_fence or (self._example and not _is_prose(line)) or (self._quotation and not line)

    @property
    def announces_example(self) -> bool:
        """Return whether the part of the current line that has arrived announces an example or a quotation."""
        if self._announces is None:
            line = self._sentences if _LETTER_OR_TAG.search(self._line_end) else ""
            self._announces = line != "" and (announces_example(line) or announces_quotation(line) or introduces_example(line))
        return self._announces

    @property
    def discusses_calls(self) -> bool:
        """Whether the line ends within a sentence about calls that is not about the model's own actions."""
        return discusses_calls(self._sentences)

    @property
    def describes_text(self) -> bool:
        """Whether the line ends within a sentence about what a text contains or means, or what the model saw in it."""
        return describes_text(self._sentences)

    @property
    def asks(self) -> bool:
        """Whether the line ends within a question."""
        return asks(self._sentences)

    @property
    def is_table_row(self) -> bool:
        """Whether the line is a row of a Markdown table."""
        return self._from_line_start and self._line.lstrip().startswith("|")

    @property
    def _sentences(self) -> str:
        """The line since the last marker, or if it is long, the sentences that begin in its last part."""
        return self._line if self._line_chars <= _MAX_LINE_CHARS else without_first_sentence(self._line_end)

    def add_text(self, text: str) -> None:
        """Add text of one or more lines."""
        first, *rest = text.split("\n")
        self._append_to_line(first)
        for line in rest:
            self._end_line()
            self._start_line(from_line_start=True)
            self._append_to_line(line)

    def add_marker(self, *, ignored: bool = False) -> None:
        """Record a marker or a call. It ends an example, unless the marker is ignored."""
        self._example = ignored and (self._example or self.announces_example)
        self._quotation = ignored and self._quotation
        self._in_shown_fence = ignored and self._in_shown_fence
        if not ignored:
            self._start_line(from_line_start=False)

    def _start_line(self, *, from_line_start: bool) -> None:
        self._line, self._line_end, self._line_chars, self._announces = "", "", 0, None
        self._from_line_start = from_line_start

    def _append_to_line(self, text: str) -> None:
        self._line += text[: max(0, _MAX_LINE_CHARS - len(self._line))]
        self._line_end = (self._line_end + text[-_MAX_LINE_CHARS:])[-_MAX_LINE_CHARS:]
        self._line_chars += len(text)
        self._announces = None

    def _end_line(self) -> None:
        line = self._line.strip()
        if not line:
            return
        if self._from_line_start and line in _QUOTE_MARKS:
            self._between_quotes = not self._between_quotes
        if self._from_line_start and line.startswith(_FENCE):
            self._in_shown_fence = bool(line.strip("`")) if self._in_shown_fence else self._example or self._quotation
        is_label = _AGENT_LABEL.match(line) is not None
        sentences = self._sentences.strip()
        quotes, shows = announces_quotation(sentences), announces_example(sentences)
        if quotes or not line.startswith(_QUOTATION_PARTS):
            self._quotation = quotes or (is_label and self._quotation)
        if shows or _is_prose(line) or is_label or _EXAMPLE_END.match(line):
            self._example = shows or (is_label and self._example)


def _is_prose(line: str) -> bool:
    return (line[:1].isalnum() or line[:1] in tuple("*_#(")) and not _AGENT_LABEL.match(line)


class InlineCode:
    """The inline code of one line, as in Markdown: it ends with as many backticks as it begins with.

    TeX's ``quotes'' are not code.
    """

    __slots__ = ("_opening_ticks", "_single_quotes", "_tick_run")

    def __init__(self) -> None:
        self._opening_ticks = 0
        """Number of backticks that opened the code; 0 outside."""
        self._tick_run = 0
        """Number of backticks directly before the next character."""
        self._single_quotes = 0
        """Number of single quotes directly before the next character."""

    @property
    def open(self) -> bool:
        return bool(self._count_open_ticks())

    def add_text(self, text: str) -> None:
        """Add more of the line, in pieces of any size."""
        for piece in _TICK_RUNS.findall(text):
            if piece[0] == "`":
                self._tick_run, self._single_quotes = self._tick_run + len(piece), 0
                continue
            self._opening_ticks, self._tick_run = self._count_open_ticks(), 0
            self._single_quotes = self._single_quotes + len(piece) if piece[0] == "'" else 0
            if self._single_quotes >= 2 and self._opening_ticks == 2:
                self._opening_ticks = 0

    def _count_open_ticks(self) -> int:
        if not self._tick_run:
            return self._opening_ticks
        if not self._opening_ticks:
            return self._tick_run
        return 0 if self._tick_run == self._opening_ticks else self._opening_ticks
