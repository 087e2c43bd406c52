"""What comes out of a message, and what its last line looks like from where the reader stands.

Knows the text that was let through and nothing of what comes: whether a new line, a sentence or code stands here decides what a mark may
mean. Pieces of text are joined once, when they are handed out. Knows no dialect.
"""

from __future__ import annotations

import re

from callgate.models.dialects.json_nesting import JsonNesting
from callgate.models.dialects.line_context import InlineCode, LineContext
from callgate.models.dialects.parsed_parts import FoundCall, ParsedPart, ReasoningPart, TextPart

__all__ = ["TextOutput"]

_SENTENCE = re.compile(r"[.!?] ?\Z")
"""What follows a sentence, at once or behind one space, starts something new, as at the start of a line."""
_QUOTES = frozenset("\"'\u2018\u201c\u00ab")

_WORD = "<"
"""What stands for such a call in its line: neither prose nor a quotation."""
_CLOSING_QUOTES = frozenset("`\"'\u2019\u201d\u00bb")


class TextOutput:
    """The parts of one message, in the order in which they come out."""

    def __init__(self) -> None:
        self.in_reasoning = False
        """Whether text is a thought."""
        self.discarding = False
        """Whether text is nothing any more."""
        self.line_is_blank = True
        """Whether nothing but white space stands on this line yet."""
        self._code = InlineCode()
        self.after_marker = False
        """Whether nothing but white space has come since the last mark or call."""
        self.is_empty = True
        """Whether nothing was shown or called so far, but white space."""
        self._lines = LineContext()
        self._nesting = JsonNesting()
        self._tail = ""
        self._out: list[ParsedPart] = []
        self._held: list[ParsedPart] = []
        self._pieces: list[str] = []

    @property
    def in_code(self) -> bool:
        """Whether inline code is open on this line."""
        return self._code.open

    def reset_code(self) -> None:
        """What looked like inline code was a fence."""
        self._code = InlineCode()

    def add_text(self, text: str, *, word: bool = False) -> None:
        """Let text through.

        Args:
            text: The text.
            word: It is a call that is spoken of: one word of its line, whatever lines it has itself.
        """
        if not text:
            return
        seen = _WORD if word else text
        _, line, last = seen.rpartition("\n")
        self.line_is_blank = (bool(line) or self.line_is_blank) and not last.strip()
        if line:
            self._code = InlineCode()
        self._code.text(last)
        self._tail = (self._tail + seen)[-2:]
        self._lines.text(seen)
        self._nesting.text(seen)
        if self.after_marker and not self.in_reasoning:
            text = text.lstrip()
        self.after_marker = self.after_marker and not text.strip()
        self.is_empty = self.is_empty and (self.in_reasoning or not text.strip())
        if not self.discarding:
            self._pieces.append(text)

    def add_marker(self, *, silent: bool = False) -> None:
        """A mark or a call stood here: what follows starts a line. A silent one says nothing, nor does it take the space."""
        self._join()
        self._lines.mark(silent=silent)
        self.after_marker = not silent or self.after_marker or self.is_empty
        self.line_is_blank, self._tail, self._code = True, "", InlineCode()
        self._nesting = JsonNesting()

    def switch_reasoning(self, *, thinking: bool) -> None:
        """A thought starts or ends here. A call in a thought that ends was only a thought."""
        self.add_marker()
        if not thinking:
            self.release_calls(as_thoughts=True)
        self.in_reasoning = thinking

    def reclassify_text(self) -> None:
        """All that was shown was a thought, and it ends here."""
        self.add_marker()
        self.is_empty = True
        self._out.append(ReasoningPart(text="", reclassifies_text=True))

    def add_call(self, found: FoundCall) -> None:
        """A call. In a thought it is held, with what follows it."""
        self.add_marker()
        self.is_empty = False
        (self._held if self.in_reasoning else self._out).append(found)

    def release_calls(self, *, as_thoughts: bool) -> None:
        """Let go of the calls that a thought holds."""
        self._join()
        held, self._held = self._held, []
        self._out += [ReasoningPart(text=part.source) if as_thoughts and isinstance(part, FoundCall) else part for part in held]

    def drain(self) -> list[ParsedPart]:
        """What has come out since the last time."""
        self._join()
        out, self._out = self._out, []
        return out

    def _join(self) -> None:
        text = "".join(self._pieces)
        self._pieces.clear()
        if text and self.in_reasoning:
            (self._held or self._out).append(ReasoningPart(text=text))
        elif text:
            self._out.append(TextPart(text=text))

    def is_start(self, between: str = "") -> bool:
        """Whether something new may start here, or behind this text on the same line."""
        return (self.line_is_blank and not between.strip()) or _SENTENCE.search((self._tail + between)[-2:]) is not None

    def is_quoted(self) -> bool:
        """Whether this is quoted: an opening quote stands directly before, or the line is of somebody who is quoted."""
        return (self._tail[-1:] in _QUOTES and not self.line_is_blank) or self._lines.quoted

    def is_example(self) -> bool:
        """Whether what stands here is only shown: as an example that is announced on this line or before it, or between lines of quotes."""
        return self._lines.announces or self._lines.shows or (self.line_is_blank and self._lines.between_quotes)

    @property
    def in_json(self) -> bool:
        """Whether this is part of a JSON value that is shown."""
        return self._nesting.inside

    @property
    def may_be_mention(self) -> bool:
        """Whether a call that stands here may only be spoken of, by what comes before it."""
        return self.in_code or self.is_quoted() or self.is_example() or self._speaks()

    def is_mention_before(self, behind: str) -> bool:
        """The same by what comes behind it as well: what closes a quotation, or more of the sentence."""
        if self._lines.quoted or self.is_example():
            return True
        if (self.in_code or self.is_quoted()) and behind[:1] in _CLOSING_QUOTES:
            return True
        return self._speaks() and (behind[:1] in (",", ".", ";") or (behind[:1] == " " and behind[1:].islower()))

    def _speaks(self) -> bool:
        """Whether this is in the middle of a sentence about calls, like a word, and nobody says in it what he does himself."""
        return self._tail.endswith(" ") and self._lines.speaks

    def is_after_space(self) -> bool:
        """Whether a space stands directly before."""
        return self._tail.endswith(" ")
