"""The events of a run: the model's own events, and the ones defined here."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from callgate.agent.run_result import RunResult
from callgate.calls import Outcome, ToolResult
from callgate.events import Progress
from callgate.models.model_events import ModelEvent
from callgate.stream.pass_result import PassStatus

__all__ = ["AgentEvent", "CallEnded", "CallStarted", "MessageBegan", "MessageEnded", "Notice", "RunEnded"]


class MessageBegan(Struct, frozen=True, gc=False):
    """A pass (one request to the model and its streamed answer) begins."""

    iteration: int


class MessageEnded(Struct, frozen=True):
    """A pass (one request to the model and its streamed answer) has ended."""

    iteration: int
    status: PassStatus
    reason: str = ""


class CallStarted(Struct, frozen=True, gc=False):
    """The engine is about to run a tool's code. The message may still be streaming."""

    uid: str
    name: str


class CallEnded(Struct, frozen=True):
    """A call has an outcome."""

    position: int
    """The index of the call in the message."""
    outcome: Outcome

    @property
    def result(self) -> ToolResult | None:
        return getattr(self.outcome, "result", None)


class Notice(Struct, frozen=True, gc=False):
    """A notice for the host, which may show it to its user unless it is `hidden`.

    `hidden` notices are only for a thought log.
    """

    kind: Literal["long_turn", "stuck", "trigger", "repaired", "retry", "budget", "compacted"]
    text: str
    hidden: bool = False


class RunEnded(Struct, frozen=True):
    """The run has ended. Always the last event."""

    result: RunResult


AgentEvent = ModelEvent | MessageBegan | MessageEnded | CallStarted | CallEnded | Progress | Notice | RunEnded
