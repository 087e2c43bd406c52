"""The calls of one message, from what they came to to whether the turn goes on: told, recorded, committed, decided.

    outcomes → hints → record → history → context → decide            in this order: what the model will see is on record first

The intake runs the calls and knows no history; the rules of `callgate.decide` decide and know no calls. Here the two meet, and here
alone a message becomes part of the conversation.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from callgate.agent.course import Course, TurnParts
from callgate.agent.events import CallEnded
from callgate.agent.intake import BROKEN_OFF, Intake, results_of
from callgate.agent.record import Executed
from callgate.agent.results import Beside, Pending
from callgate.calls import Aborted, Outcome, Suspended, Text, ToolResult
from callgate.decide import CallEnd, Ending, check_loop_continuation
from callgate.errors import CallFailed
from callgate.messages import AssistantMessage, ToolCall

__all__ = ["MessageCalls", "Settling"]


class MessageCalls(Struct, frozen=True, kw_only=True, eq=False):
    """A message whose calls have ended."""

    message: AssistantMessage
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

    def intake(self) -> Intake:
        """What takes the calls of the next message."""
        parts = self._parts
        return Intake(
            parts.engine,
            replace(parts.scope, iteration=self._course.iteration),
            exits=parts.exits,
            may_run=self._may_run,
            give_back=parts.account.give_back,
            early=parts.settings.early_start and parts.account.iterations_left != 0,
            origin=parts.model.provider,
        )

    def settle(self, calls: MessageCalls, intake: Intake) -> Ending | None:
        """Commit what the calls came to, and decide."""
        results = self._told(calls, intake)
        self._parts.history.commit(calls.message, results)
        kept = self._parts.enrichment.settle(self._parts.history)
        if kept:
            self._parts.record.kept(kept)
        answered = [result for result in results if result is not None]
        self._course.results += answered
        self._announce(calls)
        self._course.iteration += 1
        beside = replace(calls.beside, results=(*calls.beside.results, *answered)) if answered else calls.beside
        return self._aborted(calls) or self._waiting(calls, beside) or self._decided(beside)

    # Inside

    def _may_run(self, call: ToolCall, place: int) -> CallFailed | None:
        guard = self._parts.guard
        refusal: CallFailed | None = guard.refusal(call) if guard is not None else None
        return refusal or self._parts.account.reserve(place)

    def _told(self, calls: MessageCalls, intake: Intake) -> list[ToolResult | None]:
        """The results with the hints that are due, both on record."""
        parts = self._parts
        given = results = results_of(calls.outcomes)
        if parts.guard is not None:
            results = parts.guard.told(calls.message.calls, results, intake.finals)
        hints = _added(given, results)
        if calls.broken_off:
            hints |= {str(place): str(one.error) for place, one in enumerate(given) if one is not None and one.code == BROKEN_OFF}
        uids, ends = zip(*intake.ends, strict=True)
        parts.record.executed(Executed(calls=uids, hints=hints, added=parts.enrichment.news), ends)
        return results

    def _announce(self, calls: MessageCalls) -> None:
        parts = self._parts
        if parts.tell is not None:
            for position, outcome in enumerate(calls.outcomes):
                if outcome is not None:
                    parts.tell(CallEnded(position, outcome))
        if parts.exposure is not None:
            parts.exposure.ended(parts.scope, calls.message.calls, calls.outcomes, parts.tell)

    def _aborted(self, calls: MessageCalls) -> Ending | None:
        """The end of a turn whose message a call aborted."""
        for outcome in calls.outcomes:
            if isinstance(outcome, Aborted):
                strict = outcome.status == "error" and self._parts.settings.rules.failures == "strict"
                return Ending("tool_parse_error" if strict else outcome.status, outcome.reason)
        return None

    def _waiting(self, calls: MessageCalls, beside: Beside) -> Ending | None:
        """The end of a turn whose message has calls that wait for a human."""
        approvals = {place: one for place, one in enumerate(calls.outcomes) if isinstance(one, Suspended)}
        if not approvals:
            return None
        parts, made = self._parts, calls.message.calls
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
            errors=self._errors_in_a_row(),
        )
        return Ending("waiting", "; ".join(one.question for one in approvals.values()))

    def _decided(self, message: Beside) -> Ending | None:
        parts = self._parts
        if parts.guard is not None and parts.guard.gave_up:
            return Ending("error", parts.guard.gave_up)
        tools = parts.engine.tools
        ends = [CallEnd(result, tool.category if (tool := tools.get(result.name)) else None) for result in message.results]
        rules = parts.settings.rules
        ending = check_loop_continuation(ends, rules, errors_in_a_row=self._errors_in_a_row(), text_before=message.text)
        if ending is not None and ending.status == "completed":
            return ending
        over = parts.account.out_of_time()  # then the calls that it ended did not fail by themselves
        return ending if over is None else Ending("budget_exhausted", over)

    def _errors_in_a_row(self) -> int:
        return self._parts.engine.control.errors_in_a_row(self._parts.scope.conversation)


def _added(given: Sequence[ToolResult | None], told: Sequence[ToolResult | None]) -> dict[str, str]:
    """What the loop added to results, by the call's place."""
    return {
        str(place): "\n".join(part.text for part in now.content[len(before.content) :] if isinstance(part, Text))
        for place, (before, now) in enumerate(zip(given, told, strict=True))
        if now is not before and now is not None and before is not None
    }
