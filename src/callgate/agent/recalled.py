"""What a record says of a run, as values: how far it came, what it spent, what is left open. Read by `recall`; says nothing of how."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from msgspec import Struct, field

from callgate._pipeline.unfinished import Unfinished
from callgate.agent.history import History
from callgate.agent.record import Answered, Began
from callgate.agent.results import CommittedMessage, Pending, Signal, Spent
from callgate.agent.settings import Prices
from callgate.calls import Part, ToolResult
from callgate.events import Event
from callgate.messages import AssistantMessage, ToolCall
from callgate.models.events import Usage

__all__ = ["OpenMessage", "Recalled", "Record", "Round"]


class Record(Protocol):
    """Where events are read from."""

    def read(self, *, run: str | None = None, after: int = 0, limit: int | None = None) -> Iterable[Event]: ...


class OpenMessage(Struct, kw_only=True):
    """A message whose calls have not all ended, or not been committed."""

    body: Answered
    calls: list[str]
    """The uid of each of its calls that the engine was handed, in order; a later call has none."""
    whole: CommittedMessage | None = None
    """The message in the conversation, where these are those of its calls that have waited for a human."""

    @property
    def message(self) -> AssistantMessage:
        assert self.body.message is not None
        return self.body.message

    @property
    def again(self) -> bool:
        """Whether its calls had waited for a human, so that the message was counted before."""
        return self.whole is not None


Round = tuple[Sequence[ToolCall], Sequence[ToolResult | None], Sequence[bytes]]
"""The calls of one message, their results before the loop added anything, and their final arguments as canonical JSON."""


class Recalled(Struct, kw_only=True):
    """One run, up to its last event."""

    run: str
    began: Began
    history: History
    iteration: int = 0
    """Of the next pass."""
    passes: list[Usage | None] = field(default_factory=list)
    rounds: int = 0
    """Messages with calls."""
    calls: int = 0
    signals: list[Signal] = field(default_factory=list)
    results: list[ToolResult] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    open: OpenMessage | None = None
    pending: Pending | None = None
    """What waits for a human."""
    ended: str = ""
    """How it ended; empty where it did not."""
    ends: dict[str, Event] = field(default_factory=dict)
    """The end of each call, by uid."""
    unfinished: dict[str, Unfinished] = field(default_factory=dict)
    finals: dict[str, bytes] = field(default_factory=dict)
    """The final arguments of each call that was approved, by uid."""
    told: list[Round] = field(default_factory=list)
    errors: int = 0
    """Failed calls since the last success or restart."""
    added: list[Part] = field(default_factory=list)
    """What calls have added to the context of the turn."""
    restarted: set[str] = field(default_factory=set)
    """Which kinds of context have been added."""
    last: int = 0
    """The position of its latest event of the loop."""
    wall_ns: int = 0

    def spent(self, prices: Prices | None) -> Spent:
        """What the run has used."""
        used = [usage for usage in self.passes if usage is not None]
        return Spent(
            iterations=self.rounds,
            calls=self.calls,
            passes=len(self.passes),
            input_tokens=sum(max(0, usage.input_tokens) for usage in used),
            output_tokens=sum(max(0, usage.output_tokens) for usage in used),
            cached_tokens=sum(max(0, usage.cached_tokens) for usage in used),
            cost=sum(max(0.0, prices.of(usage)) for usage in used) if prices is not None else 0.0,
            wall_s=self.wall_ns / 1e9,
        )
