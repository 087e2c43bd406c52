"""The two values that the steps of a turn share: its parts and its state.

`TurnParts` is made once, by `turn_factory`; `TurnState` is changed by the turn. Decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, overload

from msgspec import Struct, field

from callgate._runners.await_host_code import HostAwaits
from callgate.agent.budget import BudgetTracker
from callgate.agent.context_restarts import Enrichment
from callgate.agent.exit_tools import ExitTools
from callgate.agent.history import History
from callgate.agent.loop_settings import Settings
from callgate.agent.repetition import StuckGuard
from callgate.agent.run_events import AgentEvent
from callgate.agent.run_recorder import RunRecorder
from callgate.agent.run_result import PendingCalls, Signal
from callgate.calls import Scope, ToolResult
from callgate.engine import Engine
from callgate.messages import Message
from callgate.models.model_protocol import Model, StreamingContext
from callgate.models.wire.request import ModelRequest
from callgate.stream import StreamLimits

if TYPE_CHECKING:
    from callgate.agent.compaction import Compactor
    from callgate.agent.deliberate_mode import Exposure

__all__ = ["RequestMessages", "TurnParts", "TurnState"]


class TurnParts(Struct, frozen=True, kw_only=True, eq=False):
    """The parts of one turn of one conversation."""

    model: Model
    engine: Engine
    """Runs the calls."""
    request: ModelRequest
    """The template of every pass's request. The turn adds the messages."""
    history: History
    """The conversation. The turn appends to it."""
    scope: Scope
    context: StreamingContext
    """The context of the model's stream, which tools may see."""
    settings: Settings
    limits: StreamLimits
    """How long a stream may be silent."""
    host_awaits: HostAwaits
    """Runs code of the host that may not stop when it is cancelled, such as models."""
    budget: BudgetTracker
    recorder: RunRecorder
    exits: ExitTools
    write_system_text: Callable[[int | None], str] | None = None
    """Called with the number of iterations that are left. Returns the system text of the next pass."""
    on_event: Callable[[AgentEvent], None] | None = None
    """Called with every event."""
    stuck_guard: StuckGuard | None = None
    exposure: Exposure | None = None
    """The tools that deliberate mode offers in this turn; None if the mode is off."""
    enrichment: Enrichment
    """Receives the context that calls add instead of a result in the history."""
    compactor: Compactor | None = None
    """Makes a long history shorter; None: never."""


class TurnState(Struct, kw_only=True, eq=False):
    """The state of a turn."""

    iteration: int
    """The number of the next message."""
    signals: list[Signal] = field(default_factory=list)
    results: list[ToolResult] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    pending: PendingCalls | None = None
    cut: str = ""
    """Why the last answer is incomplete; empty if it is complete."""
    reported: bool = False
    """Whether the latest message had exit calls only, and the model has written nothing since."""


class RequestMessages(Sequence[Message]):
    """The messages of a request: a head, the history and a tail, as one sequence without copying."""

    __slots__ = ("_history", "head", "tail")

    def __init__(self, head: tuple[Message, ...], history: list[Message]) -> None:
        self.head = head
        self.tail: tuple[Message, ...] = ()
        self._history = history

    def __len__(self) -> int:
        return len(self.head) + len(self._history) + len(self.tail)

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> list[Message]: ...
    def __getitem__(self, index: int | slice) -> Message | list[Message]:
        if isinstance(index, slice):
            return list(self)[index]
        if index < 0:
            index += len(self)
        if index < len(self.head):
            return self.head[index]
        index -= len(self.head)
        return self._history[index] if index < len(self._history) else self.tail[index - len(self._history)]

    def __iter__(self) -> Iterator[Message]:
        return chain(self.head, self._history, self.tail)
