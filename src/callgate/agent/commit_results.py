"""Commit the calls of one message that have ended, and decide whether the turn continues.

    outcomes → hints → record → history → context → decide            in this order: results are recorded before the
        model sees them

`message_calls` runs the calls and does not know the history. `callgate.loop_decision` has the rules of the decision and
does not know calls. Messages with calls become part of the conversation only here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from callgate.agent.budget import BudgetTracker
from callgate.agent.history import commit_message
from callgate.agent.message_calls import BROKEN_OFF, CallContext, MessageCalls
from callgate.agent.recorded_results import end_of_cancelled_call
from callgate.agent.repetition import StuckGuard
from callgate.agent.run_events import AgentEvent, CallEnded
from callgate.agent.run_recorder import PhaseExecutedBody
from callgate.agent.run_result import CommittedMessage, PendingCalls
from callgate.agent.turn_state import TurnParts, TurnState
from callgate.calls import Aborted, Answered, Outcome, Suspended, Text, ToolResult
from callgate.emission import EndedCall
from callgate.errors import CallFailed, RecordFailed
from callgate.loop_decision import CallEnd, Ending, check_loop_continuation
from callgate.messages import AssistantMessage, ToolCall

__all__ = ["ExecutedMessage", "MessageCommitter"]


_ANSWERED = "Your waiting calls now have results; see them above. Continue the task."

_ALL_ANSWERED = frozenset({ToolResult})


class ExecutedMessage(Struct, frozen=True, kw_only=True, eq=False):
    """A message whose calls are run, with how they ended."""

    message: AssistantMessage
    calls: tuple[ToolCall, ...]
    """The calls of the message."""
    closed: Sequence[str]
    """For each call, how its arguments were proved complete."""
    ends: list[EndedCall] = []
    """How each call ended, as far as it has ended."""
    whole: CommittedMessage | None = None
    """The whole message as it was committed, if `calls` contains only those of its calls that waited for a human;
    else None.
    """
    broken_off: bool = False
    """Whether some results may be those of calls that were aborted when the engine ended and have no recorded result."""


class MessageCommitter:
    """Commits the messages of one turn, each together with its calls.

    Args:
        parts: The parts of the turn.
        state: The turn's state. Modified.
    """

    def __init__(self, parts: TurnParts, state: TurnState) -> None:
        self._parts = parts
        self._state = state
        self._call_context = CallContext(
            engine=parts.engine,
            exits=parts.exits or None,
            may_run=partial(_refusal, parts.stuck_guard, parts.budget),
            give_back=parts.budget.give_back,
            origin=parts.model.provider,
            on_result=partial(parts.exposure.record_use, parts.scope.conversation) if parts.exposure is not None else None,
        )

    def next_message(self, *, early: bool = False) -> MessageCalls:
        """Return an object that runs the calls of the next message.

        Args:
            early: Whether calls may start before the message is complete.
        """
        parts = self._parts
        iteration = self._state.iteration
        scope = replace(parts.scope, iteration=iteration, message_id="", phase=f"{parts.scope.run}/{iteration}")
        return MessageCalls(self._call_context, scope, early and parts.settings.early_start)

    def commit(self, executed: ExecutedMessage) -> Ending | None:
        """Commit the message with the results of its calls. Return how the turn ends, or None if it continues."""
        parts, state = self._parts, self._state
        if executed.whole is not None and any(not isinstance(end.outcome, Suspended) for end in executed.ends):
            self._take_up_again()
        ends = self._record_ends(executed)
        whole = commit_message(parts.history, executed.whole, executed.message, ends, state.results)
        if parts.enrichment.in_use:
            kept = parts.enrichment.settle(parts.history)
            if kept:
                parts.recorder.write_kept_context(kept)
        if parts.on_event is not None:
            self._announce(executed, parts.on_event)
        state.iteration += 1
        unanswered = None if _ALL_ANSWERED.issuperset(map(type, ends)) else self._abort_or_wait(executed, whole)
        return unanswered or self._decide_continuation(whole.answered, whole.message)

    def commit_cancelled(self, executed: ExecutedMessage) -> None:
        """Commit a message whose calls ended because the run was cancelled, so that the conversation's next run tells the model of them."""
        ends = [end_of_cancelled_call(call, end) for call, end in zip(executed.calls, executed.ends, strict=False)]
        if len(ends) == len(executed.calls):
            self._note_killed(executed)
            with suppress(RecordFailed):
                results = self._record_ends(replace(executed, ends=ends, broken_off=True))
                commit_message(self._parts.history, executed.whole, executed.message, results, self._state.results)

    # Inside

    def _note_killed(self, executed: ExecutedMessage) -> None:
        ends = zip(executed.calls, executed.ends, strict=True)
        self._parts.history.killed += [call for call, end in ends if isinstance(end.outcome, Aborted) and end.outcome.in_doubt]

    def _take_up_again(self) -> None:
        """Append a user message that says that waiting calls were answered, if the conversation ends with an answer.

        User and assistant messages have to alternate.
        """
        messages = self._parts.history.messages
        if messages and isinstance(messages[-1], AssistantMessage):
            self._parts.recorder.write_message(_ANSWERED)
            self._parts.history.user(_ANSWERED)

    def _record_ends(self, executed: ExecutedMessage) -> list[ToolResult | Suspended | None]:
        """Record the ends of the calls and the hints for the model. Return each result with its hint."""
        parts, ends = self._parts, executed.ends
        uids: list[str] = []
        positions: list[int] = []
        finals: list[bytes] = []
        results: list[ToolResult | None] = []
        for end in ends:
            uids.append(end.uid)
            positions.append(end.position)
            finals.append(end.arguments)
            results.append(end.outcome.result if type(end.outcome) is Answered else _result_of_finished(end.outcome))
        hints = parts.stuck_guard.count_results(executed.calls, results, finals) if parts.stuck_guard is not None else {}
        said = {str(place): hint for place, hint in hints.items()} if hints else {}
        if executed.broken_off:
            said |= {str(place): str(one.error) for place, one in enumerate(results) if one is not None and one.code == BROKEN_OFF}
        added = parts.enrichment.news if parts.enrichment.in_use else None
        parts.recorder.write_phase_executed(PhaseExecutedBody(calls=tuple(uids), hints=said, added=added), positions)
        if not hints and None not in results:
            return list(results)
        return [
            end.outcome if isinstance(end.outcome, Suspended) else _append_hint(results[place], hints.get(place))
            for place, end in enumerate(ends)
        ]

    def _announce(self, executed: ExecutedMessage, on_event: Callable[[AgentEvent], None]) -> None:
        for place, end in enumerate(executed.ends):
            if end.outcome is not None:
                on_event(CallEnded(executed.whole.waiting[place] if executed.whole is not None else place, end.outcome))
        if self._parts.exposure is not None:
            for notice in self._parts.exposure.notices(executed.calls, [end.outcome for end in executed.ends]):
                on_event(notice)

    def _abort_or_wait(self, executed: ExecutedMessage, whole: CommittedMessage) -> Ending | None:
        """Return how the turn ends if a call aborted the message or waits for a human, else None."""
        self._note_killed(executed)
        for end in executed.ends:
            outcome = end.outcome
            if isinstance(outcome, Aborted):
                strict = outcome.status == "error" and self._parts.settings.rules.failures == "strict"
                return Ending("tool_parse_error" if strict else outcome.status, outcome.reason)
        return self._wait_for_humans(executed, whole)

    def _wait_for_humans(self, executed: ExecutedMessage, whole: CommittedMessage) -> Ending | None:
        """Return how the turn ends if calls wait for a human, else None."""
        approvals = {place: end.outcome for place, end in enumerate(executed.ends) if isinstance(end.outcome, Suspended)}
        if not approvals:
            return None
        parts, made = self._parts, executed.calls
        self._state.pending = PendingCalls(
            message=AssistantMessage(parts=tuple(made[place] for place in approvals), api=executed.message.api),
            closed=tuple(executed.closed[place] for place in approvals),
            iteration=self._state.iteration - 1,
            approvals=tuple(approvals.values()),
            scope=parts.scope,
            exposed=parts.exposure.exposed if parts.exposure is not None else None,
            added=parts.enrichment.parts,
            restarted=parts.enrichment.disabled,
            whole=whole,
            texts=tuple(self._state.texts),
            repeats=parts.stuck_guard.repeats if parts.stuck_guard is not None else (),
            errors=parts.engine.control.errors_in_a_row(parts.scope.conversation),
            reflects=parts.recorder.phase == "reflect",
        )
        return Ending("waiting", "; ".join(one.question for one in approvals.values()))

    def _decide_continuation(self, answered: list[ToolResult], message: AssistantMessage) -> Ending | None:
        parts = self._parts
        if parts.stuck_guard is not None and parts.stuck_guard.gave_up:
            return Ending("error", parts.stuck_guard.gave_up)
        tools = parts.engine.tools
        ends: list[CallEnd] = []
        for result in answered:
            tool = tools.get(result.name)
            ends.append(CallEnd(result, tool.category if tool is not None else None))
        errors, rules = parts.engine.control.errors_in_a_row(parts.scope.conversation), parts.settings.rules
        text_before = message.text if rules.end_after_text else ""
        ending = check_loop_continuation(ends, rules, errors_in_a_row=errors, text_before=text_before)
        if parts.budget.boundless or (ending is not None and ending.status == "completed"):
            return ending
        over = parts.budget.why_out_of_time()  # if so, calls that the time limit aborted are not failures of their own
        return ending if over is None else Ending("budget_exhausted", over)


def _refusal(guard: StuckGuard | None, budget: BudgetTracker, call: ToolCall, place: int) -> CallFailed | None:
    """Return the error that refuses a call. If the call may run, reserve it in the budget and return None."""
    refusal = guard.refusal(call, place) if guard is not None else None
    return refusal or budget.reserve(place)


def _result_of_finished(outcome: Outcome | None) -> ToolResult | None:
    """Return the result of a call that finished after a stop; None if there is none."""
    return outcome.kept_result if isinstance(outcome, Aborted) and not outcome.in_doubt else None


def _append_hint(result: ToolResult | None, hint: str | None) -> ToolResult | None:
    """Return the result with the hint appended, as the model sees it."""
    return result if result is None or hint is None else replace(result, content=(*result.content, Text(text=hint)))
