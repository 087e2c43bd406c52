"""Read a model's text as it arrives into visible text, reasoning and calls.

A state machine over the markers of all dialects. Ordinary text passes through. At a marker that may open a call, each
dialect with that marker is tried in turn; if none of them reads a call, the marker is text. The result does not depend
on how the stream was cut.

Calls in reasoning are held back until the reasoning or the message ends. If the reasoning is closed, they were
part of it. If a complete message never closes it, they are calls.

Feed only what a model wrote: text from a tool's result could make calls.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator, Mapping

from msgspec.structs import replace

from callgate.models.dialects.dialect import Dialect
from callgate.models.dialects.families import ALL_DIALECTS
from callgate.models.dialects.known_tools import KnownTools
from callgate.models.dialects.marker_search import MarkerSearch
from callgate.models.dialects.markers import ANSWER_TAGS, CODE_FENCE, END_MARKERS, FINAL_ANSWERS, OBSERVATIONS, OTHERS_TEXT, markers_for
from callgate.models.dialects.mentioned_calls import WASTED_CHARS, WASTED_PER_CHAR, MentionFinder
from callgate.models.dialects.text_and_call_parts import FoundCall, ParsedPart, ParsedText, collect_parts
from callgate.models.dialects.text_cursor import Incremental, NotACall, TextCursor
from callgate.models.dialects.text_output import TextOutput

__all__ = ["TextReader", "read_text"]

_FENCE_INFO = re.compile(r"[^\s`]*")
_STEP_CHARS = 32_768
"""Characters scanned per step: a few milliseconds, or some tens for text that is made to be slow."""
_TEXT_STEP_CHARS = 8_192
"""Characters of plain text that are passed through at once."""
_UNMARKED_DIALECTS = frozenset(dialect.name for dialect in ALL_DIALECTS if dialect.is_unmarked)
_CLOSING_ANSWER_TAGS = frozenset(ANSWER_TAGS.values())


class TextReader:
    """Reads one message. No input or output; never raises because of the text.

    Args:
        tools: Schemas of the tools that the model knows, by name; None for an unknown schema. Empty: no names are
            known.
        dialect: The dialect to expect. The other dialects are read too. An unknown name has no effect.
        thinking: Whether the prompt ended inside reasoning, so that the text begins in it.
        taught: Whether the prompt teaches the fallback format. Of the formats without markers, only that one then makes
            calls: an object of strict JSON, with any name.
    """

    def __init__(
        self,
        tools: Mapping[str, Mapping[str, object] | None],
        *,
        dialect: str | None = None,
        thinking: bool = False,
        taught: bool = False,
    ) -> None:
        self._tools = KnownTools(tools, fallback_taught=taught)
        self._markers = markers_for(dialect, fallback_taught=taught)
        self._cursor = TextCursor()
        self._output = TextOutput()
        self._output.in_reasoning = thinking
        self._reasoning_closers: frozenset[str] = self._markers.closers if thinking else frozenset()
        """The markers that end the current reasoning."""
        self._had_reasoning = thinking
        self._answer_end_tag = ""
        """The closing tag of the tags around the answer."""
        self._others_text_end: str | None = None
        """The marker that ends text that is not the model's own; empty if nothing ends it, None outside of such text."""
        self._code_language: str | None = None
        """The language of the current code block; None outside."""
        self._called_unmarked = self._answered = False
        self._wasted = 0
        self._search = MarkerSearch(self._cursor, self._markers, self._output)
        self._mention_finder = MentionFinder(self._cursor, self._markers, self._output, self._tools)
        self._is_busy = False
        self._reading = self._read()

    @property
    def work(self) -> int:
        """Characters scanned so far."""
        return self._cursor.work

    @property
    def candidate_chars(self) -> int:
        """The number of characters of a possible call that were read so far.

        The next step may take time that grows with it.
        """
        return self._cursor.candidate_chars

    @property
    def is_busy(self) -> bool:
        """Whether the last step ended with more text to read."""
        return self._is_busy

    def feed(self, text: str) -> list[ParsedPart]:
        """Read the next piece of the message. Return the parts that later text cannot change."""
        return [part for parts in self.feed_in_steps(text) for part in parts]

    def feed_in_steps(self, text: str) -> Iterator[list[ParsedPart]]:
        """Do the same as `feed` in steps of bounded work, for callers on an event loop.

        Exhaust the iterator before the next piece.
        """
        for start in range(0, len(text), _STEP_CHARS):
            self._cursor.feed(text[start : start + _STEP_CHARS])
            yield from self._run_steps(more=start + _STEP_CHARS < len(text))

    def close(self, *, cut: bool = False) -> list[ParsedPart]:
        """End the message. Return the remaining parts.

        Args:
            cut: Whether the message ended early (a limit, a lost connection). An incomplete call is then text.
        """
        return [part for parts in self.close_in_steps(cut=cut) for part in parts]

    def close_in_steps(self, *, cut: bool = False) -> Iterator[list[ParsedPart]]:
        """Do the same as `close` in steps of bounded work."""
        self._cursor.truncated, self._cursor.final = cut, True
        yield from self._run_steps()
        self._output.release_calls(as_reasoning=cut)
        yield self._output.drain()

    def _run_steps(self, *, more: bool = False) -> Iterator[list[ParsedPart]]:
        """Read until more text is needed; `more` tells whether more has arrived."""
        cursor = self._cursor
        cursor.paused = True
        while cursor.paused:
            cursor.paused, cursor.pause_at = False, cursor.work + _STEP_CHARS
            next(self._reading, None)
            self._is_busy = cursor.paused or more
            yield self._output.drain()

    def _read(self) -> Generator[None, None, None]:
        while True:
            yield from self._cursor.pause()
            if self._output.is_empty and (yield from self._read_calls("")):
                continue
            literal = yield from self._next_marker()
            if literal is None:
                return
            mention_chars = 0 if self._code_language is not None else (yield from self._mention_finder.mention_chars(literal))
            if not mention_chars and self._may_count(literal) and (yield from self._read_marker(literal)):
                continue
            marker_chars = 0 if mention_chars else (yield from self._mention_finder.quoted_marker_chars(literal))
            if marker_chars:
                self._output.add_quoted_marker(self._cursor.ahead(marker_chars))
                self._cursor.pos += marker_chars
            else:
                yield from self._emit_text(self._cursor.pos + (mention_chars or 1), as_word=mention_chars > 0)

    def _next_marker(self) -> Incremental[str | None]:
        """Emit text up to the next marker and return it, or the start of it; None at the end."""
        cursor = self._cursor
        while True:
            cursor.start_candidate()
            found = self._search.find()
            is_certain = cursor.ended or (found is not None and found[0] + self._markers.max_chars <= len(cursor.text))
            limit = len(cursor.text) if is_certain else self._search.unfinished_from()
            if found is not None and found[0] <= limit:
                yield from self._emit_text(found[0])
                return found[1]
            yield from self._emit_text(limit)
            cursor.start_candidate()
            if not (yield from cursor.wait_more()) and cursor.pos >= len(cursor.text):
                return None

    def _emit_text(self, end: int, *, as_word: bool = False) -> Incremental[None]:
        """Emit text up to `end`. A mentioned call is emitted as one word."""
        cursor = self._cursor
        while not as_word and end - cursor.pos > _TEXT_STEP_CHARS:
            self._output.add_text(cursor.text[cursor.pos : cursor.pos + _TEXT_STEP_CHARS])
            cursor.pos += _TEXT_STEP_CHARS
            cursor.work += _TEXT_STEP_CHARS
            yield from cursor.pause()
        self._output.add_text(cursor.text[cursor.pos : end], as_word=as_word)
        cursor.pos = end

    def _may_count(self, literal: str) -> bool:
        """Whether a marker has its meaning here: not in quotes, code or discarded text."""
        if self._output.discarding:
            return False
        if self._others_text_end is not None:
            return True
        if self._reasoning_closers:
            return not self._output.in_code or any(closer.startswith(literal) for closer in self._reasoning_closers)
        if literal == CODE_FENCE:
            return self._output.line_is_blank
        return not (self._output.in_code or self._code_language or self._output.is_quoted() or self._output.in_shown_fence)

    def _read_marker(self, literal: str) -> Incremental[bool]:
        """Read a marker; return False if it is text."""
        cursor = self._cursor
        for longer in self._markers.starting_with(literal):
            if not longer.startswith(cursor.ahead(len(longer))):
                continue
            if (yield from cursor.at(longer)) and (yield from self._apply_marker(longer)):
                return True
        return False

    def _apply_marker(self, literal: str) -> Incremental[bool]:
        if literal in self._reasoning_closers:
            self._skip_marker(literal)
            self._reasoning_closers, self._others_text_end = frozenset(), None
            self._output.switch_reasoning(to_reasoning=False)
            return True
        if self._others_text_end is not None or (literal in OTHERS_TEXT and not (yield from self._is_between_words(literal))):
            return (yield from self._pass_others_text(literal))
        if (yield from self._read_calls(literal)):
            return True
        if self._reasoning_closers:
            return self._skip_if_ignored(literal)
        if literal in self._markers.closers and literal not in self._markers.ignored:
            return (yield from self._reclassify_text(literal))
        if literal in self._markers.reasoning:
            return (yield from self._begin_reasoning(literal))
        return self._skip_if_answer_tag(literal) or (yield from self._read_line_start_marker(literal))

    def _pass_others_text(self, literal: str) -> Incremental[bool]:
        """Read a marker that begins or ends text that is not the model's own, or that stands in such text, where no call is read."""
        if self._others_text_end is None:
            self._others_text_end = OTHERS_TEXT[literal]
        elif literal == self._others_text_end:
            self._others_text_end = None
        elif literal not in self._markers.ignored:
            return False
        if not self._skip_if_ignored(literal):
            yield from self._emit_text(self._cursor.pos + len(literal))
        return True

    def _begin_reasoning(self, literal: str) -> Incremental[bool]:
        """Begin reasoning, unless its marker is used as a word in a sentence. Return whether it began."""
        if not self._output.is_start() and (yield from self._is_between_words(literal)):
            return False
        self._skip_marker(literal)
        self._reasoning_closers, self._had_reasoning = self._markers.reasoning[literal], True
        self._output.switch_reasoning(to_reasoning=True)
        return True

    def _is_between_words(self, literal: str) -> Incremental[bool]:
        return self._output.is_after_space() and (yield from self._cursor.at(f"{literal} "))

    def _reclassify_text(self, literal: str) -> Incremental[bool]:
        """Turn all text so far into reasoning if a marker closes reasoning that was never opened.

        Return whether it did. A marker that is used as a word in a sentence has no effect.
        """
        if self._had_reasoning or (yield from self._is_between_words(literal)):
            return False
        self._skip_marker(literal)
        self._had_reasoning = True
        self._output.reclassify_text()
        return True

    def _skip_if_answer_tag(self, literal: str) -> bool:
        """Skip a marker that wraps an answer or has no meaning; return whether it was one."""
        is_answer_tag = literal == self._answer_end_tag or (
            self._output.after_marker and (literal in _CLOSING_ANSWER_TAGS or (literal in ANSWER_TAGS and self._had_reasoning))
        )
        if is_answer_tag:
            self._answer_end_tag = ANSWER_TAGS.get(literal, "")
            self._skip_marker(literal)
        return is_answer_tag or self._skip_if_ignored(literal)

    def _skip_if_ignored(self, literal: str) -> bool:
        """Skip a marker that has no meaning; return whether it was one."""
        is_ignored = literal in self._markers.ignored and (literal not in END_MARKERS or self._output.after_marker)
        if is_ignored:
            self._skip_marker(literal, ignored=True)
        return is_ignored

    def _read_line_start_marker(self, literal: str) -> Incremental[bool]:
        """Read a marker of agent prompts or a code fence; return whether it was consumed."""
        if not self._output.line_is_blank:
            return False
        if literal in OBSERVATIONS and self._called_unmarked:
            self._output.discarding = True
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
        info = yield from cursor.take_while(_FENCE_INFO)
        self._code_language = info if self._code_language is None else None
        size = cursor.offset - start
        cursor.rewind()
        yield from self._emit_text(cursor.pos + size)
        self._output.reset_code()

    def _skip_marker(self, literal: str, *, ignored: bool = False) -> None:
        """Skip a marker."""
        self._cursor.pos += len(literal)
        self._output.add_marker(ignored=ignored)

    def _read_calls(self, opener: str) -> Incremental[bool]:
        """Read calls at the current position, with or without an opener; return whether anything was read.

        If the message ends within a call, the rest of its text is emitted as ordinary text, so that values in it
        are not read as calls.
        """
        cut_off = False
        for dialect in filter(self._may_try, self._markers.dialects.get(opener, ())):
            if (yield from self._try_dialect(dialect, opener)):
                return True
            cut_off = cut_off or self._is_cut_off()
        if cut_off:
            yield from self._emit_text(len(self._cursor.text))
        return cut_off

    def _is_cut_off(self) -> bool:
        """Whether the message ended within the last candidate. Always False in reasoning."""
        cursor = self._cursor
        return cursor.ran_out and cursor.pos < len(cursor.text) and not self._reasoning_closers

    def _may_try(self, dialect: Dialect) -> bool:
        """Whether a dialect may be tried here."""
        if self._wasted > WASTED_CHARS + WASTED_PER_CHAR * self._cursor.offset:
            return False
        if self._output.is_example() or (dialect.is_unmarked and (self._answered or self._output.in_json)):
            return False
        return not dialect.line_start_only or (self._output.is_start() and not self._reasoning_closers)

    def _try_dialect(self, dialect: Dialect, opener: str) -> Incremental[bool]:
        """Read calls in one dialect at the cursor. Return whether it found any.

        If the dialect fails after some calls, the text after the last of them becomes text again.
        """
        cursor, count = self._cursor, 0
        first: FoundCall | None = None
        may_be_subject = self._output.begins_sentence
        cursor.start_candidate()
        try:
            yield from cursor.take(opener)
            for found in dialect.read(cursor, self._tools, opener):
                if first is not None and (found is not None or self._mention_finder.is_no_subject(first)):
                    self._add_call(first)
                    first = None
                if found is None:
                    yield
                    continue
                count += 1
                call = replace(found, dialect=dialect.name, source=cursor.candidate_text())
                if count == 1:
                    first = call
                else:
                    self._add_call(call)
        except NotACall:
            yield from self._end_failed_candidate(first, may_be_subject)
            if count and self._is_cut_off():
                yield from self._emit_text(len(cursor.text))
            return count > 0
        if first is not None:
            yield from self._add_unless_not_made(first, may_be_subject)
        if not count:
            self._output.add_marker()
        return True

    def _end_failed_candidate(self, first: FoundCall | None, may_be_subject: bool) -> Incremental[None]:
        """Go back to the end of the last call, or to the start of the candidate. `first` is its first call, if that was not added yet."""
        cursor = self._cursor
        if first is not None and self._mention_finder.is_no_subject(first):
            self._add_call(first)
            first = None
        call_chars = len(first.source) if first is not None else 0
        self._wasted += cursor.candidate_chars - call_chars
        cursor.rewind()
        if first is not None:
            cursor.pos += call_chars
            yield from self._add_unless_not_made(first, may_be_subject)

    def _add_call(self, call: FoundCall) -> None:
        """Add a call that begins the candidate. The candidate then begins after it."""
        self._called_unmarked = self._called_unmarked or call.dialect in _UNMARKED_DIALECTS
        self._output.add_call(call)
        self._cursor.shorten_candidate(len(call.source))

    def _add_unless_not_made(self, call: FoundCall, may_be_subject: bool) -> Incremental[None]:
        """Add the only call of the candidate, or emit the candidate as text if the text after it shows that the call is not made."""
        finder = self._mention_finder
        if not ((may_be_subject and (yield from finder.is_subject(call))) or (yield from finder.is_withdrawn(call))):
            self._add_call(call)
            return
        chars = self._cursor.candidate_chars
        self._cursor.rewind()
        yield from self._emit_text(self._cursor.pos + chars, as_word=True)
        self._cursor.start_candidate()


def read_text(
    text: str, tools: Mapping[str, Mapping[str, object] | None], *, dialect: str | None = None, partial: bool = False
) -> ParsedText:
    """Read a whole message.

    Args:
        text: What the model wrote, and nothing else.
        tools: Schemas of the tools that the model knows, by name; see `TextReader`.
        dialect: The dialect to expect, if the host knows it.
        partial: Whether the message ended early.
    """
    reader = TextReader(tools, dialect=dialect)
    return collect_parts([*reader.feed(text), *reader.close(cut=partial)])
