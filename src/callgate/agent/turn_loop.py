"""The loop: request an answer of the model, run its calls, commit them, decide; until the turn ends.

    ready? → stream → calls? → run → commit → continue?          each arrow may end the turn with one `Ending`

Before the next step begins, every pass (one request to the model) and every call is in the record and in the history. `model_passes` runs a
pass, `message_calls` runs the calls of a message, and `commit_results` commits them and decides; this module only orders these steps.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec.structs import replace

from callgate.agent.commit_results import ExecutedMessage, MessageCommitter
from callgate.agent.exit_tools import ask_for_more
from callgate.agent.interruption_note import interruption_note
from callgate.agent.message_calls import MessageCalls, UncommittedCall
from callgate.agent.model_passes import ModelPasses
from callgate.agent.run_result import PendingCalls, RunResult
from callgate.agent.turn_state import TurnParts, TurnState
from callgate.loop_decision import RUN_STATUS, Ending
from callgate.messages import AssistantMessage
from callgate.stream import StreamResult

if TYPE_CHECKING:
    from callgate.agent.recorded_run import UncommittedMessage

__all__ = ["Turn"]

_NOTHING_SAID = frozenset({"empty_response", "error", "timeout", "budget_exhausted"})
"""Statuses of a turn in which the model added nothing after its report."""


class Turn:
    """One turn of one conversation.

    Args:
        parts: The parts of the turn.
        state: The state of a turn that is resumed; None for a new turn.
    """

    def __init__(self, parts: TurnParts, state: TurnState | None = None) -> None:
        self._parts = parts
        self._state = state = state or TurnState(iteration=parts.scope.iteration)
        self._passes = ModelPasses(parts, state)
        self._committer = MessageCommitter(parts, state)
        self._has_exits = bool(parts.exits)

    async def run(self) -> Ending:
        """Run passes until the turn ends."""
        passes, compactor = self._passes, self._parts.compactor
        with self._parts.enrichment:
            while True:
                ending = passes.limit_reached()
                if ending is None and compactor is not None:
                    ending = await passes.compact_if_long(compactor)
                if ending is None:
                    ending = await self._run_pass()
                if ending is not None:
                    return self._complete(ending)

    async def resume(self, pending: PendingCalls) -> Ending:
        """Run the calls that waited for a human, then continue the loop."""
        return await self._hand_in_again(pending) or await self.run()

    async def complete_interrupted(self, opened: UncommittedMessage, uncommitted: Mapping[int, UncommittedCall]) -> Ending:
        """Complete a message whose calls were interrupted, then continue the loop."""
        calls = opened.message.calls
        self._state.iteration = opened.body.iteration
        interrupted = ExecutedMessage(message=opened.message, calls=calls, closed=opened.body.closed, whole=opened.whole, broken_off=True)
        executed = await self._take_up(interrupted, uncommitted, self._parts.recorder.last)
        self._parts.budget.iterations += not opened.again
        self._parts.budget.calls += sum(call.counts for call in uncommitted.values()) - (len(calls) if opened.again else 0)
        ending = self._committer.commit(executed)
        if ending is not None:
            ending = await self._end_or_continue(ending)
        if ending is not None:
            return ending
        self.note_interruption(asks_again=True)
        return await self.run()

    def note_interruption(self, *, asks_again: bool) -> None:
        """Tell the model of calls that a kill ended, and let it continue an answer that was cut off.

        Args:
            asks_again: Whether the model is asked again without a new message of the user.
        """
        history = self._parts.history
        if (history.killed or asks_again) and (note := interruption_note(history, asks_again=asks_again)):
            self.say(note)
            history.killed.clear()

    def say(self, text: str) -> None:
        """Append a message of the user to the conversation and the record."""
        self._parts.recorder.write_message(text)
        self._parts.history.user(text)

    @property
    def cut(self) -> str:
        """The reason why the last answer is incomplete; empty if it is complete."""
        return self._state.cut

    def result(self, ending: Ending) -> RunResult:
        """Return the result of the turn."""
        parts, state = self._parts, self._state
        texts = state.texts
        return RunResult(
            status=RUN_STATUS[ending.status],
            turn_status=ending.status,
            reason=ending.reason,
            text=texts[-1] if texts and ending.status == "completed" else "\n\n".join(filter(None, texts)),
            signals=tuple(state.signals),
            results=tuple(state.results),
            messages=tuple(parts.history.messages),
            spent=parts.budget.spent(),
            run=parts.scope.run,
            conversation=parts.scope.conversation,
            pending=state.pending,
        )

    # Inside

    async def _run_pass(self) -> Ending | None:
        """Run one pass and the calls of its message. Return how the turn ends, or None if it continues."""
        left = self._parts.budget.iterations_left
        message_calls = self._committer.next_message(early=left != 0)
        try:
            result = await self._passes.stream(message_calls, left)
        except BaseException:
            await message_calls.drop("the model's stream failed")
            self._passes.keep_exit_calls(message_calls)
            raise
        if result.status != "function_call":
            await message_calls.drop(result.reason or result.status)
            return await self._passes.commit_answer(result, message_calls)
        try:
            return await self._run_calls(result, message_calls, left)
        except BaseException:
            await message_calls.drop("the run failed")
            raise

    async def _run_calls(self, result: StreamResult, message_calls: MessageCalls, left: int | None) -> Ending | None:
        message = result.message
        assert message is not None
        exits, budget, normal = self._parts.exits, self._parts.budget, True
        if self._has_exits:
            self._state.signals += message_calls.signals_of(result.calls)
            normal = any(exits.meant(call.name) is None for call in result.calls)
        may_run = normal and left != 0
        message_calls.cause = self._parts.recorder.write_answer(result, message, self._state.iteration, executes=may_run)
        if normal and not may_run:
            return await self._end_out_of_iterations(message, message_calls)
        if not normal:
            return self._commit_exit_calls(message)
        executed = ExecutedMessage(message=message, calls=result.calls, closed=result.closed)
        try:
            ends = await message_calls.run_to_end(result.calls, result.closed)
        except asyncio.CancelledError:
            self._committer.commit_cancelled(replace(executed, ends=message_calls.ends))
            raise
        self._state.reported = False
        budget.iterations += 1
        ending = self._committer.commit(replace(executed, ends=ends))
        return None if ending is None else await self._end_or_continue(ending)

    async def _take_up(self, opened: ExecutedMessage, uncommitted: Mapping[int, UncommittedCall], cause: int) -> ExecutedMessage:
        """Run the open calls of a message that was interrupted, or of which calls waited. Return the message with the ends of its calls.

        Args:
            opened: The message without these ends.
            uncommitted: The recorded state of its calls, by position.
            cause: The position of the event that causes the calls to be handed in.
        """
        with self._parts.enrichment:
            message_calls = self._committer.next_message()
            message_calls.cause = cause
            try:
                ends = await message_calls.take_up(opened.calls, opened.closed, uncommitted)  # type: ignore[arg-type]
            except asyncio.CancelledError:
                self._committer.commit_cancelled(replace(opened, ends=message_calls.ends))
                raise
        self._state.signals += message_calls.signals_of(opened.calls)
        return replace(opened, ends=ends)

    def _commit_exit_calls(self, message: AssistantMessage) -> Ending | None:
        """Commit a message with exit calls only.

        The model is asked once whether it has more to say, because an exit call alone does not end the turn.
        """
        parts, state = self._parts, self._state
        parts.history.answer(message)
        if state.reported or parts.settings.after_exit_calls == "end" or parts.budget.why_exhausted() is not None:
            return Ending("completed")
        state.reported = True
        self.say(ask_for_more(call.name for call in message.calls))
        return None

    def _complete(self, ending: Ending) -> Ending:
        """Return `ending`, or `completed` if the model reported and then could not answer or wrote nothing more."""
        if not self._state.reported or ending.status not in _NOTHING_SAID:
            return ending
        return Ending("completed", f"The model reported, and then said nothing more: {ending.reason}")

    async def _end_or_continue(self, ending: Ending) -> Ending | None:
        """Return `ending`, unless a human answered a waiting call while other calls ran. Then run that call at once."""
        pending = self._state.pending
        if pending is None or not self._was_answered(pending):
            return ending
        return await self._hand_in_again(pending)

    async def _hand_in_again(self, pending: PendingCalls) -> Ending | None:
        from callgate.agent.resume_plan import refused_approvals

        parts, message = self._parts, pending.message
        self._state.iteration, self._state.pending = pending.iteration, None
        refused = refused_approvals(pending, parts.engine.approval)
        # Calls that are not refused are reserved once more when they are handed in.
        parts.budget.give_back(len(message.calls) - len(refused))
        cause = parts.recorder.write_resumed_calls(message, pending.closed, pending.iteration)
        waiting = ExecutedMessage(message=message, calls=message.calls, closed=pending.closed, whole=pending.whole)
        ending = self._committer.commit(await self._take_up(waiting, refused, cause))
        return None if ending is None else await self._end_or_continue(ending)

    async def _end_out_of_iterations(self, message: AssistantMessage, message_calls: MessageCalls) -> Ending:
        await message_calls.drop("no iteration is left")
        self._parts.history.answer(message)
        why = "no iteration is left, and the model asked for another round of tools"
        strict = self._parts.settings.rules.failures == "strict"
        return Ending("tool_execution_error" if strict else "budget_exhausted", why)

    def _was_answered(self, pending: PendingCalls) -> bool:
        questions = [self._parts.engine.approval(approval.approval_id) for approval in pending.approvals]
        return any(question is not None and question.allowed is not None for question in questions)
