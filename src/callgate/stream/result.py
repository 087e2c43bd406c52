"""What one pass of a model came to."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from callgate.messages import AssistantMessage, ToolCall
from callgate.models.events import FinishReason, Usage

__all__ = ["Closed", "PassStatus", "StreamResult"]

PassStatus = Literal[
    "completed", "error", "timeout", "empty_response", "stopped_by_user", "follow_up_interrupt", "function_call", "budget_exhausted"
]
"""The ways a pass ends; it drives the loop. The last is the loop's own: its time was up."""

Closed = Literal["sealed", "finished", "cut"]
"""What proved a call's arguments complete: their own end, the message's good end, or nothing."""


class StreamResult(Struct, frozen=True, kw_only=True):
    """One pass."""

    status: PassStatus
    text: str = ""
    """The visible text, as far as it came; empty where a follow-up interrupted it, since nobody asked for it any more."""
    message: AssistantMessage | None = None
    """The whole message, where it ended as one."""
    calls: tuple[ToolCall, ...] = ()
    """The message's calls, in its order."""
    closed: tuple[Closed, ...] = ()
    """What proved the arguments of each of the message's calls complete, in their order."""
    finish: FinishReason | None = None
    usage: Usage | None = None
    reason: str = ""
    """Why it is not `completed`; for a silent stream it begins with `SDK_CALL_TIMEOUT:`."""
    retryable: bool = False
    """Whether the provider said that the same request may succeed later."""

    @property
    def data(self) -> ToolCall | None:
        """The payload of a `function_call`: the first of the message's calls."""
        return self.calls[0] if self.calls else None
