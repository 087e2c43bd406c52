"""The events of a run: the model's own, and these."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from callgate.agent.results import RunResult
from callgate.calls import Outcome, ToolResult
from callgate.events import Progress
from callgate.models.events import ModelEvent
from callgate.stream.pass_result import PassStatus

__all__ = ["AgentEvent", "CallEnded", "CallStarted", "MessageBegan", "MessageEnded", "Notice", "RunEnded"]


class MessageBegan(Struct, frozen=True, gc=False):
    """A pass of the model begins."""

    iteration: int


class MessageEnded(Struct, frozen=True):
    """A pass of the model is over."""

    iteration: int
    status: PassStatus
    reason: str = ""


class CallStarted(Struct, frozen=True, gc=False):
    """A tool's code is about to run; perhaps while the message still streams."""

    uid: str
    name: str


class CallEnded(Struct, frozen=True):
    """A call has its outcome."""

    position: int
    """Among the message's calls."""
    outcome: Outcome

    @property
    def result(self) -> ToolResult | None:
        return getattr(self.outcome, "result", None)


class Notice(Struct, frozen=True, gc=False):
    """Something that the host may show to its user, or must not.

    `hidden` notices are for a thought log only.
    """

    kind: Literal["long_turn", "stuck", "trigger", "repaired", "retry", "budget", "compacted"]
    text: str
    hidden: bool = False


class RunEnded(Struct, frozen=True):
    """The run is over. Always last."""

    result: RunResult


AgentEvent = ModelEvent | MessageBegan | MessageEnded | CallStarted | CallEnded | Progress | Notice | RunEnded
