"""The questions of one engine to humans, for the engine's host: answer one, look one up, wait until one is answered.

Whichever engine holds a question's run receives the answers of other processes. To wait, this engine acquires the lease if it can; while it
only waits, the lease is offered as that of any idle run, and another engine may take it. Its answer is then read from the record. If that
engine ends, the lease is acquired again. Submits no call.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from typing import Final

from msgspec.structs import replace

from callgate._pipeline.approval_answers import as_approval, convert_answer, record_answer
from callgate._pipeline.call_preparation import CallPreparation
from callgate._pipeline.engine_context import EngineContext
from callgate._pipeline.engine_runs import EngineRuns
from callgate._pipeline.open_runs import OpenRuns
from callgate._pipeline.recorded_questions import open_question, question_with_answer
from callgate._pipeline.run_states import RunStates
from callgate._run_state.approvals import Answer, Question
from callgate._run_state.event_bodies import approval_id_of
from callgate._run_state.recorder import off_loop
from callgate.calls import Approval, Scope
from callgate.errors import RunHeld

__all__ = ["EngineQuestions"]

_LOOK_S: Final = 0.5
"""Seconds between two looks at the record of a run that another engine may hold."""
_LOOKS: Final = 10
"""How many looks at the record to take before the lease is acquired again."""


class EngineQuestions:
    """The questions of one engine to humans, for the engine's host.

    Args:
        runs: Acquires a run to wait in, if the engine is open.
        preparation: Has the setting whether arguments are converted; a tool's own setting takes precedence.
    """

    def __init__(
        self, context: EngineContext, runs: EngineRuns, open_runs: OpenRuns, run_states: RunStates, preparation: CallPreparation
    ) -> None:
        self._approvals = context.approvals
        self._clock = context.clock
        self._journal = context.journal
        self._recorder = context.recorder
        self._tools = context.tools
        self._runs = runs
        self._open_runs = open_runs
        self._run_states = run_states
        self._preparation = preparation

    # Answer

    async def answer(self, approval_id: str, answer: Answer) -> int:
        """Answer a question, and record the answer.

        Other arguments are converted as the model's are: the answer is about the values that the tool gets.

        Returns:
            The position of the event; if the same answer was given before, the position of that event.

        Raises:
            UsageError: No such question is open, or its tool does not accept the arguments. The subclass `RunHeld` means that another
                engine works on the run.
        """
        approval_id = await self._load(approval_id)
        if answer.arguments and self._approvals.find(approval_id) is not None:
            asked = await off_loop(self._journal, partial(self._journal.read, call=approval_id))
            answer = convert_answer(asked, answer, self._tools, coerce=self._preparation.settings.coerce)
        question = self._approvals.find(approval_id)
        if question is None or not question.is_answered_with(answer):
            question = self._approvals.get_answerable(approval_id, allow=answer.allow)
        elif answer.told:
            answer = replace(answer, by=question.by, reason=question.reason)  # the first stays on record
        else:
            return question.answered_at
        return record_answer(self._recorder, self._approvals, question, answer)

    async def _load(self, approval_id: str) -> str:
        """Acquire the lease of a question's run, load the question from the run's record, and return its id.

        Args:
            approval_id: The id of the question, or the uid of a call that was handed in again and waits for its answer.
        """
        question = self._approvals.find(approval_id)
        if question is not None:
            await self._open_runs.open(question.run)
        else:
            for event in await off_loop(self._journal, partial(self._journal.read, call=approval_id)):
                if event.kind == "call.suspended":
                    await self._open_runs.open(event.run)
                    return approval_id_of(event)
        return approval_id

    # Look up

    def find(self, approval_id: str) -> Approval | None:
        """Return a question with its answer; None if it was never asked, is used up, or has expired. May read the journal."""
        question = self._approvals.find(approval_id)
        if question is None and self._run_states.knows(str(approval_id).rsplit("/", 2)[0]):
            return None  # a question of this engine's own that could not be recorded may still be in the journal
        if (question is None or question.allowed is None) and self._journal.shared:
            question = open_question(self._journal, approval_id, self._clock.wall_ns())
        return None if question is None else as_approval(question)

    # Wait

    async def wait(self, approval_id: str, timeout_s: float | None) -> Approval | None:
        """Return a question once it is answered; None if it expires, or `timeout_s` passes, before that.

        Raises:
            UsageError: No such question is open, or the engine is closed.
        """
        clock, journal, approvals = self._clock, self._journal, self._approvals
        until = None if timeout_s is None else clock.monotonic() + timeout_s
        waited = await self._load_to_wait(approval_id)
        looks = 0
        while waited.allowed is None:
            with approvals.watch(waited.run) as changed:
                waited = approvals.find(waited.approval_id) or waited
                if waited.allowed is None and journal.shared:
                    waited = await self._stored(waited.approval_id) or approvals.get(waited.approval_id)
                left_s = (waited.expires_at - clock.wall_ns()) / 1e9
                if until is not None:
                    left_s = min(left_s, until - clock.monotonic())
                if waited.closed:
                    return as_approval(approvals.get(waited.approval_id))
                if waited.allowed is not None or left_s <= 0:
                    break
                looks = 0 if await self._happens(changed, left_s) else looks + 1
            if looks % _LOOKS == 0:
                await self._acquire(waited.run)
        return None if waited.allowed is None else as_approval(waited)

    async def _load_to_wait(self, approval_id: str) -> Question:
        """Return a question that is not used up, with the lease of its run if no other engine holds that."""
        known = self._approvals.find(approval_id) or await self._stored(approval_id)
        if known is None:
            return self._approvals.get(approval_id)
        return self._approvals.get(known.approval_id) if await self._acquire(known.run) else known

    async def _stored(self, approval_id: str) -> Question | None:
        return await off_loop(self._journal, partial(question_with_answer, self._journal, approval_id))

    async def _acquire(self, run: str) -> bool:
        """Acquire the lease of a run, and return whether no other engine holds it."""
        with suppress(RunHeld):
            await self._runs.open(Scope(run=run))
            return True
        return False

    async def _happens(self, event: asyncio.Event, within_s: float) -> bool:
        """Wait for the event, for at most `within_s` by the engine's clock, or until the record has to be looked at again.

        Return whether it was set.
        """
        both = asyncio.ensure_future(event.wait()), asyncio.ensure_future(self._clock.sleep(within_s))
        try:
            await asyncio.wait(both, timeout=_LOOK_S if self._journal.shared else None, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in both:
                one.cancel()
        return event.is_set()
