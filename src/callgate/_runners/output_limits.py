"""Limit a running tool's output: how much is shown live, and how much is kept.

Threads and worker processes can write faster than anything reads. Pure: callers provide the time, the locks and the pipes.
"""

from __future__ import annotations

import re

from callgate._secret_redaction import SECRET_CHARS, Redactor, redacted_text

__all__ = ["PARTIAL_CHARS", "TAIL_CHARS", "LiveText", "OutputTail", "left_out_lines", "shown_tail"]

TAIL_CHARS = 65_536
PARTIAL_CHARS = TAIL_CHARS + SECRET_CHARS
"""Characters of a call's output that are kept: more than is shown, so that a partial secret at the beginning can be removed."""
LIVE_CHARS_PER_S = 1_048_576
_LEFT_OUT = re.compile(r"\n\[\.\.\. \d+ characters left out, (\d+) line ends among them \.\.\.\]\n")
_GAP = re.compile(r"\n\[\.\.\. \d+ (?:bytes|characters) left out\b[^\]\n]{0,80}\]\n")


def left_out_lines(piece: str) -> int | None:
    """Return how many line ends were left out at this piece; None if the piece is output."""
    told = _LEFT_OUT.fullmatch(piece)
    return int(told[1]) if told is not None else None


def shown_tail(text: str, redactor: Redactor | None) -> str:
    """Return the end of the text that an `OutputTail` of `PARTIAL_CHARS` has kept, at most 64 KiB.

    The text is redacted before it is cut. Text before a gap that may be the beginning of a secret is removed.
    """
    size = len(text.encode("utf-8", "backslashreplace"))
    if size <= TAIL_CHARS and not _GAP.search(text):
        return text
    whole = redacted_text(text, redactor)
    if redactor is not None:
        whole = _cut_before_gaps(whole)
    kept = whole.encode("utf-8", "backslashreplace")
    was_cut = size > PARTIAL_CHARS - 4
    return (kept[SECRET_CHARS:] if was_cut else kept)[-TAIL_CHARS:].decode(errors="ignore")


def _cut_before_gaps(text: str) -> str:
    """Return `text` without the end of each part that precedes a gap, which may be the beginning of a secret."""
    parts, pos = [], 0
    for gap in _GAP.finditer(text):
        parts.append(text[pos : max(pos, gap.start() - SECRET_CHARS)] + gap.group())
        pos = gap.end()
    return "".join((*parts, text[pos:]))


class OutputTail:
    """Keeps the end of a text."""

    def __init__(self, limit: int = TAIL_CHARS) -> None:
        self._limit = limit
        self._pieces: list[str] = []
        self._size = 0
        self.dropped = 0
        """The number of characters that were dropped."""
        self.dropped_lines = 0
        """The number of line ends among the dropped characters."""

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
        """The kept text, at most `limit` bytes in UTF-8."""
        self._trim()
        kept = self._pieces[0].encode("utf-8", "backslashreplace")
        if len(kept) > self._limit:
            whole = kept.decode()
            self._keep(whole, kept[-self._limit :].decode(errors="ignore"))
            return self._pieces[0]
        return kept.decode()

    def cut(self, chars: int) -> str:
        """Drop `chars` more characters at the beginning."""
        whole = self.text()
        self._keep(whole, whole[chars:])
        return self._pieces[0]


class LiveText:
    """Limits the rate of live output in characters per second; only the end of the excess is kept.

    Not thread-safe.
    """

    def __init__(self, per_second: int = LIVE_CHARS_PER_S) -> None:
        self._per_second = per_second
        self._window = float("-inf")
        self._left = 0
        self._held: dict[str, OutputTail] = {}

    def offer(self, text: str, stream: str, now: float) -> list[tuple[str, str]]:
        """Return the pieces to show now, as `(text, stream)`."""
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
        """Return the held-back output with a note of the gap. Text after the gap that may be the end of a secret is dropped, too."""
        held, self._held = self._held, {}
        pieces: list[tuple[str, str]] = []
        for stream, tail in held.items():
            text = tail.text()
            if tail.dropped:
                text = tail.cut(SECRET_CHARS)
                pieces.append((f"\n[... {tail.dropped} characters left out, {tail.dropped_lines} line ends among them ...]\n", stream))
            pieces.append((text, stream))
        return pieces
