"""Join surrogate pairs that arrive in two pieces, so that text can be printed and encoded.

Providers and proxies that count in UTF-16 may split a character beyond 16 bits, with each half in a piece of its own. Knows no message.
"""

from __future__ import annotations

from typing import Literal

__all__ = ["SurrogateBuffer", "join_surrogates", "join_text"]

TextKind = Literal["text", "reasoning"] | int
"""The text that a piece belongs to: the answer, the reasoning, or the arguments of the call at this position."""


class SurrogateBuffer:
    """Holds back a leading surrogate at the end of a piece, one for each text."""

    def __init__(self) -> None:
        self._pending: dict[TextKind, str] = {}

    def feed(self, kind: TextKind, text: str) -> str:
        """Return the text that can be emitted now that `text` has arrived; may be empty."""
        text = join_surrogates(self._pending.pop(kind, "") + text)
        if text and "\ud800" <= text[-1] <= "\udbff":
            self._pending[kind] = text[-1]
            text = text[:-1]
        return text.encode("utf-8", "replace").decode()

    def flush(self) -> list[TextKind]:
        """Return which of the answer and the reasoning end with a lone surrogate."""
        return [kind for kind in ("text", "reasoning") if self._pending.pop(kind, "")]


def join_surrogates(text: str) -> str:
    """Return the text with adjacent surrogate halves joined."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return text


def join_text(pieces: list[str]) -> str:
    """Return the pieces as one text, with surrogate halves joined."""
    return join_surrogates("".join(pieces))
