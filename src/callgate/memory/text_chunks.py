"""Cut a text into meaningful pieces.

Cuts are made, in this order of preference, before headings, before unindented lines that follow a blank line, after
blank lines, or between any lines.

Pure. The pieces do not overlap and are in order. Together they contain every character of the text, except that pieces
of only white space are left out.
"""

from __future__ import annotations

import re

from msgspec import Struct

__all__ = ["MOST_CHARS", "Chunk", "chunks"]

MOST_CHARS = 2_000
"""The maximum number of characters of a piece."""
_FEWEST_CHARS = 500
"""The minimum number of characters of a piece that ends before the maximum is reached."""
_HEADING = re.compile(r"#{1,6}[ \t]")


class Chunk(Struct, frozen=True, kw_only=True):
    """One piece of a text."""

    line: int
    """The number of the line on which the piece starts, from 1."""
    text: str


def chunks(text: str) -> list[Chunk]:
    """Return the text in pieces of at most `MOST_CHARS` characters. Pieces of only white space are left out."""
    lines = _cut(text)
    found: list[Chunk] = []
    start = 0
    while start < len(lines):
        end = _end(lines, start)
        piece = "".join(line for _, line in lines[start:end])
        if piece.strip():
            found.append(Chunk(line=lines[start][0], text=piece))
        start = end
    return found


def _cut(text: str) -> list[tuple[int, str]]:
    """Return the lines with their numbers. A line longer than `MOST_CHARS` is split."""
    *whole, last = text.split("\n")
    lines = [f"{line}\n" for line in whole] + ([last] if last else [])
    return [(number, line[at : at + MOST_CHARS]) for number, line in enumerate(lines, 1) for at in range(0, len(line), MOST_CHARS)]


def _end(lines: list[tuple[int, str]], start: int) -> int:
    """Return the end of the piece that starts at `start`.

    Chooses the best place to cut within `MOST_CHARS` characters, or the last one of several equally good places.
    """
    size, best, best_weight = 0, start + 1, -1
    for at in range(start, len(lines)):
        if at > start and size >= _FEWEST_CHARS:
            weight = _weight(lines[at - 1][1], lines[at][1])
            if weight >= best_weight:
                best, best_weight = at, weight
        size += len(lines[at][1])
        if size > MOST_CHARS:
            return best if best_weight >= 0 else max(at, start + 1)
    return len(lines)


def _weight(before: str, line: str) -> int:
    """Return how well `line` is suited to start a piece, from 0 (poorly) to 3 (a heading)."""
    if _HEADING.match(line):
        return 3
    if before.strip():
        return 0
    return 2 if line[:1].strip() else 1
