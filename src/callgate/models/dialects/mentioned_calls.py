"""Find calls that are only mentioned: quoted, in code, shown as examples, or in the middle of a sentence about them.

A mentioned call is text, including all of its lines. It is therefore parsed like a call to find its end, and the text
directly after it decides whether it is a mention. The position of the cursor does not change.
"""

from __future__ import annotations

import re

from callgate.models.dialects.dialect import Dialect
from callgate.models.dialects.known_tools import KnownTools
from callgate.models.dialects.markers import Markers
from callgate.models.dialects.refusal_phrases import begins_withdrawal, withdraws_call
from callgate.models.dialects.text_and_call_parts import FoundCall
from callgate.models.dialects.text_cursor import Incremental, NotACall, TextCursor
from callgate.models.dialects.text_output import TextOutput

__all__ = ["WASTED_CHARS", "WASTED_PER_CHAR", "MentionFinder"]

WASTED_CHARS, WASTED_PER_CHAR = 65_536, 8
"""The limit on characters that are read without finding a call: `WASTED_CHARS`, plus `WASTED_PER_CHAR` for each
character of the message up to the cursor.
"""
_MAX_CLOSING_CHARS = 64
"""Maximum length of what closes a call, in characters. A call with more text before its end is not the subject of a sentence."""
_NEVER_CLOSING = frozenset('{("')
_MAX_PREDICATE_CHARS = 16
_PREDICATE = re.compile(r"(?:is|are|was|were|isn['\u2019]t|would|means|looks|shows|has)(?![\w'\u2019])")
_MAX_WITHDRAWAL_CHARS = 160
_BEFORE_LINE = " \t\r\n`"
"""White space, and a fence that ends after the call."""
_PREDICATE_START = re.compile(r"[a-z'\u2019]*")


class MentionFinder:
    """Decides whether the call at the cursor is only mentioned, from the text before and after it."""

    def __init__(self, cursor: TextCursor, markers: Markers, output: TextOutput, tools: KnownTools) -> None:
        self._cursor = cursor
        self._markers = markers
        self._output = output
        self._tools = tools
        self._wasted = 0

    def mention_chars(self, literal: str) -> Incremental[int]:
        """Return the length of the call that this marker would open, if it is only mentioned; else 0."""
        if not self._output.may_be_mention or self._wasted > WASTED_CHARS + WASTED_PER_CHAR * self._cursor.offset:
            return 0
        for opener in self._markers.starting_with(literal):
            if not (yield from self._cursor.at(opener)):
                continue
            for dialect in self._markers.dialects.get(opener, ()):
                chars = 0 if dialect.is_unmarked else (yield from self._measure_mention(dialect, opener))
                if chars:
                    return chars
        return 0

    def is_no_subject(self, call: FoundCall) -> bool:
        """Whether the text from the call to the cursor is more than what closes a call, as when it has the arguments of the next one."""
        if self._cursor.candidate_chars - len(call.source) > _MAX_CLOSING_CHARS:
            return True
        return not _NEVER_CLOSING.isdisjoint(self._cursor.candidate_text()[len(call.source) :])

    def is_subject(self, call: FoundCall) -> Incremental[bool]:
        """Return whether a call, which begins the candidate, is the subject of a sentence or a term that is explained.

        ` is` or the like, or a colon, follows its end.
        """
        cursor = self._cursor
        if self.is_no_subject(call):
            return False
        read = cursor.candidate_text()[len(call.source) :]
        spaces = read[len(read.rstrip()) :]
        while True:
            words = spaces + cursor.ahead(_MAX_PREDICATE_CHARS)
            is_open = words == "" or (words[0] == " " and _PREDICATE_START.fullmatch(words[1:]) is not None)
            if not is_open or len(words) >= _MAX_PREDICATE_CHARS or not (yield from cursor.wait_more()):
                break
        is_cut_off = is_open and words != "" and cursor.truncated
        if words[:1] == ":":
            return True
        return words[:1] == " " and (is_cut_off or _PREDICATE.match(words[1:]) is not None)

    def is_withdrawn(self, call: FoundCall) -> Incremental[bool]:
        """Return whether the line after a call, which begins the candidate, says that it is not made, or asks whether it may be made."""
        cursor = self._cursor
        if self.is_no_subject(call):
            return False
        while True:
            following = cursor.ahead(_MAX_WITHDRAWAL_CHARS)
            line, end, _ = following.lstrip(_BEFORE_LINE).partition("\n")
            is_open = not end and len(following) < _MAX_WITHDRAWAL_CHARS and begins_withdrawal(line)
            if not is_open or not (yield from cursor.wait_more()):
                break
        return withdraws_call(line) or (is_open and line != "" and cursor.truncated)

    def quoted_marker_chars(self, literal: str) -> Incremental[int]:
        """Return the length of a marker without meaning that directly follows an opening quote; else 0.

        It may begin a quoted call.
        """
        if not self._output.is_quoted():
            return 0
        for marker in self._markers.starting_with(literal):
            if marker in self._markers.ignored and (yield from self._cursor.at(marker)):
                return len(marker)
        return 0

    def _measure_mention(self, dialect: Dialect, opener: str) -> Incremental[int]:
        cursor = self._cursor
        cursor.start_candidate()
        start, chars = cursor.offset, 0
        try:
            yield from cursor.take(opener)
            for found in dialect.read(cursor, self._tools, opener):
                if found is None:
                    yield
                else:
                    chars = cursor.offset - start
            while (yield from cursor.take(*self._markers.ignored)):
                pass
            chars = cursor.offset - start
        except NotACall:
            self._wasted += cursor.offset - start
        cursor.rewind()
        while chars and len(cursor.ahead(chars + 2)) < chars + 2 and (yield from cursor.wait_more()):
            pass
        following = cursor.ahead(chars + 2)[chars:]
        if cursor.truncated and cursor.ran_out:  # the text that would decide was cut off
            return len(cursor.text) - cursor.pos
        if chars and self._output.is_mention_before(following):
            return chars
        self._wasted += chars
        return 0
