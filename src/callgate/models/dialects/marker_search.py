"""Find the next marker in text that still arrives, and the part at the text's end that may become one.

Which markers count depends on whether a call or reasoning may start at their position, which `TextOutput` knows. Each
character is searched once. The position of the cursor does not change.
"""

from __future__ import annotations

import re

from callgate.models.dialects.markers import Markers
from callgate.models.dialects.text_cursor import TextCursor
from callgate.models.dialects.text_output import TextOutput

__all__ = ["MarkerSearch"]


class MarkerSearch:
    """Searches the text ahead of `cursor` for `markers`."""

    def __init__(self, cursor: TextCursor, markers: Markers, output: TextOutput) -> None:
        self._cursor = cursor
        self._markers = markers
        self._output = output
        self._next: dict[str, tuple[int, re.Match[str] | None]] = {}

    def find(self) -> tuple[int, str] | None:
        """Return the position of the next marker, and the marker."""
        markers, pos = self._markers, self._cursor.pos
        positions: list[tuple[int, int, str]] = []
        anywhere = self._search("anywhere", markers.anywhere)
        if anywhere is not None:
            positions.append((anywhere.start(), 0, anywhere.group()))
        at_line_start = self._search("at_line", markers.at_line_start)
        if at_line_start is not None:
            positions.append((at_line_start.start(1), 1, at_line_start[1]))
        at_cursor = markers.at_cursor.match(self._cursor.text, pos) if self._output.is_start() else None
        if at_cursor is not None and self._output.is_start(self._cursor.text[pos : at_cursor.start(1)]):
            positions.append((at_cursor.start(1), 1, at_cursor[1]))
        if not positions:
            return None
        start, _, literal = min(positions)
        return start, literal

    def _search(self, name: str, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Return the next match from the cursor on; each position is searched once."""
        cursor = self._cursor
        version, found = self._next.get(name, (-1, None))
        if version != cursor.version or (found is not None and found.start() < cursor.pos):
            found = pattern.search(cursor.text, cursor.pos)
            cursor.work += (found.end() if found else len(cursor.text)) - cursor.pos
            self._next[name] = cursor.version, found
        return found

    def unfinished_from(self) -> int:
        """Return the position from which the end of the text may still become a marker."""
        cursor, markers = self._cursor, self._markers
        size = len(cursor.text)
        for start in range(max(cursor.pos, size - markers.max_chars), size):
            end = cursor.text[start:]
            if end in markers.prefixes or (end in markers.line_start_prefixes and self._starts_at(start)):
                return start
        return size

    def _starts_at(self, position: int) -> bool:
        _, line, before = self._cursor.text[self._cursor.pos : position].rpartition("\n")
        return (bool(line) and not before.strip()) or self._output.is_start(self._cursor.text[self._cursor.pos : position])
