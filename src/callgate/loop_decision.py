"""Decide whether a loop continues after the calls of a message.

Pure functions on results, for any loop. Knows no model and no history.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from msgspec import Struct

from callgate._option_checks import Count, Options
from callgate.calls import Category, ToolResult
from callgate.errors import CallRepeated

__all__ = [
    "REFUSED_BY_LOOP",
    "REPEATED",
    "RUN_STATUS",
    "SPENT",
    "CallEnd",
    "Ending",
    "Failures",
    "LoopRules",
    "RunStatus",
    "TurnStatus",
    "check_loop_continuation",
]

TurnStatus = Literal[
    "completed",
    "waiting",
    "stopped_by_user",
    "follow_up_interrupt",
    "budget_exhausted",
    "error",
    "timeout",
    "empty_response",
    "tool_parse_error",
    "tool_execution_error",
]
"""The exact status of a turn."""

RunStatus = Literal["completed", "waiting", "stopped", "failed"]
"""The coarse status of a turn: whether the work is done."""

RUN_STATUS: dict[TurnStatus, RunStatus] = {
    "completed": "completed",
    "waiting": "waiting",
    "stopped_by_user": "stopped",
    "follow_up_interrupt": "stopped",
    "budget_exhausted": "stopped",
    "error": "failed",
    "timeout": "failed",
    "empty_response": "failed",
    "tool_parse_error": "failed",
    "tool_execution_error": "failed",
}

Failures = Literal["recover", "strict"]
"""How a failed call affects the run. `recover`: the model gets the error and continues. `strict`: failures of form or execution end it."""

SPENT: Final = "budget_exhausted"
REPEATED: Final = CallRepeated.code
REFUSED_BY_LOOP: Final = frozenset({SPENT, REPEATED})
"""Codes of calls that a loop refused before any rule, tool or person was asked. They do not count as calls."""

_PARSE: frozenset[str] = frozenset({"malformed_arguments", "truncated_arguments", "invalid_parameters", "unknown_tool"})
_EXECUTION: frozenset[str] = frozenset({"timeout", "exception", "non_serializable", "invalid_result", "outcome_unknown"})


class CallEnd(Struct, frozen=True, gc=False):
    """One call of the message, with the facts that the decision needs."""

    result: ToolResult
    category: Category | None
    """The tool's category; None if no tool has the call's name."""


class LoopRules(Options, frozen=True, kw_only=True):
    """The rules that end a loop after a message's calls."""

    failures: Failures = "recover"
    errors_in_a_row: Count | None = 5
    """The number of failed calls in a row that ends the turn as `error`; denied and blocked calls count."""
    end_after_text: frozenset[str] = frozenset()
    """Tools after whose success the turn ends if the model wrote its answer before the calls."""


class Ending(Struct, frozen=True):
    """The end of a turn: its status, and the reason."""

    status: TurnStatus
    reason: str = ""


def check_loop_continuation(ends: Sequence[CallEnd], rules: LoopRules, *, errors_in_a_row: int = 0, text_before: str = "") -> Ending | None:
    """Return how the turn ends after these calls; None if the model continues with their results.

    Args:
        ends: The calls of one message, in order.
        rules: The rules of the loop.
        errors_in_a_row: The number of failed calls since the last success, including these.
        text_before: The visible text of the message with the calls.
    """
    if rules.failures == "strict":
        for end in ends:
            ending = _fatal_ending(end.result)
            if ending is not None:
                return ending
    if rules.errors_in_a_row is not None and errors_in_a_row >= rules.errors_in_a_row:
        return Ending("error", f"{errors_in_a_row} calls in a row failed; {rules.errors_in_a_row} end the turn.")
    for end in ends:
        if end.result.end_turn:
            return Ending("completed", f"{end.result.name} ended the turn")
        if end.category == "terminal" and end.result.success:
            return Ending("completed", f"{end.result.name} is terminal: it awaits an answer")
    if text_before.strip() and ends and all(end.result.success and end.result.name in rules.end_after_text for end in ends):
        return Ending("completed", "the answer was written before the calls")
    return None


def _fatal_ending(result: ToolResult) -> Ending | None:
    if result.failure_class in _PARSE:
        return Ending("tool_parse_error", f"{result.name}: {result.error}")
    if result.failure_class in _EXECUTION:
        return Ending("tool_execution_error", f"{result.name}: {result.error}")
    return None
