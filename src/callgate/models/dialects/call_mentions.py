"""Calls that are only spoken of: quoted, in code, shown as examples, or in the middle of a sentence about them.

Such a call is text as a whole, whatever stands on lines of its own within it. So it is read as a call would be, to find its end, and what
comes directly behind it says whether it is spoken of. Moves nothing.
"""

from __future__ import annotations

from callgate.models.dialects.dialect import Dialect
from callgate.models.dialects.known_tools import KnownTools
from callgate.models.dialects.markers import Markers
from callgate.models.dialects.text_cursor import Incremental, NotACall, TextCursor
from callgate.models.dialects.text_output import TextOutput

__all__ = ["WASTED_CHARS", "WASTED_PER_CHAR", "MentionFinder"]

WASTED_CHARS, WASTED_PER_CHAR = 65_536, 8
"""How many characters may be read in vain: some at first, and some more for each that has been read for good."""


class MentionFinder:
    """Finds them where `flow` stands, in what `cursor` has ahead."""

    def __init__(self, cursor: TextCursor, marks: Markers, flow: TextOutput, tools: KnownTools) -> None:
        self._cursor = cursor
        self._marks = marks
        self._flow = flow
        self._tools = tools
        self._vain = 0

    def size(self, literal: str) -> Incremental[int]:
        """How long the call is that this mark would open, if it is only spoken of; 0 if it is not."""
        if not self._flow.may_be_mention or self._vain > WASTED_CHARS + WASTED_PER_CHAR * self._cursor.offset:
            return 0
        for opener in self._marks.beginning_with(literal):
            if not (yield from self._cursor.at(opener)):
                continue
            for dialect in self._marks.dialects.get(opener, ()):
                size = 0 if dialect.unmarked else (yield from self._spoken_of(dialect, opener))
                if size:
                    return size
        return 0

    def _spoken_of(self, dialect: Dialect, opener: str) -> Incremental[int]:
        cursor = self._cursor
        cursor.start_candidate()
        start, size, behind = cursor.offset, 0, ""
        try:
            yield from cursor.take(opener)
            for found in dialect.read(cursor, self._tools, opener):
                if found is None:
                    yield
            size = cursor.offset - start
            while len(cursor.ahead(2)) < 2 and (yield from cursor.wait_more()):
                pass
            behind = cursor.ahead(2)
        except NotACall:
            self._vain += cursor.offset - start
        cursor.rewind()
        if cursor.truncated and cursor.ran_out:  # what would tell has not come
            return len(cursor.text) - cursor.pos
        if size and self._flow.is_mention_before(behind):
            return size
        self._vain += size
        return 0
