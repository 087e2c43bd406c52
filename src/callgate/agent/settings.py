"""Every bound and rule of a loop in one value, what the model is asked for in another, and the presets.

A preset is a starting point: `structs.replace(PRESETS["chat"], empty_retries=5)`.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import Meta, field

from callgate._options import MOST, Amount, Count, Options, Pause, Whole, refused
from callgate.decide import LoopRules
from callgate.errors import UsageError
from callgate.models.events import Usage

__all__ = ["PRESETS", "Budget", "ModelSettings", "PresetName", "Prices", "Settings"]

PresetName = Literal["chat", "tick", "agent", "worker"]


class Budget(Options, frozen=True, kw_only=True):
    """What one run may use. None: no limit. What a message's calls need is reserved before the first of them starts."""

    iterations: Whole | None = 100
    """Messages with calls, however many calls each has."""
    calls: Whole | None = None
    calls_per_message: Whole | None = None
    input_tokens: Whole | None = None
    output_tokens: Whole | None = None
    cost: Amount | None = None
    """In the unit of the prices."""
    wall_s: Pause | None = None
    """From the run's beginning; waiting for a human does not count. What runs when it is over ends then."""


class Prices(Options, frozen=True, kw_only=True):
    """What a million tokens cost, in one unit of the host's."""

    input: Amount = 0.0
    output: Amount = 0.0
    cached: Amount = 0.0

    def of(self, usage: Usage) -> float:
        fresh = max(0, usage.input_tokens - usage.cached_tokens)
        return (fresh * self.input + usage.cached_tokens * self.cached + usage.output_tokens * self.output) / 1_000_000


class ModelSettings(Options, frozen=True, kw_only=True):
    """What every request to the model has beside the conversation and the tools. None: the provider's default."""

    max_tokens: Count | None = None
    """Of one answer."""
    temperature: Annotated[float, Meta(ge=-MOST, le=MOST)] | None = None
    """As the provider takes it."""
    extra: dict[str, object] | None = None
    """More of the request's body: by the provider's own names."""

    def __post_init__(self) -> None:
        extra: object = self.extra
        if extra is not None and not (isinstance(extra, dict) and all(isinstance(name, str) for name in extra)):
            raise refused("ModelSettings", "extra", extra, "a dict by the names of the provider's request body, or None")
        super().__post_init__()


class Settings(Options, frozen=True, kw_only=True):
    """How a loop behaves."""

    budget: Budget = Budget()
    rules: LoopRules = LoopRules()
    prices: Prices | None = None
    when_spent: Literal["end", "answer"] = "end"
    """Where no iteration is left: end as `budget_exhausted`, or let the model answer once more without tools."""
    after_exit_calls: Literal["ask", "end"] = "ask"
    """After a message of exit calls alone: ask the model once whether there is more, or end the run with that message."""
    soft_warn: Whole | None = None
    """At this iteration one notice says that the turn takes long, and from it on tools are told to show how to kill the turn. For engines
    that the agent makes itself: it becomes `Limits.soft_warn_iteration`, which counts always. None: 20, or as the given engine says."""
    early_start: bool = True
    """Whether calls without effect may start while the message still streams."""
    empty_retries: Whole = 0
    """How often an empty answer is asked for again."""
    empty_retry_s: Pause = 1.0
    output_retries: Whole = 2
    """How often an answer that is not of the wanted type is sent back."""
    dangerous_per_tick: Whole | None = None
    """For engines that the agent makes itself."""
    pauses: Whole = 8
    """How often a provider may ask to be sent its own message to go on."""
    system_text: bool = field(default=False, name="bios")
    """Whether the loop writes a system text of its own before the instructions; `Agent(system_text=...)` wins. Recorded as `bios`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.budget.cost is not None and self.prices is None:
            raise UsageError(
                f"Budget(cost={self.budget.cost!r}) would never be used up: nothing has a price. Give Settings(prices=Prices(...)) too."
            )


PRESETS: Final[dict[str, Settings]] = {
    "agent": Settings(),
    "chat": Settings(empty_retries=2, dangerous_per_tick=1),
    "tick": Settings(budget=Budget(iterations=20, calls=5, calls_per_message=5), dangerous_per_tick=1),
    "worker": Settings(budget=Budget(iterations=8), rules=LoopRules(failures="strict", errors_in_a_row=None), system_text=True),
}
"""`agent` for a task, `chat` for a conversation with people, `tick` for an actor in a world, `worker` for a job that succeeds or fails."""
