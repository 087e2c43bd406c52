"""Shorten the output of one running call: show its first lines as they arrive, a line count, and its last lines.

A tool can write faster than a terminal draws. The amount shown is limited, so that the terminal does not lag behind the
call. Pure; knows nothing of consoles.
"""

from __future__ import annotations

from collections import deque

from callgate._runners.output_limits import left_out_lines

__all__ = ["HEAD_LINES", "TAIL_LINES", "FoldedOutput"]

HEAD_LINES = 10
TAIL_LINES = 10
_LINE_CHARS = 400


class FoldedOutput:
    """Splits a call's output into lines to show now and lines to show at the end of the call."""

    def __init__(self) -> None:
        self.lines = 0
        """Complete lines so far."""
        self._tail: deque[str] = deque(maxlen=TAIL_LINES)
        self._open = ""
        """The beginning of a line that has no end yet."""

    @property
    def latest(self) -> str:
        """The last line that is not blank."""
        return next((line for line in (self._open, *reversed(self._tail)) if line.strip()), "")

    def take(self, text: str) -> list[str]:
        """Add output. Return the lines to show now."""
        skipped = left_out_lines(text)
        if skipped is not None:
            self.lines, self._open = self.lines + skipped, ""
            return []
        first, *others = text.split("\n")
        self._open = _shorten(self._open + first[: _LINE_CHARS + 1])
        if not others:
            return []
        ended = [self._open, *others[:-1]]
        self._open = _shorten(others[-1])
        return self._take_whole_lines(ended)

    def _take_whole_lines(self, lines: list[str]) -> list[str]:
        shown = [_shorten(line) for line in lines[: max(0, HEAD_LINES - self.lines)]]
        self.lines += len(lines)
        self._tail.extend(_shorten(line) for line in lines[len(shown) :][-TAIL_LINES:])
        return shown

    def end(self) -> tuple[int, list[str]]:
        """End the output. Return the number of omitted lines, and the last lines to show."""
        shown = self._take_whole_lines([self._open]) if self._open else []
        self._open = ""
        return self.lines - min(self.lines, HEAD_LINES) - len(self._tail), [*shown, *self._tail]


def _shorten(line: str) -> str:
    return line if len(line) <= _LINE_CHARS else f"{line[: _LINE_CHARS - 1]}…"
