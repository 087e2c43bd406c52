"""Count and limit the resources that a run uses, and end its work when its wall time is used up.

`BudgetTracker` counts, and reserves calls before they start. `enforce_wall_time` ends work that has already started: it waits by the
engine's clock and aborts through the engine's control, as a kill does. Must not decide how the run ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from callgate._abort_signals import Control
from callgate._clock import Clock
from callgate.agent.loop_settings import Budget, Prices
from callgate.agent.run_result import Spent
from callgate.errors import CallDenied
from callgate.loop_decision import SPENT
from callgate.models.model_events import Usage

__all__ = ["BudgetTracker", "enforce_wall_time"]


class BudgetTracker:
    """Counts the resources that one run has used, and refuses calls that its budget does not allow."""

    __slots__ = (
        "_began",
        "_budget",
        "_clock",
        "_prices",
        "boundless",
        "cached_tokens",
        "calls",
        "cost",
        "input_tokens",
        "iterations",
        "output_tokens",
        "passes",
    )

    def __init__(self, budget: Budget, prices: Prices | None, clock: Clock, before: Spent | None = None) -> None:
        before = before or Spent()
        self._budget = budget
        self._prices = prices
        limits = (budget.input_tokens, budget.output_tokens, budget.cost, budget.wall_s)
        self.boundless = all(limit is None for limit in limits)
        """Whether only iterations and calls are limited."""
        self._clock = clock
        self._began = clock.monotonic() - before.wall_s
        self.iterations = before.iterations
        self.calls = before.calls
        self.passes = before.passes
        self.input_tokens = before.input_tokens
        self.output_tokens = before.output_tokens
        self.cached_tokens = before.cached_tokens
        self.cost = before.cost

    def use(self, usage: Usage | None) -> None:
        """Count one request to the model. Negative numbers of tokens count as 0."""
        self.passes += 1
        if usage is None:
            return
        self.input_tokens += max(0, usage.input_tokens)
        self.output_tokens += max(0, usage.output_tokens)
        self.cached_tokens += max(0, usage.cached_tokens)
        if self._prices is not None:
            self.cost += max(0.0, self._prices.of(usage))

    def lacks_usage(self, usage: Usage | None) -> bool:
        """Return whether a limit on tokens or cost has no effect because the provider reported no tokens."""
        limited = not (self._budget.input_tokens is self._budget.output_tokens is self._budget.cost is None)
        return limited and (usage is None or usage.input_tokens + usage.output_tokens <= 0)

    @property
    def iterations_left(self) -> int | None:
        return None if self._budget.iterations is None else max(0, self._budget.iterations - self.iterations)

    def spent(self) -> Spent:
        return Spent(
            iterations=self.iterations,
            calls=self.calls,
            passes=self.passes,
            input_tokens=self.input_tokens,
            output_tokens=self.output_tokens,
            cached_tokens=self.cached_tokens,
            cost=self.cost,
            wall_s=self._clock.monotonic() - self._began,
        )

    def why_exhausted(self) -> str | None:
        """Return a sentence that names the resource that is used up; None if no resource is used up.

        A used-up resource prevents further requests to the model.
        """
        budget = self._budget
        if self.boundless:
            return None
        used = (
            ("input tokens", self.input_tokens, budget.input_tokens),
            ("output tokens", self.output_tokens, budget.output_tokens),
            ("cost", self.cost, budget.cost),
        )
        for what, spent, limit in used:
            if limit is not None and spent >= limit:
                return f"the run has used up its {what}: {spent:.6g} of {limit:.6g}"
        return self.why_out_of_time()

    @property
    def seconds_left(self) -> float | None:
        """The seconds of wall time that are left. None: no limit. Negative if the time is exceeded."""
        return None if self._budget.wall_s is None else self._budget.wall_s - (self._clock.monotonic() - self._began)

    def why_out_of_time(self) -> str | None:
        """Return a sentence if the wall time is used up, else None."""
        if self._budget.wall_s is None or (self.seconds_left or 0.0) > 0:
            return None
        return f"the run has used up its wall time: {self._clock.monotonic() - self._began:.6g} of {self._budget.wall_s:.6g} s"

    def reserve(self, place: int) -> CallDenied | None:
        """Reserve one call. Return the error that refuses it if the budget does not allow it.

        Args:
            place: The index of the call in its message.
        """
        most = self._budget.calls_per_message
        if most is not None and place >= most:
            instead = "Send it in your next message, if it is still needed." if most else "Answer with what you know."
            return _refusal(f"it is call {place + 1} of its message, of which {most} may run. {instead}")
        if self._budget.calls is not None and self.calls >= self._budget.calls:
            return _refusal(f"the run's {self._budget.calls} calls are used up. Answer with what you know.")
        self.calls += 1
        return None

    def give_back(self, calls: int) -> None:
        """Release the reservations of calls that were discarded with their message."""
        self.calls -= calls


def _refusal(why: str) -> CallDenied:
    return CallDenied(f"It was not run: {why}", code=SPENT)


@asynccontextmanager
async def enforce_wall_time(budget: BudgetTracker, clock: Clock, control: Control, conversation: str) -> AsyncIterator[None]:
    """Abort all work in the conversation if the wall time is used up before the block ends."""
    left_s = budget.seconds_left
    if left_s is None:
        yield
        return
    timer = asyncio.ensure_future(_end_after(left_s, budget, clock, control, conversation))
    try:
        yield
    finally:
        timer.cancel()


async def _end_after(left_s: float, budget: BudgetTracker, clock: Clock, control: Control, conversation: str) -> None:
    while left_s > 0:
        await clock.sleep(left_s)
        left_s = budget.seconds_left or 0.0
    control.time_is_up(conversation, budget.why_out_of_time() or "")
