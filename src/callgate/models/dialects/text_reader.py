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

from callgate.models.dialects.call_mentions import WASTED_CHARS, WASTED_PER_CHAR, MentionFinder
from callgate.models.dialects.dialect import Dialect
from callgate.models.dialects.known_tools import KnownTools
from callgate.models.dialects.marker_search import MarkerSearch
from callgate.models.dialects.markers import ANSWER_TAGS, CODE_FENCE, END_MARKERS, FINAL_ANSWERS, OBSERVATIONS, markers_for
from callgate.models.dialects.parsed_parts import ParsedPart, ParsedText, collect_parts
from callgate.models.dialects.text_cursor import Incremental, NotACall, TextCursor
from callgate.models.dialects.text_output import TextOutput

__all__ = ["TextReader", "read_text"]

_INFO = re.compile(r"[^\s`]*")
_STEP = 32_768
"""Characters that are looked at in one step: a few milliseconds, or some tens where the text is made to be slow."""
_SHOWN = 8_192
"""Characters that are let through at once."""
_UNWRAPS = frozenset(ANSWER_TAGS.values())


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
        self._tools = KnownTools(tools, taught=taught)
        self._marks = markers_for(dialect, taught=taught)
        self._cursor = TextCursor()
        self._flow = TextOutput()
        self._flow.in_reasoning = thinking
        self._closers: frozenset[str] = self._marks.closers if thinking else frozenset()
        """What ends the thought that the text is in."""
        self._has_thought = thinking
        self._wrapper = ""
        """What closes what the answer is wrapped in."""
        self._fence: str | None = None
        """The language of the code block that the text is in."""
        self._acted = self._answered = False
        self._vain = 0
        self._search = MarkerSearch(self._cursor, self._marks, self._flow)
        self._mentions = MentionFinder(self._cursor, self._marks, self._flow, self._tools)
        self._busy = False
        self._run = self._read()

    @property
    def work(self) -> int:
        """Characters looked at so far."""
        return self._cursor.work

    @property
    def held(self) -> int:
        """How many characters of what may become a call were read: the next step may take time that grows with them."""
        return self._cursor.candidate_chars

    @property
    def is_busy(self) -> bool:
        """Whether the last step ended although there is more to read."""
        return self._busy

    def feed(self, text: str) -> list[ParsedPart]:
        """Take in the next piece of the message; what is certain by now comes back."""
        return [part for parts in self.feeding(text) for part in parts]

    def feeding(self, text: str) -> Iterator[list[ParsedPart]]:
        """The same in steps of bounded work, for callers that share their thread. Read them all before the next piece."""
        for start in range(0, len(text), _STEP):
            self._cursor.feed(text[start : start + _STEP])
            yield from self._steps(more=start + _STEP < len(text))

    def close(self, *, cut: bool = False) -> list[ParsedPart]:
        """End the message, and get the rest of it.

        Args:
            cut: It did not end well (a limit, a lost connection): what is not complete in itself is no call.
        """
        return [part for parts in self.closing(cut=cut) for part in parts]

    def closing(self, *, cut: bool = False) -> Iterator[list[ParsedPart]]:
        """The same in steps of bounded work."""
        self._cursor.truncated, self._cursor.final = cut, True
        yield from self._steps()
        self._flow.release_calls(as_thoughts=cut)
        yield self._flow.drain()

    def _steps(self, *, more: bool = False) -> Iterator[list[ParsedPart]]:
        """Read until more text is needed, of which there may be `more`."""
        cursor = self._cursor
        cursor.paused = True
        while cursor.paused:
            cursor.paused, cursor.pause_at = False, cursor.work + _STEP
            next(self._run, None)
            self._busy = cursor.paused or more
            yield self._flow.drain()

    def _read(self) -> Generator[None, None, None]:
        while True:
            yield from self._cursor.pause()
            if self._flow.is_empty and (yield from self._calls("")):
                continue
            literal = yield from self._text()
            if literal is None:
                return
            mention = 0 if self._fence is not None else (yield from self._mentions.size(literal))
            if not mention and self._may_stand(literal) and (yield from self._mark(literal)):
                continue
            yield from self._show(self._cursor.pos + (mention or 1), word=mention > 0)

    # --- text

    def _text(self) -> Incremental[str | None]:
        """Release text up to the next mark: its literal, or the start of it; None at the end."""
        cursor = self._cursor
        while True:
            cursor.start_candidate()
            found = self._search.found()
            sure = cursor.ended or (found is not None and found[0] + self._marks.longest <= len(cursor.text))
            held = len(cursor.text) if sure else self._search.unfinished()
            if found is not None and found[0] <= held:
                yield from self._show(found[0])
                return found[1]
            yield from self._show(held)
            cursor.start_candidate()
            if not (yield from cursor.wait_more()) and cursor.pos >= len(cursor.text):
                return None

    def _show(self, end: int, *, word: bool = False) -> Incremental[None]:
        """Let text through, up to `end`; as one word where it is a call that is spoken of."""
        cursor = self._cursor
        while not word and end - cursor.pos > _SHOWN:
            self._flow.add_text(cursor.text[cursor.pos : cursor.pos + _SHOWN])
            cursor.pos += _SHOWN
            cursor.work += _SHOWN
            yield from cursor.pause()
        self._flow.add_text(cursor.text[cursor.pos : end], word=word)
        cursor.pos = end

    # --- marks

    def _may_stand(self, literal: str) -> bool:
        """Whether a mark means something here: not in quotes, code and what is dropped."""
        if self._flow.discarding:
            return False
        if self._closers:
            return not self._flow.in_code or any(closer.startswith(literal) for closer in self._closers)
        if literal == CODE_FENCE:
            return self._flow.line_is_blank
        return not self._flow.in_code and not self._fence and not self._flow.is_quoted()

    def _mark(self, literal: str) -> Incremental[bool]:
        """Read what a mark stands for; False if it is text."""
        cursor = self._cursor
        for longer in self._marks.beginning_with(literal):
            if not longer.startswith(cursor.ahead(len(longer))):
                continue
            if (yield from cursor.at(longer)) and (yield from self._means(longer)):
                return True
        return False

    def _means(self, literal: str) -> Incremental[bool]:
        if literal in self._closers:
            self._skip(literal)
            self._closers = frozenset()
            self._flow.switch_reasoning(thinking=False)
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

    def _thinks(self, literal: str) -> Incremental[bool]:
        """Whether a thought begins. Not if its mark stands like a word between words."""
        if not self._flow.is_start() and (yield from self._is_a_word(literal)):
            return False
        self._skip(literal)
        self._closers, self._has_thought = self._marks.thoughts[literal], True
        self._flow.switch_reasoning(thinking=True)
        return True

    def _is_a_word(self, literal: str) -> Incremental[bool]:
        return self._flow.is_after_space() and (yield from self._cursor.at(f"{literal} "))

    def _recalls(self, literal: str) -> Incremental[bool]:
        """Whether the end of a thought that never began shows that everything was one. Not if it stands like a word between words."""
        if self._has_thought or (yield from self._is_a_word(literal)):
            return False
        self._skip(literal)
        self._has_thought = True
        self._flow.reclassify_text()
        return True

    def _passes(self, literal: str) -> bool:
        """Whether a mark is passed over: it wraps an answer or says nothing."""
        wraps = literal == self._wrapper or (
            self._flow.after_marker and (literal in _UNWRAPS or (literal in ANSWER_TAGS and self._has_thought))
        )
        if wraps:
            self._wrapper = ANSWER_TAGS.get(literal, "")
            self._skip(literal)
        return wraps or self._is_silent(literal)

    def _is_silent(self, literal: str) -> bool:
        """Whether a mark says nothing; it is then passed over."""
        silent = literal in self._marks.silent and (literal not in END_MARKERS or self._flow.after_marker)
        if silent:
            self._skip(literal, silent=True)
        return silent

    def _words(self, literal: str) -> Incremental[bool]:
        """What agents' prompts and code blocks have for marks."""
        if not self._flow.line_is_blank:
            return False
        if literal in OBSERVATIONS and self._acted:
            self._flow.discarding = True
        elif literal in FINAL_ANSWERS:
            self._answered = True
        elif literal == CODE_FENCE:
            yield from self._toggle_fence()
            return True
        return False

    def _toggle_fence(self) -> Incremental[None]:
        cursor = self._cursor
        cursor.start_candidate()
        start = cursor.offset
        yield from cursor.take(CODE_FENCE)
        info = yield from cursor.take_while(_INFO)
        self._fence = info if self._fence is None else None
        size = cursor.offset - start
        cursor.rewind()
        yield from self._show(cursor.pos + size)
        self._flow.reset_code()

    def _skip(self, literal: str, *, silent: bool = False) -> None:
        """Pass over a mark."""
        self._cursor.pos += len(literal)
        self._flow.add_marker(silent=silent)

    # --- calls

    def _calls(self, opener: str) -> Incremental[bool]:
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
        return cursor.truncated and cursor.ran_out and cursor.pos < len(cursor.text) and not self._closers

    def _may_call(self, dialect: Dialect) -> bool:
        """Whether a dialect may be tried here."""
        if self._vain > WASTED_CHARS + WASTED_PER_CHAR * self._cursor.offset:
            return False
        if self._flow.is_example() or (dialect.unmarked and (self._answered or self._flow.in_json)):
            return False
        return not dialect.bare or (self._flow.is_start() and not self._closers)

    def _try(self, dialect: Dialect, opener: str) -> Incremental[bool]:
        """Whether a dialect finds something here. What it has read since its last find is text again if it stops."""
        cursor = self._cursor
        cursor.start_candidate()
        start, count = cursor.offset, 0
        try:
            yield from cursor.take(opener)
            for found in dialect.read(cursor, self._tools, opener):
                if found is None:
                    yield
                    continue
                count += 1
                self._acted = self._acted or dialect.unmarked
                self._flow.add_call(replace(found, dialect=dialect.name, source=cursor.candidate_text()))
                cursor.start_candidate()
                start = cursor.offset
        except NotACall:
            self._vain += cursor.offset - start
            cursor.rewind()
            if count and self._cut_off():
                yield from self._show(len(cursor.text))
            return count > 0
        if not count:
            self._flow.add_marker()
        return True


def read_text(
    text: str, tools: Mapping[str, Mapping[str, object] | None], *, dialect: str | None = None, partial: bool = False
) -> ParsedText:
    """Read a whole message.

    Args:
        text: What the model wrote, and nothing else.
        tools: The schemas of the tools that it knows, by name; see `TextReader`.
        dialect: The dialect to expect, if the host knows it.
        partial: The message did not end well.
    """
    reader = TextReader(tools, dialect=dialect)
    return collect_parts([*reader.feed(text), *reader.close(cut=partial)])
