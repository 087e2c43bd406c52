"""The calls of one message, from what they came to to whether the turn goes on: told, recorded, committed, decided.

    outcomes → hints → record → history → context → decide            in this order: what the model will see is on record first

The intake runs the calls and knows no history; the rules of `callgate.decide` decide and know no calls. Here the two meet, and here
alone a message becomes part of the conversation.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from callgate.agent.account import Account
from callgate.agent.course import Course, TurnParts
from callgate.agent.events import CallEnded
from callgate.agent.intake import BROKEN_OFF, Desk, Intake, results_of
from callgate.agent.record import Executed
from callgate.agent.results import Beside, Pending
from callgate.agent.stuck import StuckGuard
from callgate.calls import Aborted, Outcome, Suspended, Text, ToolResult
from callgate.decide import CallEnd, Ending, check_loop_continuation
from callgate.errors import CallFailed
from callgate.messages import AssistantMessage, ToolCall

__all__ = ["MessageCalls", "Settling"]


class MessageCalls(Struct, frozen=True, kw_only=True, eq=False):
    """A message whose calls have ended."""

    message: AssistantMessage
    calls: tuple[ToolCall, ...]
    """The message's."""
    closed: Sequence[str]
    """What proved the arguments of each call complete."""
    outcomes: list[Outcome | None]
    beside: Beside
    """What the message had before, where its calls have waited for a human."""
    broken_off: bool = False
    """Whether some of the results may stand for calls that have none on record."""


class Settling:
    """Settles one message's calls after the other.

    Args:
        parts: What the turn works with.
        course: How far it has come.
    """

    def __init__(self, parts: TurnParts, course: Course) -> None:
        self._parts = parts
        self._course = course
        self._desk = Desk(
            engine=parts.engine,
            exits=parts.exits or None,
            may_run=partial(_refusal, parts.guard, parts.account),
            give_back=parts.account.give_back,
            origin=parts.model.provider,
        )

    def intake(self) -> Intake:
        """What takes the calls of the next message."""
        parts = self._parts
        scope = replace(parts.scope, iteration=self._course.iteration)
        return Intake(self._desk, scope, parts.settings.early_start and parts.account.iterations_left != 0)

    def settle(self, calls: MessageCalls, intake: Intake) -> Ending | None:
        """Commit what the calls came to, and decide."""
        parts, course = self._parts, self._course
        results = self._told(calls, intake)
        parts.history.commit(calls.message, results)
        kept = parts.enrichment.settle(parts.history)
        if kept:
            parts.record.kept(kept)
        answered = [result for result in results if result is not None]
        course.results += answered
        if parts.tell is not None or parts.exposure is not None:
            self._announce(calls)
        course.iteration += 1
        beside = Beside(results=(*calls.beside.results, *answered), text=calls.beside.text)
        ending = self._unanswered(calls, beside) if len(answered) < len(results) else None
        return ending or self._decided(beside)

    # Inside

    def _told(self, calls: MessageCalls, intake: Intake) -> list[ToolResult | None]:
        """The results with the hints that are due, both on record."""
        parts = self._parts
        results = results_of(calls.outcomes)
        uids, ends, finals = zip(*intake.ends, strict=True)
        hints = parts.guard.told(calls.calls, results, finals) if parts.guard is not None else {}
        said = {str(place): hint for place, hint in hints.items()} if hints else {}
        if calls.broken_off:
            said |= {str(place): str(one.error) for place, one in enumerate(results) if one is not None and one.code == BROKEN_OFF}
        parts.record.executed(Executed(calls=uids, hints=said, added=parts.enrichment.news), ends)
        return [_hinted(result, hints.get(place)) for place, result in enumerate(results)] if hints else results

    def _announce(self, calls: MessageCalls) -> None:
        parts = self._parts
        if parts.tell is not None:
            for position, outcome in enumerate(calls.outcomes):
                if outcome is not None:
                    parts.tell(CallEnded(position, outcome))
        if parts.exposure is not None:
            parts.exposure.ended(parts.scope, calls.calls, calls.outcomes, parts.tell)

    def _unanswered(self, calls: MessageCalls, beside: Beside) -> Ending | None:
        """The end of a turn whose message a call aborted, or has calls that wait."""
        for outcome in calls.outcomes:
            if isinstance(outcome, Aborted):
                strict = outcome.status == "error" and self._parts.settings.rules.failures == "strict"
                return Ending("tool_parse_error" if strict else outcome.status, outcome.reason)
        return self._waiting(calls, beside)

    def _waiting(self, calls: MessageCalls, beside: Beside) -> Ending | None:
        """The end of a turn whose message has calls that wait for a human."""
        approvals = {place: one for place, one in enumerate(calls.outcomes) if isinstance(one, Suspended)}
        if not approvals:
            return None
        parts, made = self._parts, calls.calls
        self._course.pending = Pending(
            message=AssistantMessage(parts=tuple(made[place] for place in approvals), api=calls.message.api),
            closed=tuple(calls.closed[place] for place in approvals),
            iteration=self._course.iteration - 1,
            approvals=tuple(approvals.values()),
            scope=parts.scope,
            exposed=parts.exposure.exposed if parts.exposure is not None else None,
            added=parts.enrichment.parts,
            restarted=parts.enrichment.disabled,
            beside=beside,
            texts=tuple(self._course.texts),
            repeats=parts.guard.repeats if parts.guard is not None else (),
            errors=parts.engine.control.errors_in_a_row(parts.scope.conversation),
        )
        return Ending("waiting", "; ".join(one.question for one in approvals.values()))

    def _decided(self, message: Beside) -> Ending | None:
        parts = self._parts
        if parts.guard is not None and parts.guard.gave_up:
            return Ending("error", parts.guard.gave_up)
        tools = parts.engine.tools
        ends = [CallEnd(result, tool.category if (tool := tools.get(result.name)) else None) for result in message.results]
        errors = parts.engine.control.errors_in_a_row(parts.scope.conversation)
        ending = check_loop_continuation(ends, parts.settings.rules, errors_in_a_row=errors, text_before=message.text)
        if ending is not None and ending.status == "completed":
            return ending
        over = parts.account.out_of_time()  # then the calls that it ended did not fail by themselves
        return ending if over is None else Ending("budget_exhausted", over)


def _refusal(guard: StuckGuard | None, account: Account, call: ToolCall, place: int) -> CallFailed | None:
    """Why a call may not run; takes one that may out of the budget."""
    refusal = guard.refusal(call, place) if guard is not None else None
    return refusal or account.reserve(place)


def _hinted(result: ToolResult | None, hint: str | None) -> ToolResult | None:
    """The result as the model sees it."""
    return result if result is None or hint is None else replace(result, content=(*result.content, Text(text=hint)))
