"""What a tool writes while it runs, bounded: how much is shown live, and how much of it is kept.

Here because threads and worker processes can write faster than anybody reads. Pure: the callers bring the time, the locks and the pipes.
"""

from __future__ import annotations

__all__ = ["TAIL_CHARS", "LiveText", "Tail"]

TAIL_CHARS = 65_536
LIVE_CHARS_PER_S = 1_048_576


class Tail:
    """The end of a text that is too long to keep."""

    def __init__(self, limit: int = TAIL_CHARS) -> None:
        self._limit = limit
        self._pieces: list[str] = []
        self._size = 0
        self.dropped = 0

    def add(self, text: str) -> None:
        self._pieces.append(text)
        self._size += len(text)
        if self._size > 2 * self._limit or len(self._pieces) > 4096:
            self._trim()

    def _trim(self) -> None:
        text = "".join(self._pieces)
        kept = text[-self._limit :]
        self.dropped += len(text) - len(kept)
        self._pieces, self._size = [kept], len(kept)

    def text(self) -> str:
        """At most 64 KiB of UTF-8."""
        self._trim()
        return self._pieces[0].encode("utf-8", "backslashreplace")[-self._limit :].decode(errors="ignore")


class LiveText:
    """How much of a stream of pieces is passed on at once: so many characters a second, and of the rest the end.

    Not thread-safe.
    """

    def __init__(self, per_second: int = LIVE_CHARS_PER_S) -> None:
        self._per_second = per_second
        self._window = float("-inf")
        self._left = 0
        self._held: dict[str, Tail] = {}

    def offer(self, text: str, stream: str, now: float) -> list[tuple[str, str]]:
        """The pieces to pass on now, as `(text, stream)`."""
        ready: list[tuple[str, str]] = []
        if now - self._window >= 1.0:
            self._window, self._left = now, self._per_second
            ready = self.rest()
        if self._held or len(text) > self._left:
            self._held.setdefault(stream, Tail()).add(text)
        else:
            self._left -= len(text)
            ready.append((text, stream))
        return ready

    def rest(self) -> list[tuple[str, str]]:
        """What was held back, with a word about what was left out."""
        held, self._held = self._held, {}
        pieces: list[tuple[str, str]] = []
        for stream, tail in held.items():
            text = tail.text()
            if tail.dropped:
                pieces.append((f"\n[... {tail.dropped} characters left out ...]\n", stream))
            pieces.append((text, stream))
        return pieces
