"""What a model's text consists of: what is shown, what was thought, what was called.

Values only. They stand apart so that a host can take them apart without knowing how they were read.
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
    """All that was shown so far was a thought: the model closed a thought that its prompt had opened."""


class FoundCall(Struct, frozen=True, kw_only=True):
    """A call that the text makes."""

    name: str
    """As written, without quotes, white space and the prefix of its family. Empty if the model named none."""
    arguments: str
    """JSON text of an object: exactly what was read, where the dialect writes JSON. May be malformed, is never cut off."""
    id: str = ""
    dialect: str = ""
    closed: Literal["sealed", "finished"] = "sealed"
    """`sealed`: the call's own end was read. `finished`: only the end of the message shows that the call is complete."""
    reasoning: str = ""
    """Why, if the call says so itself."""
    lifted: bool = False
    """Whether the arguments stood beside an empty or missing parameter object, at the top level of the call."""
    source: str = ""
    """The exact text that it was read from."""


ParsedPart = TextPart | ReasoningPart | FoundCall


class ParsedText(Struct, frozen=True, kw_only=True):
    """A whole message, read."""

    calls: tuple[FoundCall, ...]
    content: str
    reasoning: str


def collect_parts(parts: Iterable[ParsedPart]) -> ParsedText:
    """The parts of one message together."""
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
