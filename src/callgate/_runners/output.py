"""What a tool writes while it runs, bounded: how much is shown live, and how much of it is kept.

Here because threads and worker processes can write faster than anybody reads. Pure: the callers bring the time, the locks and the pipes.
"""

from __future__ import annotations

import re

from callgate._redact import SECRET_CHARS, Redactor, redacted_text

__all__ = ["PARTIAL_CHARS", "TAIL_CHARS", "LiveText", "OutputTail", "left_out_lines", "shown_tail"]

TAIL_CHARS = 65_536
PARTIAL_CHARS = TAIL_CHARS + SECRET_CHARS
"""Kept of the output of a call, so that a piece of a secret at its beginning can be left out."""
LIVE_CHARS_PER_S = 1_048_576
_LEFT_OUT = re.compile(r"\n\[\.\.\. \d+ characters left out, (\d+) line ends among them \.\.\.\]\n")
_GAP = re.compile(r"\n\[\.\.\. \d+ (?:bytes|characters) left out\b[^\]\n]{0,80}\]\n")


def left_out_lines(piece: str) -> int | None:
    """How many line ends were left out where this piece of shown output stands; None if the piece is output."""
    told = _LEFT_OUT.fullmatch(piece)
    return int(told[1]) if told is not None else None


def shown_tail(text: str, redactor: Redactor | None) -> str:
    """The last 64 KiB of what a `OutputTail` of `PARTIAL_CHARS` has kept: redacted before it is cut, also where output was left out
    before."""
    size = len(text.encode("utf-8", "backslashreplace"))
    if size <= TAIL_CHARS and not _GAP.search(text):
        return text
    whole = redacted_text(text, redactor)
    if redactor is not None:
        whole = _without_beginnings(whole)
    kept = whole.encode("utf-8", "backslashreplace")
    was_cut = size > PARTIAL_CHARS - 4
    return (kept[SECRET_CHARS:] if was_cut else kept)[-TAIL_CHARS:].decode(errors="ignore")


def _without_beginnings(text: str) -> str:
    """`text` without what stands before each gap, which may be the beginning of a secret."""
    parts, pos = [], 0
    for gap in _GAP.finditer(text):
        parts.append(text[pos : max(pos, gap.start() - SECRET_CHARS)] + gap.group())
        pos = gap.end()
    return "".join((*parts, text[pos:]))


class OutputTail:
    """The end of a text that is too long to keep."""

    def __init__(self, limit: int = TAIL_CHARS) -> None:
        self._limit = limit
        self._pieces: list[str] = []
        self._size = 0
        self.dropped = 0
        """Characters that are not kept."""
        self.dropped_lines = 0
        """Line ends among them."""

    def add(self, text: str) -> None:
        self._pieces.append(text)
        self._size += len(text)
        if self._size > 2 * self._limit or len(self._pieces) > 4096:
            self._trim()

    def _trim(self) -> None:
        text = "".join(self._pieces)
        self._keep(text, text[-self._limit :])

    def _keep(self, text: str, kept: str) -> None:
        self.dropped += len(text) - len(kept)
        self.dropped_lines += text.count("\n", 0, len(text) - len(kept))
        self._pieces, self._size = [kept], len(kept)

    def text(self) -> str:
        """At most `limit` bytes of UTF-8."""
        self._trim()
        kept = self._pieces[0].encode("utf-8", "backslashreplace")
        if len(kept) > self._limit:
            whole = kept.decode()
            self._keep(whole, kept[-self._limit :].decode(errors="ignore"))
            return self._pieces[0]
        return kept.decode()

    def cut(self, chars: int) -> str:
        """Leave out as many characters more at the beginning."""
        whole = self.text()
        self._keep(whole, whole[chars:])
        return self._pieces[0]


class LiveText:
    """How much of a stream of pieces is passed on at once: so many characters a second, and of the rest the end.

    Not thread-safe.
    """

    def __init__(self, per_second: int = LIVE_CHARS_PER_S) -> None:
        self._per_second = per_second
        self._window = float("-inf")
        self._left = 0
        self._held: dict[str, OutputTail] = {}

    def offer(self, text: str, stream: str, now: float) -> list[tuple[str, str]]:
        """The pieces to pass on now, as `(text, stream)`."""
        ready: list[tuple[str, str]] = []
        if now - self._window >= 1.0:
            self._window, self._left = now, self._per_second
            ready = self.rest()
        if self._held or len(text) > self._left:
            self._held.setdefault(stream, OutputTail(PARTIAL_CHARS)).add(text)
        else:
            self._left -= len(text)
            ready.append((text, stream))
        return ready

    def rest(self) -> list[tuple[str, str]]:
        """What was held back, with a word about what was left out. What follows that may be the end of a secret, and is left out, too."""
        held, self._held = self._held, {}
        pieces: list[tuple[str, str]] = []
        for stream, tail in held.items():
            text = tail.text()
            if tail.dropped:
                text = tail.cut(SECRET_CHARS)
                pieces.append((f"\n[... {tail.dropped} characters left out, {tail.dropped_lines} line ends among them ...]\n", stream))
            pieces.append((text, stream))
        return pieces
