"""Calls that are only spoken of: quoted, in code, shown as examples, or in the middle of a sentence about them.

Such a call is text as a whole, whatever stands on lines of its own within it. So it is read as a call would be, to find its end, and what
comes directly behind it says whether it is spoken of. Moves nothing.
"""

from __future__ import annotations

from callgate.models.dialects.cursor import Cursor, NoCall, Wait
from callgate.models.dialects.flow import Flow
from callgate.models.dialects.marks import Marks
from callgate.models.dialects.names import ToolNames
from callgate.models.dialects.shape import Dialect

__all__ = ["PATIENCE", "PER_CHARACTER", "Mentions"]

PATIENCE, PER_CHARACTER = 65_536, 8
"""How many characters may be read in vain: some at first, and some more for each that has been read for good."""


class Mentions:
    """Finds them where `flow` stands, in what `cursor` has ahead."""

    def __init__(self, cursor: Cursor, marks: Marks, flow: Flow, tools: ToolNames) -> None:
        self._cursor = cursor
        self._marks = marks
        self._flow = flow
        self._tools = tools
        self._vain = 0

    def size(self, literal: str) -> Wait[int]:
        """How long the call is that this mark would open, if it is only spoken of; 0 if it is not."""
        if not self._flow.mentions or self._vain > PATIENCE + PER_CHARACTER * self._cursor.offset:
            return 0
        for opener in self._marks.beginning_with(literal):
            if not (yield from self._cursor.at(opener)):
                continue
            for dialect in self._marks.dialects.get(opener, ()):
                size = 0 if dialect.unmarked else (yield from self._spoken_of(dialect, opener))
                if size:
                    return size
        return 0

    def _spoken_of(self, dialect: Dialect, opener: str) -> Wait[int]:
        cursor = self._cursor
        cursor.begin()
        start, size, behind = cursor.offset, 0, ""
        try:
            yield from cursor.take(opener)
            for found in dialect.read(cursor, self._tools, opener):
                if found is None:
                    yield
            size = cursor.offset - start
            while len(cursor.ahead(2)) < 2 and (yield from cursor.more()):
                pass
            behind = cursor.ahead(2)
        except NoCall:
            self._vain += cursor.offset - start
        cursor.rewind()
        if cursor.cut and cursor.dry:  # what would tell has not come
            return len(cursor.text) - cursor.pos
        if size and self._flow.mentions_before(behind):
            return size
        self._vain += size
        return 0
