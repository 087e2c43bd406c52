"""Runs of an agent that go on: one that waited for a human, or one whose process ended.

The run is held first, so that nobody else can take it up, then its conversation; only then is its record read. Where it goes on is in
`resume`; how a run goes is in `runs`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from callgate._pipeline.writer import off_loop
from callgate._turn_queue import QueuedTurn
from callgate.agent.events import AgentEvent
from callgate.agent.history import History
from callgate.agent.parts import Start
from callgate.agent.results import Pending, RunResult
from callgate.agent.runs import Runs
from callgate.calls import Scope
from callgate.errors import UsageError

if TYPE_CHECKING:  # loaded when first used: most agents need none of these
    from callgate.agent.recalled import Recalled

__all__ = ["Resuming"]

_OVER = frozenset({"completed", "follow_up_interrupt"})
"""Ends of a turn after which there is nothing to go on with: the task is done, or another one took its place."""


class Resuming(Runs):
    """The runs of one agent, also those that were begun before."""

    async def _take_up(self, run: str, extra: object, on_event: Callable[[AgentEvent], None] | None) -> RunResult:
        """Go on with a run that the record has."""
        with self.engine.runs.at_work(run, alone=True):
            await self.engine.runs.open(Scope(run=run))
            recalled = await self._recalled(run)
            async with self._turn(recalled.began.scope.conversation) as place:
                return await self._go_on(recalled, place, extra, on_event)

    async def _take_up_result(self, run: RunResult, extra: object, on_event: Callable[[AgentEvent], None] | None) -> RunResult:
        """Go on with a run that waits for a human, from what it came to here."""
        pending = run.pending
        if pending is None:
            raise UsageError(f"Run '{run.run}' does not wait for anybody: it ended '{run.turn_status}'.")
        extra = pending.scope.extra if extra is None else extra
        with self.engine.runs.at_work(run.run, run.conversation, alone=True):
            async with self._turn(run.conversation) as place:
                await self.engine.runs.open(Scope(run=run.run))
                if self._has_gone_on(run):  # what it waited for may have been done by now
                    return await self._go_on(await self._recalled(run.run), place, extra, on_event)
                return await self._hand_in_again(run, pending, place, extra, on_event)

    async def _hand_in_again(
        self, run: RunResult, pending: Pending, place: QueuedTurn, extra: object, on_event: Callable[[AgentEvent], None] | None
    ) -> RunResult:
        from callgate.agent.resume import GoesOn

        scope = replace(pending.scope, run=run.run, conversation=run.conversation, extra=extra)
        self.engine.runs.check_extra(scope)
        return await self._run(
            Start(
                place=place,
                history=self._remembered(run.conversation) or History(run.messages),
                scope=scope,
                on_event=on_event,
                exposure=self._planner().resumed(pending.exposed, leaves_trace=run.conversation != run.run),
                goes_on=GoesOn.of(run, pending),
            )
        )

    def _has_gone_on(self, run: RunResult) -> bool:
        """Whether the run was resumed after it came to this."""
        events = self.engine.journal.read(run=run.run, after=run.recorded) if run.recorded else ()
        return any(event.kind == "run.resumed" for event in events)

    async def _recalled(self, run: str) -> Recalled:
        from callgate.agent.recall import recall

        recalled = await off_loop(self.engine.journal, partial(recall, self.engine.journal, self.engine.blobs, run))
        if recalled.ended in _OVER:
            raise UsageError(f"Run '{run[:80]}' is over: it ended '{recalled.ended}'. Start a new one.")
        recalled.history.recorded = recalled.last
        return recalled

    async def _go_on(self, run: Recalled, place: QueuedTurn, extra: object, on_event: Callable[[AgentEvent], None] | None) -> RunResult:
        """Go on where the record has the run."""
        from callgate.agent.resume import GoesOn, nobody_takes_up

        began = run.began
        scope = replace(began.scope, extra=extra, provider=self.model.provider)
        self.engine.runs.check_extra(scope)
        trace = began.phase == "deliberate" and scope.conversation != run.run
        await self.engine.runs.open(scope)
        for unfinished in () if place.drained else nobody_takes_up(run):
            self.engine.runs.abandon(unfinished, scope, "the process that ran it ended, and its run was resumed without it")
        history = self._later(scope.conversation, run) if trace else run.history
        if trace and not place.drained:
            self._remember(scope.conversation, history)
        start = Start(
            place=place,
            history=history,
            scope=scope,
            on_event=on_event,
            exposure=self._planner().resumed(began.exposed, leaves_trace=trace),
            phase=began.phase,
            goes_on=GoesOn.recorded(run, self._exit_calls(), self.settings.prices),
        )
        with self.engine.runs.at_work(run.run, scope.conversation):
            return await self._run(start)

    def _later(self, conversation: str, recalled: Recalled) -> History:
        """The conversation as this agent remembers it, if it has gone on from where the run stands; else as the record has it."""
        remembered, own = self._remembered(conversation), recalled.history
        if remembered is not None and remembered.recorded > recalled.last and remembered.messages[: len(own.messages)] == own.messages:
            return remembered
        return own
