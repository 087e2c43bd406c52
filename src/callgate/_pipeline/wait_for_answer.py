"""Wait until a human has answered a question, in this process or in another one, whichever engine holds the question's run.

The engine that holds the run receives the answers of other processes. This engine acquires the lease if it can; while it only waits, the
lease is offered as that of any idle run, and another engine may take it. Its answer is then read from the record. If that engine ends, the
lease is acquired again. Answers nothing, and submits no call.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from typing import Final, Protocol

from callgate._clock import Clock
from callgate._pipeline.recorded_questions import question_with_answer
from callgate._run_state.approvals import Approvals, Question
from callgate._run_state.recorder import off_loop
from callgate.calls import Scope
from callgate.errors import RunHeld
from callgate.protocols import Journal

__all__ = ["wait_until_answered"]

_LOOK_S: Final = 0.5
"""Seconds between two looks at the record of a run that another engine may hold."""
_LOOKS: Final = 10
"""How many looks at the record to take before the lease is acquired again."""


class AcquiresRuns(Protocol):
    """Acquires the leases of runs, and delivers the messages that wait for them."""

    async def open(self, scope: Scope) -> None: ...


async def wait_until_answered(
    approval_id: str, timeout_s: float | None, runs: AcquiresRuns, approvals: Approvals, journal: Journal, clock: Clock
) -> Question | None:
    """Return the question once it is answered; None if it expires, or `timeout_s` passes, before that.

    Raises:
        UsageError: No such question is open, or the engine is closed.
    """
    until = None if timeout_s is None else clock.monotonic() + timeout_s
    waited = await _load(approval_id, runs, approvals, journal)
    looks = 0
    while waited.allowed is None:
        with approvals.watch(waited.run) as changed:
            waited = approvals.find(waited.approval_id) or waited
            if waited.allowed is None and journal.shared:
                stored = await off_loop(journal, partial(question_with_answer, journal, waited.approval_id))
                waited = stored or approvals.get(waited.approval_id)
            left_s = (waited.expires_at - clock.wall_ns()) / 1e9
            if until is not None:
                left_s = min(left_s, until - clock.monotonic())
            if waited.closed:
                return approvals.get(waited.approval_id)
            if waited.allowed is not None or left_s <= 0:
                break
            looks = 0 if await _happens(changed, left_s, clock, _LOOK_S if journal.shared else None) else looks + 1
        if looks % _LOOKS == 0:
            await _acquire(waited.run, runs)
    return None if waited.allowed is None else waited


async def _load(approval_id: str, runs: AcquiresRuns, approvals: Approvals, journal: Journal) -> Question:
    """Return a question that is not used up, with the lease of its run if no other engine holds that."""
    known = approvals.find(approval_id) or await off_loop(journal, partial(question_with_answer, journal, approval_id))
    if known is None:
        return approvals.get(approval_id)
    return approvals.get(known.approval_id) if await _acquire(known.run, runs) else known


async def _acquire(run: str, runs: AcquiresRuns) -> bool:
    """Acquire the lease of a run, and return whether no other engine holds it."""
    with suppress(RunHeld):
        await runs.open(Scope(run=run))
        return True
    return False


async def _happens(event: asyncio.Event, within_s: float, clock: Clock, look_s: float | None) -> bool:
    """Wait for the event, for at most `within_s` by the engine's clock and `look_s`. Return whether it was set."""
    both = asyncio.ensure_future(event.wait()), asyncio.ensure_future(clock.sleep(within_s))
    try:
        await asyncio.wait(both, timeout=look_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for one in both:
            one.cancel()
    return event.is_set()
