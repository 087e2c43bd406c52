"""Wait until a human has answered a question, in this process or through the inbox.

The run's lease is acquired first, because only the engine that holds it receives the answers of other processes. Answers
nothing, and submits no call.
"""

from __future__ import annotations

import asyncio
from contextlib import AbstractContextManager
from typing import Protocol

from callgate._clock import Clock
from callgate._pipeline.approval_answers import load_question
from callgate._run_state.approvals import Approvals, Question
from callgate._run_state.recorder import Recorder
from callgate._run_state.settlements import OpensRuns
from callgate.calls import Scope

__all__ = ["answered_question"]


class WorksOnRuns(Protocol):
    """Keeps the leases of runs, and delivers the messages that wait for them."""

    async def open(self, scope: Scope) -> None: ...

    def at_work(self, run: str) -> AbstractContextManager[object]: ...


async def answered_question(
    approval_id: str, timeout_s: float | None, loads: OpensRuns, runs: WorksOnRuns, approvals: Approvals, recorder: Recorder, clock: Clock
) -> Question | None:
    """Return the question once it is answered; None if it expires, or `timeout_s` passes, before that.

    Args:
        loads: Loads the question, if another process asked it.

    Raises:
        UsageError: No such question is open, or the engine is closed; or, as `RunHeld`, another engine works on its run.
    """
    approval_id = await load_question(approval_id, loads, approvals, recorder)
    question = approvals.known(approval_id)
    if question.allowed is not None:
        return question
    until = None if timeout_s is None else clock.monotonic() + timeout_s
    with runs.at_work(question.run):  # an idle run could be taken by another engine, which would get its messages
        while True:
            await runs.open(Scope(run=question.run))
            with approvals.watched(question.run) as changed:
                question = approvals.find(approval_id) or question
                if question.allowed is not None:
                    return question
                left_s = (question.expires_at - clock.wall_ns()) / 1e9
                if until is not None:
                    left_s = min(left_s, until - clock.monotonic())
                if left_s <= 0 or not await _happens(changed, left_s, clock):
                    return None


async def _happens(event: asyncio.Event, within_s: float, clock: Clock) -> bool:
    """Wait for the event. Return whether it was set in time."""
    both = asyncio.ensure_future(event.wait()), asyncio.ensure_future(clock.sleep(within_s))
    try:
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for one in both:
            one.cancel()
    return event.is_set()
