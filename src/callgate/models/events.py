"""What comes out of a model's answer while it arrives, the same for every provider.

A call is *opened*, grows by deltas and is *sealed* once its arguments are final; everything else about the message is text, reasoning and
bookkeeping. `Finished` comes last and exactly once, with the whole message as it will stand in the history. Knows no provider.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from callgate.messages import AssistantMessage, ToolCall

__all__ = [
    "ArgumentsDelta",
    "CallOpened",
    "CallReopened",
    "CallSealed",
    "Fault",
    "FinishReason",
    "Finished",
    "ModelEvent",
    "ReasoningDelta",
    "TextDelta",
    "Usage",
]

FinishReason = Literal["stop", "tool_calls", "length", "content_filter", "pause", "other", "error", "cut"]
"""Why a message ended. `pause`: the provider wants the message sent back to go on. `other`: for a reason that is not known here, so that
nothing is proved complete by it. `cut`: it ended without saying so."""

COMPLETE_REASONS: frozenset[str] = frozenset({"stop", "tool_calls", "pause"})
"""Reasons after which what was not sealed before is complete."""


class TextDelta(Struct, frozen=True, gc=False):
    """A piece of the visible answer."""

    text: str


class ReasoningDelta(Struct, frozen=True, gc=False):
    """A piece of what the model thinks aloud; not part of the answer."""

    text: str


class CallOpened(Struct, frozen=True, gc=False):
    """The model has begun to write a call."""

    position: int
    """Of the call among the message's calls, from 0."""
    id: str
    name: str


class ArgumentsDelta(Struct, frozen=True, gc=False):
    """A piece of a call's arguments; only `CallSealed` says that they are complete."""

    position: int
    text: str


class CallSealed(Struct, frozen=True):
    """The call's arguments are final, or the message has ended and they never became so (`closed == "cut"`)."""

    position: int
    call: ToolCall
    closed: Literal["sealed", "finished", "cut"] = "sealed"


class CallReopened(Struct, frozen=True, gc=False):
    """A sealed call's arguments went on after all: whoever acted on it early takes that back. It is sealed again later."""

    position: int


class Usage(Struct, frozen=True, kw_only=True, gc=False):
    """Tokens of one request, as far as the provider tells; a later report of the same message replaces an earlier one."""

    input_tokens: int = 0
    """All input, cached input included."""
    output_tokens: int = 0
    """All output, reasoning included."""
    cached_tokens: int = 0
    """Of the input, those read from the provider's cache."""
    reasoning_tokens: int = 0


class Fault(Struct, frozen=True, kw_only=True, gc=False):
    """The provider reported an error in the middle of its answer, or sent what cannot be read."""

    code: str
    """The provider's own word, or ours: `bad_frame`, `too_large`."""
    message: str
    retryable: bool = False


class Finished(Struct, frozen=True, kw_only=True):
    """The message has ended. Always the last event, exactly once."""

    reason: FinishReason
    said: str = ""
    """The reason in the provider's own word."""
    message: AssistantMessage
    usage: Usage | None = None
    fault: Fault | None = None
    model: str = ""
    """The model that answered, by the provider's name."""


ModelEvent = TextDelta | ReasoningDelta | CallOpened | ArgumentsDelta | CallSealed | CallReopened | Usage | Fault | Finished
