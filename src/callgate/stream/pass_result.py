"""The result of one pass of a model (one request and its streamed answer)."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from callgate.messages import AssistantMessage, ToolCall
from callgate.models.model_events import FinishReason, Usage

__all__ = ["Closed", "PassStatus", "StreamResult"]

PassStatus = Literal[
    "completed", "error", "timeout", "empty_response", "stopped_by_user", "follow_up_interrupt", "function_call", "budget_exhausted"
]
"""How a pass ended, which decides how the loop continues. `budget_exhausted` is set if the loop's own time is used up."""

Closed = Literal["sealed", "finished", "cut"]
"""How a call's arguments were proved complete: by their own end, by a complete message, or not at all."""


class StreamResult(Struct, frozen=True, kw_only=True):
    """The result of one pass."""

    status: PassStatus
    text: str = ""
    """The visible text received; empty if a follow-up interrupted the pass."""
    message: AssistantMessage | None = None
    """The whole message, if it is complete."""
    calls: tuple[ToolCall, ...] = ()
    """The message's calls, in order."""
    closed: tuple[Closed, ...] = ()
    """For each call, how its arguments were proved complete."""
    finish: FinishReason | None = None
    usage: Usage | None = None
    reason: str = ""
    """Why the status is not `completed`; begins with `SDK_CALL_TIMEOUT:` after too long a silence."""
    retryable: bool = False
    """Whether the same request may succeed later."""

    @property
    def data(self) -> ToolCall | None:
        """Return the first of the message's calls; None if there are none.

        This is the payload of a result with the status `function_call`.
        """
        return self.calls[0] if self.calls else None
