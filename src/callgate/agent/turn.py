"""The loop itself: stream the model once, run what it asks, commit, decide; until the turn ends.

    ready? → stream → calls? → run → settle → go on?          each arrow may end the turn with one `Ending`

Every pass of the model and every call has its place in the record and the history by the time the next begins. A pass is in `passes`, the
calls of one message run in `intake` and are committed and decided upon in `settling`; here is only what comes after what.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from callgate.agent.course import Course, TurnParts
from callgate.agent.exits import go_on
from callgate.agent.intake import Intake, LeftOpen
from callgate.agent.passes import Passes
from callgate.agent.results import Pending, RunResult
from callgate.agent.settling import MessageCalls, Settling
from callgate.decide import RUN_STATUS, Ending
from callgate.messages import AssistantMessage
from callgate.stream import StreamResult

if TYPE_CHECKING:
    from callgate.agent.recalled import OpenMessage

__all__ = ["Turn"]

_NOTHING_SAID = frozenset({"empty_response", "error", "timeout", "budget_exhausted"})
"""How a turn may end that has nothing to add to its report."""


class Turn:
    """One turn of one conversation.

    Args:
        parts: What it works with.
        course: How far it has come, where it goes on; None: it begins.
    """

    def __init__(self, parts: TurnParts, course: Course | None = None) -> None:
        self._parts = parts
        self._course = course = course or Course(iteration=parts.scope.iteration)
        self._passes = Passes(parts, course)
        self._settling = Settling(parts, course)
        self._has_exits = bool(parts.exits)

    async def run(self) -> Ending:
        """Go through passes until the turn ends."""
        passes, compactor = self._passes, self._parts.compactor
        with self._parts.enrichment:
            while True:
                ending = passes.ready()
                if ending is None and compactor is not None:
                    ending = await passes.compacted(compactor)
                if ending is None:
                    ending = await self._once()
                if ending is not None:
                    return self._complete(ending)

    async def resume(self, pending: Pending) -> Ending:
        """Hand in again what waited for a human, then go on."""
        return await self._handed_in_again(pending) or await self.run()

    async def go_on(self, opened: OpenMessage, left: Mapping[int, LeftOpen]) -> Ending:
        """Bring a message whose calls were cut off to its end, then go on."""
        message, closed = opened.message, opened.body.closed
        self._course.iteration = opened.body.iteration
        with self._parts.enrichment:
            intake = self._settling.intake()
            intake.cause = self._parts.record.last
            ends = await intake.take_up(message.calls, closed, left)  # type: ignore[arg-type]
        self._course.signals += intake.signals_of(message.calls)
        self._parts.account.iterations += not opened.again
        self._parts.account.calls += sum(call.counts for call in left.values()) - (len(message.calls) if opened.again else 0)
        calls = MessageCalls(message=message, calls=message.calls, closed=closed, ends=ends, whole=opened.whole, broken_off=True)
        ending = self._settling.settle(calls)
        return (None if ending is None else await self._ending(ending)) or await self.run()

    def say(self, text: str) -> None:
        """Tell the model something, as the user."""
        self._parts.record.said(text)
        self._parts.history.user(text)

    @property
    def cut(self) -> str:
        """Why the last answer is not whole; empty where it is."""
        return self._course.cut

    def result(self, ending: Ending) -> RunResult:
        """The turn as a whole."""
        parts, course = self._parts, self._course
        texts = course.texts
        return RunResult(
            status=RUN_STATUS[ending.status],
            turn_status=ending.status,
            reason=ending.reason,
            text=texts[-1] if texts and ending.status == "completed" else "\n\n".join(filter(None, texts)),
            signals=tuple(course.signals),
            results=tuple(course.results),
            messages=tuple(parts.history.messages),
            spent=parts.account.spent(),
            run=parts.scope.run,
            conversation=parts.scope.conversation,
            pending=course.pending,
        )

    # Inside

    async def _once(self) -> Ending | None:
        """One pass, and the calls of its message."""
        left, doing = self._parts.account.iterations_left, "the model's stream"
        intake = self._settling.intake(early=left != 0)
        try:
            result = await self._passes.stream(intake, left)
            doing = "the run"
            if result.status == "function_call":
                return await self._called(result, intake, left)
        except BaseException:
            await intake.drop(f"{doing} failed")
            if doing == "the model's stream":
                self._passes.broke_off(intake)
            raise
        await intake.drop(result.reason or result.status)
        return await self._passes.answered(result, intake)

    async def _called(self, result: StreamResult, intake: Intake, left: int | None) -> Ending | None:
        message = result.message
        assert message is not None
        exits, account, normal = self._parts.exits, self._parts.account, True
        if self._has_exits:
            self._course.signals += intake.signals_of(result.calls)
            normal = any(exits.meant(call.name) is None for call in result.calls)
        may_run = normal and left != 0
        intake.cause = self._parts.record.answered(result, message, self._course.iteration, executes=may_run)
        if normal and not may_run:
            return await self._out_of_iterations(message, intake)
        if not normal:
            return self._reported(message)
        ends = await intake.ended(result.calls, result.closed)
        self._course.reported = False
        account.iterations += 1
        ending = self._settling.settle(MessageCalls(message=message, calls=result.calls, closed=result.closed, ends=ends))
        return None if ending is None else await self._ending(ending)

    def _reported(self, message: AssistantMessage) -> Ending | None:
        """A message of exit calls alone: the model is asked once whether there is more, since such a call ends nothing."""
        parts, course = self._parts, self._course
        parts.history.answer(message)
        if course.reported or parts.settings.after_exit_calls == "end" or parts.account.over() is not None:
            return Ending("completed")
        course.reported = True
        self.say(go_on(call.name for call in message.calls))
        return None

    def _complete(self, ending: Ending) -> Ending:
        """A run that has reported is complete where the model then says nothing, or cannot."""
        if not self._course.reported or ending.status not in _NOTHING_SAID:
            return ending
        return Ending("completed", f"The model reported, and then said nothing more: {ending.reason}")

    async def _ending(self, ending: Ending) -> Ending | None:
        """How the turn ends after a message's calls, unless a human answered one while others ran: that one goes on at once."""
        pending = self._course.pending
        if pending is None or not self._was_answered(pending):
            return ending
        return await self._handed_in_again(pending)

    async def _handed_in_again(self, pending: Pending) -> Ending | None:
        from callgate.agent.resume import waited_for

        parts, message = self._parts, pending.message
        self._course.iteration, self._course.pending = pending.iteration, None
        left = waited_for(pending, parts.engine.approval)
        parts.account.give_back(len(message.calls) - len(left))  # those that are not refused: reserved when they asked, and again now
        with parts.enrichment:
            intake = self._settling.intake()
            intake.cause = parts.record.handed_in_again(message, pending.closed, pending.iteration)
            ends = await intake.take_up(message.calls, pending.closed, left)  # type: ignore[arg-type]
        calls = MessageCalls(message=message, calls=message.calls, closed=pending.closed, ends=ends, whole=pending.whole)
        ending = self._settling.settle(calls)
        return None if ending is None else await self._ending(ending)

    async def _out_of_iterations(self, message: AssistantMessage, intake: Intake) -> Ending:
        await intake.drop("no iteration is left")
        self._parts.history.answer(message)
        why = "no iteration is left, and the model asked for another round of tools"
        strict = self._parts.settings.rules.failures == "strict"
        return Ending("tool_execution_error" if strict else "budget_exhausted", why)

    def _was_answered(self, pending: Pending) -> bool:
        questions = [self._parts.engine.approval(approval.approval_id) for approval in pending.approvals]
        return any(question is not None and question.allowed is not None for question in questions)
