"""Pieces of text as they can be shown, printed and encoded: a character that was cut in two waits for its other half.

Providers and proxies that count in UTF-16 cut a character beyond 16 bits in two, each half in a piece of its own. Knows no message.
"""

from __future__ import annotations

from typing import Literal

__all__ = ["SurrogateBuffer", "join_surrogates", "join_text"]

Kind = Literal["text", "reasoning"] | int
"""Which text grows: the answer, the thought, or the arguments of the call at this position."""


class SurrogateBuffer:
    """The halves that wait, one for each text that grows."""

    def __init__(self) -> None:
        self._waiting: dict[Kind, str] = {}

    def shown(self, kind: Kind, text: str) -> str:
        """What can be told of a text now that `text` has come; may be empty."""
        text = join_surrogates(self._waiting.pop(kind, "") + text)
        if text and "\ud800" <= text[-1] <= "\udbff":
            self._waiting[kind] = text[-1]
            text = text[:-1]
        return text.encode("utf-8", "replace").decode()

    def left(self) -> list[Kind]:
        """Those of answer and thought that end with half a character; its other half can come no more."""
        return [kind for kind in ("text", "reasoning") if self._waiting.pop(kind, "")]


def join_surrogates(text: str) -> str:
    """The text with the halves of a character put together where they meet."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return text


def join_text(pieces: list[str]) -> str:
    """The pieces as one text."""
    return join_surrogates("".join(pieces))
