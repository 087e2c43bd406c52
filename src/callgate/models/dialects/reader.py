"""Read a model's text, as it arrives, into what is shown, what was thought and what was called.

A state machine over the marks of all dialects. Text flows through; at a mark that may open a call, the dialects that know it are asked in
turn, and what none of them reads is text again. Where the stream was cut into pieces makes no difference. Calls in a thought are held
until it ends: a thought that ends was only a thought, and one that never does was ended by its call.

Feed it what a model wrote, and nothing else: text from a tool's result that comes through here could make calls.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping

from msgspec.structs import replace

from callgate.models.dialects.cursor import Cursor, NoCall, Wait
from callgate.models.dialects.marks import ANSWER, END, FENCE, OBSERVATION, SENTENCE_ENDS, WRAPPERS, marks_for
from callgate.models.dialects.names import ToolNames
from callgate.models.dialects.parts import Found, Part, Reading, Shown, Thought, gather
from callgate.models.dialects.shape import Dialect

__all__ = ["TextReader", "read_text"]

_INFO = re.compile(r"[^\s`]*")
_QUOTES = frozenset("\"'\u2018\u201c\u00ab")
_SENTENCE = re.compile(rf"[{SENTENCE_ENDS}] ?\Z")
_PATIENCE, _PER_CHARACTER = 65_536, 8
"""How many characters may be read in vain: some at first, and some more for each that has been read for good."""


class TextReader:
    """Reads one message. No input or output; never raises for what the text holds."""

    def __init__(self, tools: Mapping[str, Mapping[str, object] | None], *, dialect: str | None = None, thinking: bool = False) -> None:
        """Start a message.

        Args:
            tools: The schemas of the tools that the model knows, by name; None for a schema that is not known. Empty: no name is known.
            dialect: The dialect to expect; one that is not known is no hint. The others are read all the same.
            thinking: The prompt ended inside a thought, so the text begins in it.
        """
        self._tools = ToolNames(tools)
        self._marks = marks_for(dialect)
        self._cursor = Cursor()
        self._out: list[Part] = []
        self._held: list[Part] = []
        """What a thought has said since a call in it."""
        self._closers: frozenset[str] = self._marks.closers if thinking else frozenset()
        """What ends the thought that the text is in."""
        self._has_thought = thinking
        self._blank = True
        """Whether nothing but white space stands on this line yet."""
        self._in_code = False
        """Whether an odd number of backticks stands on this line."""
        self._tail = ""
        """The last two characters."""
        self._after_call = False
        self._wrapper = ""
        """What closes what the answer is wrapped in."""
        self._fence: str | None = None
        """The language of the code block that the text is in."""
        self._acted = self._answered = self._dropping = False
        self._vain = 0
        self._next: dict[str, tuple[int, re.Match[str] | None]] = {}
        self._run = self._read()
        self._closed = False

    @property
    def work(self) -> int:
        """Characters looked at so far."""
        return self._cursor.work

    def feed(self, text: str) -> list[Part]:
        """Take in the next piece of the message; what is certain by now comes back."""
        self._cursor.arrive(text)
        next(self._run, None)
        return self._taken()

    def close(self, *, cut: bool = False) -> list[Part]:
        """End the message, and get the rest of it.

        Args:
            cut: It did not end well (a limit, a lost connection): what is not complete in itself is no call.
        """
        self._cursor.cut, self._cursor.final = cut, True
        next(self._run, None)
        if self._held:
            self._release(as_thought=cut)
        return self._taken()

    def _taken(self) -> list[Part]:
        out, self._out = self._out, []
        return out

    def _read(self) -> Generator[None, None, None]:
        while True:
            literal = yield from self._text()
            if literal is None:
                return
            if self._may_stand(literal) and (yield from self._mark(literal)):
                continue
            self._show(self._cursor.pos + 1)

    # --- text

    def _text(self) -> Wait[str | None]:
        """Release text up to the next mark: its literal, or the start of it; None at the end."""
        cursor = self._cursor
        while True:
            cursor.begin()
            found = self._found()
            sure = cursor.ended or (found is not None and found[0] + self._marks.longest <= len(cursor.text))
            held = len(cursor.text) if sure else self._unfinished()
            if found is not None and found[0] <= held:
                self._show(found[0])
                return found[1]
            self._show(held)
            cursor.begin()
            if not (yield from cursor.more()) and cursor.pos >= len(cursor.text):
                return None

    def _found(self) -> tuple[int, str] | None:
        """Where the next literal starts, and the literal."""
        marks, pos = self._marks, self._cursor.pos
        places: list[tuple[int, int, str]] = []
        anywhere = self._searched("anywhere", marks.anywhere)
        if anywhere is not None:
            places.append((anywhere.start(), 0, anywhere.group()))
        at_line = self._searched("at_line", marks.at_line)
        if at_line is not None:
            places.append((at_line.start(1), 1, at_line[1]))
        here = marks.here.match(self._cursor.text, pos) if self._starts() else None
        if here is not None and (self._blank or _SENTENCE.search(self._tail + self._cursor.text[pos : here.start(1)])):
            places.append((here.start(1), 1, here[1]))
        if not places:
            return None
        start, _, literal = min(places)
        return start, literal

    def _starts(self) -> bool:
        """Whether something new may start here: a line, or what follows a sentence."""
        return self._blank or _SENTENCE.search(self._tail) is not None

    def _searched(self, name: str, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """The next match from here on; searched for once."""
        cursor = self._cursor
        version, found = self._next.get(name, (-1, None))
        if version != cursor.version or (found is not None and found.start() < cursor.pos):
            found = pattern.search(cursor.text, cursor.pos)
            cursor.work += (found.end() if found else len(cursor.text)) - cursor.pos
            self._next[name] = cursor.version, found
        return found

    def _unfinished(self) -> int:
        """Where the end of the text starts that may still become a literal."""
        cursor, marks = self._cursor, self._marks
        size = len(cursor.text)
        for start in range(max(cursor.pos, size - marks.longest), size):
            end = cursor.text[start:]
            if end in marks.unfinished or (end in marks.unfinished_at_line and self._blank_at(start)):
                return start
        return size

    def _blank_at(self, place: int) -> bool:
        before = self._cursor.text[self._cursor.pos : place]
        _, line, after = before.rpartition("\n")
        return ((bool(line) or self._blank) and not after.strip()) or _SENTENCE.search((self._tail + before)[-2:]) is not None

    def _show(self, end: int) -> None:
        """Release the text up to `end`."""
        cursor = self._cursor
        text = cursor.text[cursor.pos : end]
        cursor.pos = end
        if not text:
            return
        line = text.rpartition("\n")
        self._blank = (bool(line[1]) or self._blank) and not line[2].strip()
        self._in_code = (not line[1] and self._in_code) != bool(line[2].count("`") % 2)
        self._tail = (self._tail + text)[-2:]
        if self._closers:
            self._emit(Thought(text=text))
            return
        if self._after_call:
            text = text.lstrip()
            self._after_call = not text
        if text and not self._dropping:
            self._emit(Shown(text=text))

    def _emit(self, part: Part) -> None:
        """Hand a part out, or hold it; text joins the text before it."""
        out = self._held if self._held else self._out
        last = out[-1] if out else None
        if isinstance(part, Shown) and isinstance(last, Shown):
            out[-1] = Shown(text=last.text + part.text)
        else:
            out.append(part)

    # --- marks

    def _may_stand(self, literal: str) -> bool:
        """Whether a mark means something here: not in quotes, code and what is dropped."""
        if self._dropping:
            return False
        if literal == FENCE and not self._closers:
            return self._blank
        return not self._in_code and not self._fence and not (self._tail[-1:] in _QUOTES and not self._blank)

    def _mark(self, literal: str) -> Wait[bool]:
        """Read what a mark stands for; False if it is text."""
        cursor = self._cursor
        for longer in self._marks.beginning_with(literal):
            if not longer.startswith(cursor.ahead(len(longer))):
                continue
            if (yield from cursor.at(longer)) and (yield from self._means(longer)):
                return True
        return False

    def _means(self, literal: str) -> Wait[bool]:
        marks = self._marks
        if literal in self._closers:
            self._skip(literal)
            self._release(as_thought=True)
            self._closers = frozenset()
            return True
        for dialect in marks.dialects.get(literal, ()):
            if self._may_call(dialect) and (yield from self._try(dialect, literal)):
                return True
        if self._closers:
            return False
        if literal in marks.thoughts:
            self._skip(literal)
            self._closers, self._has_thought = marks.thoughts[literal], True
            return True
        if literal in marks.silent and (literal != END or self._after_call):
            self._skip(literal)
            return True
        if literal in marks.closers and not self._has_thought and not (yield from self._is_mentioned(literal)):
            self._skip(literal)
            self._has_thought = True
            self._emit(Thought(text="", recalled=True))
            return True
        if literal == self._wrapper or (literal in WRAPPERS and self._has_thought and self._after_call):
            self._wrapper = WRAPPERS.get(literal, "")
            self._skip(literal)
            return True
        return (yield from self._words(literal))

    def _is_mentioned(self, literal: str) -> Wait[bool]:
        """Whether a mark stands like a word between words."""
        return self._tail.endswith(" ") and (yield from self._cursor.at(f"{literal} "))

    def _words(self, literal: str) -> Wait[bool]:
        """What agents' prompts and code blocks have for marks."""
        if not self._blank:
            return False
        if literal == OBSERVATION and self._acted:
            self._dropping = True
        elif literal == ANSWER:
            self._answered = True
        elif literal == FENCE:
            yield from self._toggle_fence()
            return True
        return False

    def _toggle_fence(self) -> Wait[None]:
        cursor = self._cursor
        cursor.begin()
        start = cursor.offset
        yield from cursor.take(FENCE)
        info = yield from cursor.run(_INFO)
        self._fence = info if self._fence is None else None
        size = cursor.offset - start
        cursor.rewind()
        self._show(cursor.pos + size)
        self._in_code = False

    def _skip(self, literal: str) -> None:
        """Pass over a mark; what follows starts a line."""
        self._cursor.pos += len(literal)
        self._fresh()

    def _fresh(self) -> None:
        self._blank, self._in_code, self._tail, self._after_call = True, False, "", True

    # --- calls

    def _may_call(self, dialect: Dialect) -> bool:
        """Whether a dialect may be tried here."""
        if self._vain > _PATIENCE + _PER_CHARACTER * self._cursor.offset:
            return False
        return not dialect.bare or (self._starts() and not self._answered and not self._closers)

    def _try(self, dialect: Dialect, opener: str) -> Wait[bool]:
        """Whether a dialect finds something here. What it has read since its last find is text again if it stops."""
        cursor = self._cursor
        cursor.begin()
        start, count = cursor.offset, 0
        try:
            yield from cursor.take(opener)
            for found in dialect.read(cursor, self._tools, opener):
                if found is None:
                    yield
                    continue
                count += 1
                self._call(replace(found, dialect=dialect.name, source=cursor.source()))
                cursor.begin()
                start = cursor.offset
        except NoCall:
            self._vain += cursor.offset - start
            cursor.rewind()
            return count > 0
        if not count:
            self._fresh()
        return True

    def _call(self, found: Found) -> None:
        self._acted = self._acted or found.dialect == "react"
        if self._closers and not self._held:
            self._held.append(found)
        else:
            self._emit(found)
        self._fresh()

    def _release(self, *, as_thought: bool) -> None:
        """Let go of what was held in a thought."""
        held, self._held = self._held, []
        for part in held:
            self._emit(Thought(text=part.source) if as_thought and isinstance(part, Found) else part)


def read_text(text: str, tools: Mapping[str, Mapping[str, object] | None], *, dialect: str | None = None, partial: bool = False) -> Reading:
    """Read a whole message.

    Args:
        text: What the model wrote, and nothing else.
        tools: The schemas of the tools that it knows, by name; see `TextReader`.
        dialect: The dialect to expect, if the host knows it.
        partial: The message did not end well.
    """
    reader = TextReader(tools, dialect=dialect)
    return gather([*reader.feed(text), *reader.close(cut=partial)])
