"""Read a model's text, as it arrives, into what is shown, what was thought and what was called.

A state machine over the marks of all dialects. Text flows through; at a mark that may open a call, the dialects that know it are asked in
turn, and what none of them reads is text again. Where the stream was cut into pieces makes no difference. Calls in a thought are held
until it ends: a thought that ends was only a thought, and one that never does was ended by its call.

Feed it what a model wrote, and nothing else: text from a tool's result that comes through here could make calls.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator, Mapping

from msgspec.structs import replace

from callgate.models.dialects.cursor import Cursor, NoCall, Wait
from callgate.models.dialects.flow import Flow
from callgate.models.dialects.marks import ANSWERS, ENDS, FENCE, OBSERVATIONS, WRAPPERS, marks_for
from callgate.models.dialects.mentions import PATIENCE, PER_CHARACTER, Mentions
from callgate.models.dialects.names import ToolNames
from callgate.models.dialects.parts import Part, Reading, gather
from callgate.models.dialects.search import MarkSearch
from callgate.models.dialects.shape import Dialect

__all__ = ["TextReader", "read_text"]

_INFO = re.compile(r"[^\s`]*")
_STEP = 32_768
"""Characters that are looked at in one step: a few milliseconds, or some tens where the text is made to be slow."""
_SHOWN = 8_192
"""Characters that are let through at once."""
_UNWRAPS = frozenset(WRAPPERS.values())


class TextReader:
    """Reads one message. No input or output; never raises for what the text holds."""

    def __init__(
        self, tools: Mapping[str, Mapping[str, object] | None], *, dialect: str | None = None, thinking: bool = False, taught: bool = False
    ) -> None:
        """Start a message.

        Args:
            tools: The schemas of the tools that the model knows, by name; None for a schema that is not known. Empty: no name is known.
            dialect: The dialect to expect; one that is not known is no hint. The others are read all the same.
            thinking: The prompt ended inside a thought, so the text begins in it.
            taught: The prompt teaches the fallback format. Of the forms without markers, only that one makes calls then: an object of
                strict JSON, of whatever name.
        """
        self._tools = ToolNames(tools, taught=taught)
        self._marks = marks_for(dialect, taught=taught)
        self._cursor = Cursor()
        self._flow = Flow()
        self._flow.thinking = thinking
        self._closers: frozenset[str] = self._marks.closers if thinking else frozenset()
        """What ends the thought that the text is in."""
        self._has_thought = thinking
        self._wrapper = ""
        """What closes what the answer is wrapped in."""
        self._fence: str | None = None
        """The language of the code block that the text is in."""
        self._acted = self._answered = False
        self._vain = 0
        self._search = MarkSearch(self._cursor, self._marks, self._flow)
        self._mentions = Mentions(self._cursor, self._marks, self._flow, self._tools)
        self._busy = False
        self._run = self._read()

    @property
    def work(self) -> int:
        """Characters looked at so far."""
        return self._cursor.work

    @property
    def held(self) -> int:
        """How many characters of what may become a call were read: the next step may take time that grows with them."""
        return self._cursor.held

    @property
    def is_busy(self) -> bool:
        """Whether the last step ended although there is more to read."""
        return self._busy

    def feed(self, text: str) -> list[Part]:
        """Take in the next piece of the message; what is certain by now comes back."""
        return [part for parts in self.feeding(text) for part in parts]

    def feeding(self, text: str) -> Iterator[list[Part]]:
        """The same in steps of bounded work, for callers that share their thread. Read them all before the next piece."""
        for start in range(0, len(text), _STEP):
            self._cursor.arrive(text[start : start + _STEP])
            yield from self._steps(more=start + _STEP < len(text))

    def close(self, *, cut: bool = False) -> list[Part]:
        """End the message, and get the rest of it.

        Args:
            cut: It did not end well (a limit, a lost connection): what is not complete in itself is no call.
        """
        return [part for parts in self.closing(cut=cut) for part in parts]

    def closing(self, *, cut: bool = False) -> Iterator[list[Part]]:
        """The same in steps of bounded work."""
        self._cursor.cut, self._cursor.final = cut, True
        yield from self._steps()
        self._flow.release(as_thoughts=cut)
        yield self._flow.taken()

    def _steps(self, *, more: bool = False) -> Iterator[list[Part]]:
        """Read until more text is needed, of which there may be `more`."""
        cursor = self._cursor
        cursor.paused = True
        while cursor.paused:
            cursor.paused, cursor.pause_at = False, cursor.work + _STEP
            next(self._run, None)
            self._busy = cursor.paused or more
            yield self._flow.taken()

    def _read(self) -> Generator[None, None, None]:
        while True:
            yield from self._cursor.pause()
            if self._flow.empty and (yield from self._calls("")):
                continue
            literal = yield from self._text()
            if literal is None:
                return
            mention = 0 if self._fence is not None else (yield from self._mentions.size(literal))
            if not mention and self._may_stand(literal) and (yield from self._mark(literal)):
                continue
            yield from self._show(self._cursor.pos + (mention or 1), word=mention > 0)

    # --- text

    def _text(self) -> Wait[str | None]:
        """Release text up to the next mark: its literal, or the start of it; None at the end."""
        cursor = self._cursor
        while True:
            cursor.begin()
            found = self._search.found()
            sure = cursor.ended or (found is not None and found[0] + self._marks.longest <= len(cursor.text))
            held = len(cursor.text) if sure else self._search.unfinished()
            if found is not None and found[0] <= held:
                yield from self._show(found[0])
                return found[1]
            yield from self._show(held)
            cursor.begin()
            if not (yield from cursor.more()) and cursor.pos >= len(cursor.text):
                return None

    def _show(self, end: int, *, word: bool = False) -> Wait[None]:
        """Let text through, up to `end`; as one word where it is a call that is spoken of."""
        cursor = self._cursor
        while not word and end - cursor.pos > _SHOWN:
            self._flow.text(cursor.text[cursor.pos : cursor.pos + _SHOWN])
            cursor.pos += _SHOWN
            cursor.work += _SHOWN
            yield from cursor.pause()
        self._flow.text(cursor.text[cursor.pos : end], word=word)
        cursor.pos = end

    # --- marks

    def _may_stand(self, literal: str) -> bool:
        """Whether a mark means something here: not in quotes, code and what is dropped."""
        if self._flow.dropping:
            return False
        if self._closers:
            return not self._flow.in_code or any(closer.startswith(literal) for closer in self._closers)
        if literal == FENCE:
            return self._flow.blank
        return not self._flow.in_code and not self._fence and not self._flow.quotes()

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
        if literal in self._closers:
            self._skip(literal)
            self._closers = frozenset()
            self._flow.turn(thinking=False)
            return True
        if (yield from self._calls(literal)):
            return True
        if self._closers:
            return self._is_silent(literal)
        if literal in self._marks.closers and literal not in self._marks.silent:
            return (yield from self._recalls(literal))
        if literal in self._marks.thoughts:
            return (yield from self._thinks(literal))
        return self._passes(literal) or (yield from self._words(literal))

    def _thinks(self, literal: str) -> Wait[bool]:
        """Whether a thought begins. Not if its mark stands like a word between words."""
        if not self._flow.starts() and (yield from self._is_a_word(literal)):
            return False
        self._skip(literal)
        self._closers, self._has_thought = self._marks.thoughts[literal], True
        self._flow.turn(thinking=True)
        return True

    def _is_a_word(self, literal: str) -> Wait[bool]:
        return self._flow.spaced() and (yield from self._cursor.at(f"{literal} "))

    def _recalls(self, literal: str) -> Wait[bool]:
        """Whether the end of a thought that never began shows that everything was one. Not if it stands like a word between words."""
        if self._has_thought or (yield from self._is_a_word(literal)):
            return False
        self._skip(literal)
        self._has_thought = True
        self._flow.recall()
        return True

    def _passes(self, literal: str) -> bool:
        """Whether a mark is passed over: it wraps an answer or says nothing."""
        wraps = literal == self._wrapper or (self._flow.after_mark and (literal in _UNWRAPS or (literal in WRAPPERS and self._has_thought)))
        if wraps:
            self._wrapper = WRAPPERS.get(literal, "")
            self._skip(literal)
        return wraps or self._is_silent(literal)

    def _is_silent(self, literal: str) -> bool:
        """Whether a mark says nothing; it is then passed over."""
        silent = literal in self._marks.silent and (literal not in ENDS or self._flow.after_mark)
        if silent:
            self._skip(literal, silent=True)
        return silent

    def _words(self, literal: str) -> Wait[bool]:
        """What agents' prompts and code blocks have for marks."""
        if not self._flow.blank:
            return False
        if literal in OBSERVATIONS and self._acted:
            self._flow.dropping = True
        elif literal in ANSWERS:
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
        yield from self._show(cursor.pos + size)
        self._flow.leave_code()

    def _skip(self, literal: str, *, silent: bool = False) -> None:
        """Pass over a mark."""
        self._cursor.pos += len(literal)
        self._flow.mark(silent=silent)

    # --- calls

    def _calls(self, opener: str) -> Wait[bool]:
        """Whether a call is opened here, or stands here without an opener. One that was cut off is text, and so is what its values say."""
        cut_off = False
        for dialect in filter(self._may_call, self._marks.dialects.get(opener, ())):
            if (yield from self._try(dialect, opener)):
                return True
            cut_off = cut_off or self._cut_off()
        if cut_off:
            yield from self._show(len(self._cursor.text))
        return cut_off

    def _cut_off(self) -> bool:
        """Whether what was tried last would have gone on where a message was cut off. In a thought nothing counts then."""
        cursor = self._cursor
        return cursor.cut and cursor.dry and cursor.pos < len(cursor.text) and not self._closers

    def _may_call(self, dialect: Dialect) -> bool:
        """Whether a dialect may be tried here."""
        if self._vain > PATIENCE + PER_CHARACTER * self._cursor.offset:
            return False
        if self._flow.shows() or (dialect.unmarked and (self._answered or self._flow.in_json)):
            return False
        return not dialect.bare or (self._flow.starts() and not self._closers)

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
                self._acted = self._acted or dialect.unmarked
                self._flow.call(replace(found, dialect=dialect.name, source=cursor.source()))
                cursor.begin()
                start = cursor.offset
        except NoCall:
            self._vain += cursor.offset - start
            cursor.rewind()
            if count and self._cut_off():
                yield from self._show(len(cursor.text))
            return count > 0
        if not count:
            self._flow.mark()
        return True


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
