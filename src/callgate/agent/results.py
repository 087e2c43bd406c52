"""The result of a run, and the values in it: what it used, signalled, repeated and waits for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct

from callgate.calls import Part, Scope, Suspended, ToolResult
from callgate.decide import RunStatus, TurnStatus
from callgate.messages import AssistantMessage, Message

__all__ = ["CommittedMessage", "Exposed", "Match", "PendingCalls", "Repeat", "RunResult", "Signal", "Spent"]


class Match(Struct, frozen=True, kw_only=True):
    """Why a tool is offered."""

    tool: str
    phrase: str
    """The trigger, as it was declared."""
    source: Literal["tool", "operator", "follow_up", "always"]
    """Whose trigger matched: the tool's own, the operator's, the words that ask for a repeat; or it is `^`, which every message matches."""


class Exposed(Struct, frozen=True, kw_only=True):
    """The allowlist of one turn, and the reasons that are phrases."""

    allowed: frozenset[str]
    """Empty: the model is shown no tool, and every call is blocked."""
    matches: Mapping[str, Match]
    """By tool; a tool that is forced or retained has none."""


class Signal(Struct, frozen=True, kw_only=True):
    """A call of an exit tool: recorded, never executed."""

    name: str
    arguments: Mapping[str, object] | None
    """None where the model wrote no JSON object; `raw` has what it wrote."""
    raw: str = ""
    iteration: int = 0
    said: str = ""
    """The name as the model wrote it, where that was only almost right."""

    @property
    def malformed(self) -> bool:
        return self.arguments is None


class Spent(Struct, frozen=True, kw_only=True):
    """What one run has used."""

    iterations: int = 0
    calls: int = 0
    passes: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cost: float = 0.0
    wall_s: float = 0.0


class Repeat(Struct, frozen=True, kw_only=True):
    """A call with its final arguments, and how often in a row it gave the same result."""

    tool: str
    arguments: bytes
    """Canonical JSON; as the model wrote them where they were not valid."""
    said: tuple[str, str | None, str] | None
    """The result as the model saw it: status, code, text."""
    times: int
    is_data: bool = False
    """Whether the result is what the tool had to say, and no failure of the call."""


class CommittedMessage(Struct, frozen=True, kw_only=True):
    """A message with calls as the conversation has it. The turn goes on when none of its calls waits any more."""

    message: AssistantMessage
    """As the model wrote it."""
    results: tuple[ToolResult | None, ...]
    """One for each of its calls, in order; None for a call that waits or leaves no trace."""
    ids: tuple[str, ...]
    """The id of each call in the conversation; empty for a call that it does not have."""
    waiting: tuple[int, ...] = ()
    """The places of the calls that wait."""

    @property
    def answered(self) -> list[ToolResult]:
        """The results of calls that have one, in order."""
        return list(filter(None, self.results))


class PendingCalls(Struct, frozen=True, kw_only=True):
    """A message whose calls wait for a human."""

    message: AssistantMessage
    """The waiting calls only."""
    closed: tuple[str, ...]
    iteration: int
    approvals: tuple[Suspended, ...]
    """One for each of the calls, in order."""
    scope: Scope = Scope()
    """Of the turn: an approval is for the same principal, actor and workspace only."""
    lost: tuple[int, ...] = ()
    """Which of the calls, by place, cannot be handed in again, because a secret was taken out of what the record has of them."""
    exposed: Exposed | None = None
    """What deliberate mode offers in the turn; None where it is off."""
    added: tuple[Part, ...] = ()
    """What calls of the turn have added to what the model sees."""
    restarted: frozenset[str] = frozenset()
    """Which kinds of context have been added, so that none is added again."""
    whole: CommittedMessage
    """The message that the calls are part of."""
    texts: tuple[str, ...] = ()
    """The visible text of each of the run's messages so far, where it is not on record."""
    repeats: tuple[Repeat, ...] = ()
    """Which calls the run has repeated, and how often."""
    errors: int = 0
    """Failed calls since the last success."""


class RunResult(Struct, frozen=True, kw_only=True):
    """The result of one run of an agent."""

    status: RunStatus
    turn_status: TurnStatus
    """The same, finely."""
    reason: str = ""
    """Why it is not `completed`, or what completed it where the model did not."""
    text: str = ""
    """The visible text of the last answer; where the run did not complete, all visible text so far."""
    output: Any = None
    """The answer as the type that was asked for."""
    signals: tuple[Signal, ...] = ()
    results: tuple[ToolResult, ...] = ()
    """Every call's result, in order."""
    messages: tuple[Message, ...] = ()
    """The conversation after the run; hand it to the next one."""
    spent: Spent = Spent()
    run: str = ""
    conversation: str = ""
    pending: PendingCalls | None = None
    """What waits for a human, where the status is `waiting`."""
    recorded: int = 0
    """The position of the run's latest event in its engine's journal; 0: the record does not have its end, and `reason` says why."""

    @property
    def completed(self) -> bool:
        return self.status == "completed"
