"""The parts of a message that were read so far, and the context of the current line.

Knows the visible text and nothing after it. A marker has its meaning only in some places, so this module tells whether
a new line, a sentence or code is at the current position. Joins pieces of text when they are returned. Knows no
dialect.
"""

from __future__ import annotations

import re

from callgate.models.dialects.json_nesting import JsonNesting
from callgate.models.dialects.line_context import InlineCode, LineContext
from callgate.models.dialects.text_and_call_parts import FoundCall, ParsedPart, ReasoningPart, TextPart

__all__ = ["TextOutput"]

_SENTENCE_END = re.compile(r"[.!?] ?\Z")
"""Text after the end of a sentence, with at most one space, counts as the start of a line."""
_SPACED_QUOTE, _END_SPACED_QUOTE = "\u00ab", "\u00bb"
"""Quotes that may have a space inside."""
_SPACES = " \u00a0\u202f"
_OPENING_BRACKETS = "[{"
"""May begin a list or an object whose calls are quoted with it."""
_OPENING_QUOTES = frozenset("\"'\u2018\u201c\u00ab")

_CALL_PLACEHOLDER = "<"
"""Replaces a mentioned call in its line; it is neither prose nor a quotation."""
_CLOSING_QUOTES = frozenset("`\"'\u2019\u201d\u00bb")


class TextOutput:
    """The parts of one message, in order."""

    def __init__(self) -> None:
        self.in_reasoning = False
        """Whether text is reasoning."""
        self.discarding = False
        """Whether text is dropped."""
        self.line_is_blank = True
        """Whether this line has only white space so far."""
        self._inline_code = InlineCode()
        self.after_marker = False
        """Whether only white space has come since the last marker or call."""
        self.is_empty = True
        """Whether the message has no visible text and no call so far."""
        self._line_context = LineContext()
        self._nesting = JsonNesting()
        self._last_chars = ""
        self._after_quoted_marker = False
        """Whether only spaces have come since a marker that directly followed an opening quote."""
        self._parts: list[ParsedPart] = []
        self._held_parts: list[ParsedPart] = []
        self._text_pieces: list[str] = []

    @property
    def in_code(self) -> bool:
        """Whether inline code is open on this line."""
        return self._inline_code.open

    def reset_code(self) -> None:
        """Discard the state of inline code, because its backticks were a code fence."""
        self._inline_code = InlineCode()

    def add_text(self, text: str, *, as_word: bool = False) -> None:
        """Add text.

        Args:
            text: The text.
            as_word: Whether the text is a mentioned call. It then counts as one word of its line, even if it has
                several lines.
        """
        if not text:
            return
        if self._after_quoted_marker and not text.strip(" "):
            self.add_quoted_marker(text)
            return
        self._after_quoted_marker = False
        visible = _CALL_PLACEHOLDER if as_word else text
        _, line, last = visible.rpartition("\n")
        self.line_is_blank = (bool(line) or self.line_is_blank) and not last.strip()
        if line:
            self._inline_code = InlineCode()
        self._inline_code.add_text(last)
        self._last_chars = (self._last_chars + visible)[-3:]
        self._line_context.add_text(visible)
        self._nesting.add_text(visible)
        if self.after_marker and not self.in_reasoning:
            text = text.lstrip()
        self.after_marker = self.after_marker and not text.strip()
        self.is_empty = self.is_empty and (self.in_reasoning or not text.strip())
        if not self.discarding:
            self._text_pieces.append(text)

    def add_quoted_marker(self, marker: str) -> None:
        """Add a marker without meaning, or spaces after it, as text. What follows counts as directly after the quote before it."""
        self._after_quoted_marker = True
        if not self.discarding:
            self._text_pieces.append(marker)

    def add_marker(self, *, ignored: bool = False) -> None:
        """Record a marker or a call. What follows counts as the start of a line.

        An ignored marker keeps the white space around it.
        """
        self._flush_text()
        self._after_quoted_marker = False
        self._line_context.add_marker(ignored=ignored)
        self.after_marker = not ignored or self.after_marker or self.is_empty
        self.line_is_blank, self._last_chars, self._inline_code = True, self._last_chars if ignored else "", InlineCode()
        self._nesting = JsonNesting()

    def switch_reasoning(self, *, to_reasoning: bool) -> None:
        """Begin or end reasoning. When reasoning ends, the calls in it become reasoning text."""
        self.add_marker()
        if not to_reasoning:
            self.release_calls(as_reasoning=True)
        self.in_reasoning = to_reasoning

    def reclassify_text(self) -> None:
        """Report that all text shown so far was reasoning, and that the reasoning ends here."""
        self.add_marker()
        self.is_empty = True
        self._parts.append(ReasoningPart(text="", reclassifies_text=True))

    def add_call(self, found: FoundCall) -> None:
        """Add a call. A call in reasoning is held back, together with the text after it."""
        self.add_marker()
        self.is_empty = False
        (self._held_parts if self.in_reasoning else self._parts).append(found)

    def release_calls(self, *, as_reasoning: bool) -> None:
        """Release the calls that were held back in reasoning, as calls or as reasoning."""
        self._flush_text()
        held, self._held_parts = self._held_parts, []
        self._parts += [ReasoningPart(text=part.source) if as_reasoning and isinstance(part, FoundCall) else part for part in held]

    def drain(self) -> list[ParsedPart]:
        """Return the parts since the last call of this method."""
        self._flush_text()
        parts, self._parts = self._parts, []
        return parts

    def _flush_text(self) -> None:
        text = "".join(self._text_pieces)
        self._text_pieces.clear()
        if text and self.in_reasoning:
            (self._held_parts or self._parts).append(ReasoningPart(text=text))
        elif text:
            self._parts.append(TextPart(text=text))

    def is_start(self, text: str = "") -> bool:
        """Whether a call or reasoning may start at the current position, or after `text` on the same line."""
        return (self.line_is_blank and not text.strip()) or _SENTENCE_END.search((self._last_chars + text)[-2:]) is not None

    @property
    def begins_sentence(self) -> bool:
        """Whether a sentence may begin at the current position: after the end of a sentence, or before the first word of the line."""
        return self.is_start() or self._line_context.is_before_words

    def is_quoted(self) -> bool:
        """Whether the current position is in a quotation: directly after an opening quote, or on a quoted line."""
        before = self._last_chars.rstrip(_OPENING_BRACKETS)
        is_open = before[-1:] in _OPENING_QUOTES or before.rstrip(_SPACES)[-1:] == _SPACED_QUOTE
        return (is_open and not self.line_is_blank) or self._line_context.is_quoted

    def is_example(self) -> bool:
        """Whether the current position is in an example: one that was announced, or one between lines of quotes."""
        return (
            self._line_context.announces_example
            or self._line_context.in_example
            or (self.line_is_blank and self._line_context.between_quotes)
        )

    @property
    def in_shown_fence(self) -> bool:
        """Whether the current position is in a fence that shows an announced example or quotation."""
        return self._line_context.in_shown_fence

    @property
    def in_json(self) -> bool:
        """Whether the current position is inside a JSON value that is visible text."""
        return self._nesting.inside

    @property
    def may_be_mention(self) -> bool:
        """Whether a call at the current position may only be mentioned, judging by the text before it."""
        line = self._line_context
        in_line = self._last_chars.endswith(" ") and (line.discusses_calls or line.describes_text or line.asks or line.is_table_row)
        return self.in_code or self.is_quoted() or self.is_example() or in_line

    def is_mention_before(self, following: str) -> bool:
        """Whether a call between the current position and `following` is only mentioned.

        A call on a quoted line or in an example always is. In quotes or code, it is if `following` begins with a
        closing quote; in a sentence, if `following` continues it; in a table, if the cell ends.
        """
        if self._line_context.is_quoted or self.is_example():
            return True
        is_closed = following[:1] in _CLOSING_QUOTES or following.lstrip(_SPACES)[:1] == _END_SPACED_QUOTE
        if (self.in_code or self.is_quoted()) and is_closed:
            return True
        return self._last_chars.endswith(" ") and self._is_continued(following)

    def _is_continued(self, following: str) -> bool:
        """Whether `following` continues a sentence that does not make the call before it."""
        line = self._line_context
        mark = following.lstrip(" ")[:1]
        if (line.is_table_row and mark == "|") or (line.asks and mark == "?"):
            return True
        if line.discusses_calls:
            return following[:1] in (",", ".", ";") or following.removeprefix(" ")[:1].islower()
        return line.describes_text and following[:1] == " " and following[1:2].islower()

    def is_after_space(self) -> bool:
        """Whether the character before the current position is a space."""
        return self._last_chars.endswith(" ")
