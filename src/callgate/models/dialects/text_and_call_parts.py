"""The parts of a model's text: visible text, reasoning, and calls.

Values only, separate from the reader, so that a host can use them without it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from msgspec import Struct

__all__ = ["FoundCall", "ParsedPart", "ParsedText", "ReasoningPart", "TextPart", "collect_parts"]


class TextPart(Struct, frozen=True, kw_only=True):
    """Visible text, without calls and markers."""

    text: str


class ReasoningPart(Struct, frozen=True, kw_only=True):
    """Reasoning: not for the user."""

    text: str
    reclassifies_text: bool = False
    """Whether all text shown so far was reasoning: the model closed reasoning that its prompt had opened."""


class FoundCall(Struct, frozen=True, kw_only=True):
    """A call in the text."""

    name: str
    """The name as written, without quotes, white space and the family's namespace. Empty if the model wrote no name."""
    arguments: str
    """JSON text of an object, exactly as read if the dialect writes JSON. May be malformed; never truncated."""
    id: str = ""
    dialect: str = ""
    closed: Literal["sealed", "finished"] = "sealed"
    """How the call was proved complete. `sealed`: its own end was read. `finished`: the message ended."""
    reasoning: str = ""
    """The reason for the call, if the call itself contains one."""
    lifted: bool = False
    """Whether the arguments were written at the top level of the call, next to an empty or missing parameter object."""
    source: str = ""
    """The exact text of the call."""


ParsedPart = TextPart | ReasoningPart | FoundCall


class ParsedText(Struct, frozen=True, kw_only=True):
    """The parts of a whole message, grouped by kind."""

    calls: tuple[FoundCall, ...]
    content: str
    reasoning: str


def collect_parts(parts: Iterable[ParsedPart]) -> ParsedText:
    """Collect the parts of one message."""
    calls: list[FoundCall] = []
    content: list[str] = []
    reasoning: list[str] = []
    for part in parts:
        if isinstance(part, FoundCall):
            calls.append(part)
        elif isinstance(part, TextPart):
            content.append(part.text)
        else:
            if part.reclassifies_text:
                reasoning, content = reasoning + content, []
            reasoning.append(part.text)
    return ParsedText(calls=tuple(calls), content="".join(content), reasoning="".join(reasoning))
