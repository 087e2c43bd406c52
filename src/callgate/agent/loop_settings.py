"""The limits and rules of a loop (`Settings`), the parameters of requests to the model (`ModelSettings`), and the presets.

A preset is a starting point: `structs.replace(PRESETS["chat"], empty_retries=5)`.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import Meta, field

from callgate._option_checks import MOST, Amount, Count, Options, Pause, Whole, refused
from callgate.errors import UsageError
from callgate.loop_decision import LoopRules
from callgate.models.model_events import Usage

__all__ = ["PRESETS", "Budget", "ModelSettings", "PresetName", "Prices", "Settings"]

PresetName = Literal["chat", "tick", "agent", "worker"]


class Budget(Options, frozen=True, kw_only=True):
    """The maximum resources of one run; None: no limit. The calls of a message are reserved before they start."""

    iterations: Whole | None = 100
    """The number of messages with calls, however many calls each has."""
    calls: Whole | None = None
    calls_per_message: Whole | None = None
    input_tokens: Whole | None = None
    output_tokens: Whole | None = None
    cost: Amount | None = None
    """The maximum cost, in the unit of the prices."""
    wall_s: Pause | None = None
    """Seconds since the run began, without the time in which it waits for a human. Work that is running at the end is aborted."""


class Prices(Options, frozen=True, kw_only=True):
    """The prices of one million tokens, in any unit that the host chooses."""

    input: Amount = 0.0
    output: Amount = 0.0
    cached: Amount = 0.0

    def of(self, usage: Usage) -> float:
        fresh = max(0, usage.input_tokens - usage.cached_tokens)
        return (fresh * self.input + usage.cached_tokens * self.cached + usage.output_tokens * self.output) / 1_000_000


class ModelSettings(Options, frozen=True, kw_only=True):
    """The parameters of every request to the model, besides the conversation and the tools. None: the provider's default."""

    max_tokens: Count | None = None
    """The limit of one answer."""
    temperature: Annotated[float, Meta(ge=-MOST, le=MOST)] | None = None
    """Passed to the provider unchanged."""
    extra: dict[str, object] | None = None
    """Further fields of the request's body, by the provider's names."""

    def __post_init__(self) -> None:
        extra: object = self.extra
        if extra is not None and not (isinstance(extra, dict) and all(isinstance(name, str) for name in extra)):
            raise refused("ModelSettings", "extra", extra, "a dict by the names of the provider's request body, or None")
        super().__post_init__()


class Settings(Options, frozen=True, kw_only=True):
    """The settings of a loop."""

    budget: Budget = Budget()
    rules: LoopRules = LoopRules()
    prices: Prices | None = None
    when_spent: Literal["end", "answer"] = "end"
    """What to do if no iteration is left: `end` ends the run as `budget_exhausted`, `answer` lets the model answer
    once more without tools.
    """
    after_exit_calls: Literal["ask", "end"] = "ask"
    """What to do after a message with exit calls only: `ask` asks the model once whether it has more to say, `end`
    ends the run with that message.
    """
    soft_warn: Whole | None = None
    """The iteration at which one notice says that the turn takes long. From then on, tools are asked to show the user
    how to kill the turn. Sets `Limits.soft_warn_iteration` of an engine that the agent makes itself; a given
    engine must have the same limit. None: the engine's limit, which is 20 by default.
    """
    early_start: bool = True
    """Whether calls without an effect may start while the message is still streaming."""
    empty_retries: Whole = 0
    """How many times the model is called again after an empty answer."""
    empty_retry_s: Pause = 1.0
    output_retries: Whole = 2
    """How many times an answer that is not of the requested type is sent back to the model."""
    dangerous_per_tick: Whole | None = None
    """The maximum number of dangerous calls per tick (`Scope.tick`). Only for engines that the agent makes itself."""
    pauses: Whole = 8
    """How many times a provider may pause an answer and ask to be called again with it."""
    system_text: bool = field(default=False, name="bios")
    """Whether the loop puts a system text of its own before the instructions. `Agent(system_text=...)` overrides it. Recorded as `bios`."""

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
"""`agent` for a task, `chat` for a conversation with people, `tick` for an actor in a simulated world that acts once per time step,
`worker` for a job that succeeds or fails."""
