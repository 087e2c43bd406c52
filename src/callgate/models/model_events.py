"""The events of a model's answer while it arrives, the same for every provider.

A call is opened, grows by deltas, and is sealed once its arguments are final; the other events carry text, reasoning and bookkeeping.
`Finished` comes last and exactly once, with the whole message for the history. Knows no provider.
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
"""Why a message ended. `pause`: the provider wants the message sent back to continue. `other`: an unknown reason, which proves nothing
complete. `cut`: the answer ended without a reason.
"""

COMPLETE_REASONS: frozenset[str] = frozenset({"stop", "tool_calls", "pause"})
"""Reasons which prove that all calls of the message are complete, including those that were not sealed before."""


class TextDelta(Struct, frozen=True, gc=False):
    """A piece of the visible answer."""

    text: str


class ReasoningDelta(Struct, frozen=True, gc=False):
    """A piece of the model's reasoning; not part of the answer."""

    text: str


class CallOpened(Struct, frozen=True, gc=False):
    """The model began to write a call."""

    position: int
    """Position of the call among the message's calls, from 0."""
    id: str
    name: str


class ArgumentsDelta(Struct, frozen=True, gc=False):
    """A piece of a call's arguments; only `CallSealed` says that they are complete."""

    position: int
    text: str


class CallSealed(Struct, frozen=True):
    """The call's arguments are final, or (`closed == "cut"`) the message ended before they were."""

    position: int
    call: ToolCall
    closed: Literal["sealed", "finished", "cut"] = "sealed"


class CallReopened(Struct, frozen=True, gc=False):
    """The arguments of a sealed call continued after all.

    A consumer that acted on `CallSealed` must undo that. The call is sealed again later.
    """

    position: int


class Usage(Struct, frozen=True, kw_only=True, gc=False):
    """Tokens of one request, as far as the provider reports them; a later report of the same message replaces an earlier one."""

    input_tokens: int = 0
    """All input, cached input included."""
    output_tokens: int = 0
    """All output, reasoning included."""
    cached_tokens: int = 0
    """The part of the input that was read from the provider's cache."""
    reasoning_tokens: int = 0


class Fault(Struct, frozen=True, kw_only=True, gc=False):
    """The provider reported an error in the middle of its answer, or sent data that cannot be read."""

    code: str
    """The provider's own code, or one of callgate's: `bad_frame`, `too_large`."""
    message: str
    retryable: bool = False


class Finished(Struct, frozen=True, kw_only=True):
    """The message has ended. Always the last event, exactly once."""

    reason: FinishReason
    said: str = ""
    """The reason as the provider wrote it."""
    explanation: str = ""
    """The provider's text about the reason; empty if it gave none."""
    message: AssistantMessage
    usage: Usage | None = None
    fault: Fault | None = None
    model: str = ""
    """The model that answered, by the provider's name for it."""


ModelEvent = TextDelta | ReasoningDelta | CallOpened | ArgumentsDelta | CallSealed | CallReopened | Usage | Fault | Finished
