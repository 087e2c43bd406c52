"""Where the next mark stands in text that is still arriving, and how much of its end may still become one.

Between the marks, which know nothing of a place, and the reader, which knows what they mean: which of them may count depends on whether
something new starts there. Text is searched once. Moves nothing.
"""

from __future__ import annotations

import re

from callgate.models.dialects.markers import Markers
from callgate.models.dialects.text_cursor import TextCursor
from callgate.models.dialects.text_output import TextOutput

__all__ = ["MarkerSearch"]


class MarkerSearch:
    """Searches what `cursor` has ahead for `marks`, from where `flow` stands."""

    def __init__(self, cursor: TextCursor, marks: Markers, flow: TextOutput) -> None:
        self._cursor = cursor
        self._marks = marks
        self._flow = flow
        self._next: dict[str, tuple[int, re.Match[str] | None]] = {}

    def found(self) -> tuple[int, str] | None:
        """Where the next literal starts, and the literal."""
        marks, pos = self._marks, self._cursor.pos
        places: list[tuple[int, int, str]] = []
        anywhere = self._searched("anywhere", marks.anywhere)
        if anywhere is not None:
            places.append((anywhere.start(), 0, anywhere.group()))
        at_line = self._searched("at_line", marks.at_line)
        if at_line is not None:
            places.append((at_line.start(1), 1, at_line[1]))
        here = marks.here.match(self._cursor.text, pos) if self._flow.is_start() else None
        if here is not None and self._flow.is_start(self._cursor.text[pos : here.start(1)]):
            places.append((here.start(1), 1, here[1]))
        if not places:
            return None
        start, _, literal = min(places)
        return start, literal

    def _searched(self, name: str, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """The next match from here on; searched for once."""
        cursor = self._cursor
        version, found = self._next.get(name, (-1, None))
        if version != cursor.version or (found is not None and found.start() < cursor.pos):
            found = pattern.search(cursor.text, cursor.pos)
            cursor.work += (found.end() if found else len(cursor.text)) - cursor.pos
            self._next[name] = cursor.version, found
        return found

    def unfinished(self) -> int:
        """Where the end of the text starts that may still become a literal."""
        cursor, marks = self._cursor, self._marks
        size = len(cursor.text)
        for start in range(max(cursor.pos, size - marks.longest), size):
            end = cursor.text[start:]
            if end in marks.unfinished or (end in marks.unfinished_at_line and self._starts_at(start)):
                return start
        return size

    def _starts_at(self, place: int) -> bool:
        _, line, before = self._cursor.text[self._cursor.pos : place].rpartition("\n")
        return (bool(line) and not before.strip()) or self._flow.is_start(self._cursor.text[self._cursor.pos : place])
