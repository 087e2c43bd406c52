"""What a loop does next: pure decisions on what a message's calls came to.

`check_loop_continuation` stands here, beside the registry's words (categories), so that any loop can ask it. Knows no model and no history.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from msgspec import Struct

from callgate._options import Count, Options
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
"""How a turn ends, finely."""

RunStatus = Literal["completed", "waiting", "stopped", "failed"]
"""The same for whoever only wants to know whether the work is done."""

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
"""What a failed call means for the run. `recover`: the model is told and goes on. `strict`: failures of form or execution end the run."""

SPENT: Final = "budget_exhausted"
REPEATED: Final = CallRepeated.code
REFUSED_BY_LOOP: Final = frozenset({SPENT, REPEATED})
"""Codes of calls that a loop did not let run: they cost nothing, and no rule, tool or person was asked about them."""

_PARSE: frozenset[str] = frozenset({"malformed_arguments", "truncated_arguments", "invalid_parameters", "unknown_tool"})
_EXECUTION: frozenset[str] = frozenset({"timeout", "exception", "non_serializable", "invalid_result", "outcome_unknown"})


class CallEnd(Struct, frozen=True, gc=False):
    """One call of the message, as the decision sees it."""

    result: ToolResult
    category: Category | None
    """None where no tool has the call's name."""


class LoopRules(Options, frozen=True, kw_only=True):
    """What ends a loop after a message's calls have ended."""

    failures: Failures = "recover"
    errors_in_a_row: Count | None = 5
    """So many failed calls without a success between them end the turn as `error`; denied and blocked ones count."""
    end_after_text: frozenset[str] = frozenset()
    """Tools after whose success the turn ends where the model had already written its answer before the calls."""


class Ending(Struct, frozen=True):
    """The turn ends."""

    status: TurnStatus
    reason: str = ""


def check_loop_continuation(ends: Sequence[CallEnd], rules: LoopRules, *, errors_in_a_row: int = 0, text_before: str = "") -> Ending | None:
    """Whether the turn ends after these calls; None: the model goes on with their results.

    Args:
        ends: The calls of one message, in its order.
        rules: Of the loop.
        errors_in_a_row: Failed calls since the last success, these included.
        text_before: The visible text of the message that asked for the calls.
    """
    if rules.failures == "strict":
        for end in ends:
            ending = _fatal(end.result)
            if ending is not None:
                return ending
    if rules.errors_in_a_row is not None and errors_in_a_row >= rules.errors_in_a_row:
        return Ending("error", f"{errors_in_a_row} calls in a row failed; {rules.errors_in_a_row} end the turn.")
    for end in ends:
        if end.result.end_turn:
            return Ending("completed", f"{end.result.name} ended the turn")
        if end.result.success and end.category == "terminal":
            return Ending("completed", f"{end.result.name} is terminal: it awaits an answer")
    if text_before.strip() and ends and all(end.result.success and end.result.name in rules.end_after_text for end in ends):
        return Ending("completed", "the answer was written before the calls")
    return None


def _fatal(result: ToolResult) -> Ending | None:
    if result.failure_class in _PARSE:
        return Ending("tool_parse_error", f"{result.name}: {result.error}")
    if result.failure_class in _EXECUTION:
        return Ending("tool_execution_error", f"{result.name}: {result.error}")
    return None
