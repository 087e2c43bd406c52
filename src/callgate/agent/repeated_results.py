"""Find calls in a model's text that repeat a tool's result.

A mail or a web page may contain a call in the model's own dialect. A model that shows such a text has not made its call. Compares texts,
without white space that separates no words, escapes of JSON, and what may surround a JSON object. Pure: knows no dialect, and runs nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property

from callgate.content_parts import part_text
from callgate.messages import Message, ToolMessage
from callgate.models.dialects import FoundCall

__all__ = ["ToolResultTexts"]

_ESCAPE = re.compile(r"\\+(?:u([0-9a-fA-F]{4})|([nrt]))?")
_SPACE = re.compile(r"(?<!\w) | (?!\w)")
"""Matches a space that does not separate two words."""
_AROUND_OBJECT = re.compile(r"^(?:```\w*)?[\[,;]+(?=\{)|^```\w*(?=\{)|(?<=\})[\],;]+$")
_BETWEEN_RESULTS = "\0"


class ToolResultTexts:
    """The texts of all tool results in a conversation. They are normalised when a call may repeat one, so most passes cost one search."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self._messages = messages
        self._is_last_repeated = False

    def contain(self, found: FoundCall) -> bool:
        """Return whether a result contains the text of the call.

        The calls are given in their order. Of those that were written in one block, only the first has the text; the answer for the
        others is the same.
        """
        if found.source:
            self._is_last_repeated = found.name in self._text and _has_whole(self._normalised, _normalise_call(found.source))
        return self._is_last_repeated

    @cached_property
    def _text(self) -> str:
        results = [message for message in self._messages if isinstance(message, ToolMessage)]
        return _BETWEEN_RESULTS.join(part_text(part) for result in results for part in result.content)

    @cached_property
    def _normalised(self) -> str:
        return _normalise(self._text)


def _has_whole(text: str, call: str) -> bool:
    """Return whether a text contains a call that is not the end of a longer word, as `look()` is in `overlook()`."""
    return re.search(rf"(?<!\w){re.escape(call)}", text) is not None


def _normalise_call(source: str) -> str:
    return _AROUND_OBJECT.sub("", _normalise(source))


def _normalise(text: str) -> str:
    unescaped = _ESCAPE.sub(_unescape, text) if "\\" in text else text
    return _SPACE.sub("", " ".join(unescaped.split()))


def _unescape(escape: re.Match[str]) -> str:
    if escape[1]:
        return chr(int(escape[1], 16))
    return " " if escape[2] else ""
