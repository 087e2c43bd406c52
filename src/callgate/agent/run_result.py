"""The result of a run, and its parts: used resources, signals, repetitions, and pending calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct

from callgate.calls import Part, Scope, Suspended, ToolResult
from callgate.loop_decision import RunStatus, TurnStatus
from callgate.messages import AssistantMessage, Message

__all__ = ["CommittedMessage", "Exposed", "Match", "PendingCalls", "Repeat", "RunResult", "Signal", "Spent"]


class Match(Struct, frozen=True, kw_only=True):
    """The reason why a tool is offered."""

    tool: str
    phrase: str
    """The trigger as it was declared."""
    source: Literal["tool", "operator", "follow_up", "always"]
    """The origin of the trigger: `tool`, `operator`, `follow_up` (a phrase that asks for a repeat) or `always` (the
    trigger `^`, which every message matches).
    """


class Exposed(Struct, frozen=True, kw_only=True):
    """The tools that one turn offers, and the phrases that the message matched."""

    allowed: frozenset[str]
    """The allowlist. If it is empty, the model is shown no tool and every call is blocked."""
    matches: Mapping[str, Match]
    """The matches by tool. A tool that is offered for another reason has none."""


class Signal(Struct, frozen=True, kw_only=True):
    """A call of an exit tool (a tool that only reports): recorded, never executed."""

    name: str
    arguments: Mapping[str, object] | None
    """None if the model did not write a JSON object; `raw` has the text."""
    raw: str = ""
    iteration: int = 0
    said: str = ""
    """The name as the model wrote it, if it was only almost correct; else empty."""

    @property
    def malformed(self) -> bool:
        return self.arguments is None


class Spent(Struct, frozen=True, kw_only=True):
    """The resources that one run has used."""

    iterations: int = 0
    calls: int = 0
    passes: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cost: float = 0.0
    wall_s: float = 0.0


class Repeat(Struct, frozen=True, kw_only=True):
    """A call with its final arguments, and how many times in a row it returned the same result."""

    tool: str
    arguments: bytes
    """Canonical JSON; the model's text if the arguments were invalid."""
    said: tuple[str, str | None, str] | None
    """The result as the model saw it: status, code and text."""
    times: int
    is_data: bool = False
    """Whether the result is data from the tool, and not a failure of the call."""


class CommittedMessage(Struct, frozen=True, kw_only=True):
    """A message with calls as it is in the conversation.

    If calls of it wait for a human, the turn continues when all of them are answered.
    """

    message: AssistantMessage
    """The message as the model wrote it."""
    results: tuple[ToolResult | None, ...]
    """The result of each call, in order; None for a call that waits or is not kept."""
    ids: tuple[str, ...]
    """The id of each call in the conversation; empty for a call that is not kept."""
    waiting: tuple[int, ...] = ()
    """The indexes of the calls that wait."""

    @property
    def answered(self) -> list[ToolResult]:
        """The results of calls that have one, in order."""
        return list(filter(None, self.results))


class PendingCalls(Struct, frozen=True, kw_only=True):
    """The calls of a message that wait for a human."""

    message: AssistantMessage
    """The message with the waiting calls only."""
    closed: tuple[str, ...]
    iteration: int
    approvals: tuple[Suspended, ...]
    """The approval that each call waits for, in order."""
    scope: Scope = Scope()
    """The scope of the turn: an approval is valid only for the same principal, actor and workspace."""
    lost: tuple[int, ...] = ()
    """The indexes of calls that cannot be handed in again, because a secret was removed from their recorded arguments."""
    exposed: Exposed | None = None
    """The tools that deliberate mode offers in the turn; None if the mode is off."""
    added: tuple[Part, ...] = ()
    """The context that calls of the turn have added."""
    restarted: frozenset[str] = frozenset()
    """The types of context that were added and may not be added again."""
    whole: CommittedMessage
    """The message that the calls are part of, as it was committed."""
    texts: tuple[str, ...] = ()
    """The visible text of each message of the run so far, if it is not on record."""
    repeats: tuple[Repeat, ...] = ()
    """The calls that the run has repeated, and how often."""
    errors: int = 0
    """Failed calls since the last success."""
    reflects: bool = False
    """Whether the run is a reflection, which is not kept in its conversation."""


class RunResult(Struct, frozen=True, kw_only=True):
    """The result of one run of an agent."""

    status: RunStatus
    turn_status: TurnStatus
    """The status of the turn, which is more detailed than `status`."""
    reason: str = ""
    """Why the status is not `completed`, or why it is `completed` although the model did not finish."""
    text: str = ""
    """The visible text of the last answer; if the run did not complete, all visible text so far."""
    output: Any = None
    """The answer as a value of the requested type."""
    signals: tuple[Signal, ...] = ()
    results: tuple[ToolResult, ...] = ()
    """The result of every call, in order."""
    messages: tuple[Message, ...] = ()
    """The conversation after the run; pass it to the next run."""
    spent: Spent = Spent()
    run: str = ""
    conversation: str = ""
    pending: PendingCalls | None = None
    """The calls that wait for a human, if the status is `waiting`."""
    recorded: int = 0
    """The position of the run's last event in the engine's journal. 0: the end of the run is not on record, and `reason` says why."""

    @property
    def completed(self) -> bool:
        return self.status == "completed"
