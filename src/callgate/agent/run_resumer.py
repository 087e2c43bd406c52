"""Resume runs of an agent: one that waited for a human, one whose process ended, or one that ended before its task was done.

The run's lease is acquired first, so that no other engine can resume the run; then its turn of the conversation; only then is its record
read. `resume_plan` decides how the run continues, `run_executor` executes it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from callgate._conversation_queue import QueuedTurn
from callgate._run_state.recorder import off_loop
from callgate.agent.agent_config import AgentConfig
from callgate.agent.history import History, HistoryCache
from callgate.agent.run_events import AgentEvent
from callgate.agent.run_executor import RunExecutor
from callgate.agent.run_result import PendingCalls, RunResult
from callgate.agent.run_starter import AgentRuns
from callgate.agent.turn_factory import TurnFactory, TurnStart
from callgate.calls import Scope
from callgate.errors import UsageError

if TYPE_CHECKING:  # loaded when first used: most agents need none of these
    from callgate.agent.recorded_run import LoadedRun

__all__ = ["RunResumer"]

_OVER = frozenset({"completed", "follow_up_interrupt"})
"""Statuses of a turn that cannot be resumed: the task is done, or another one replaced it."""


class RunResumer:
    """Resumes runs of one agent.

    Args:
        config: The agent's configuration.
        turns: Plans the tools that a turn offers.
        runs: Waits for the conversation's turn.
        executor: Executes the run.
        histories: The conversations that the agent remembers.
    """

    def __init__(self, config: AgentConfig, turns: TurnFactory, runs: AgentRuns, executor: RunExecutor, histories: HistoryCache) -> None:
        self._config = config
        self._engine = config.engine
        self._turns = turns
        self._runs = runs
        self._executor = executor
        self._histories = histories

    async def resume_recorded(self, run: str, extra: object, on_event: Callable[[AgentEvent], None] | None) -> RunResult:
        """Resume a run from its record, by its id."""
        with self._engine.runs.at_work(run, alone=True):
            await self._engine.runs.open(Scope(run=run))
            loaded = await self._load(run)
            async with self._runs.turn(loaded.began.scope.conversation) as place:
                return await self._continue(loaded, place, extra, on_event)

    async def resume_waiting(self, run: RunResult, extra: object, on_event: Callable[[AgentEvent], None] | None) -> RunResult:
        """Resume a run that waits for a human, from the result that it had in this process."""
        pending = run.pending
        if pending is None:
            raise UsageError(f"Run '{run.run}' does not wait for anybody: it ended '{run.turn_status}'.")
        extra = pending.scope.extra if extra is None else extra
        with self._engine.runs.at_work(run.run, run.conversation, alone=True):
            async with self._runs.turn(run.conversation) as place:
                await self._engine.runs.open(Scope(run=run.run))
                if self._was_resumed_since(run):  # then the waiting calls may have been run already
                    return await self._continue(await self._load(run.run), place, extra, on_event)
                return await self._hand_in_again(run, pending, place, extra, on_event)

    async def _hand_in_again(
        self, run: RunResult, pending: PendingCalls, place: QueuedTurn, extra: object, on_event: Callable[[AgentEvent], None] | None
    ) -> RunResult:
        from callgate.agent.missing_tools import refuse_missing_tools
        from callgate.agent.resume_plan import ResumePlan

        await refuse_missing_tools(self._engine, pending.approvals)
        scope = replace(pending.scope, run=run.run, conversation=run.conversation, extra=extra)
        self._engine.runs.check_extra(scope)
        kept = None if pending.reflects else self._histories.get(run.conversation)
        return await self._executor.run(
            TurnStart(
                place=place,
                history=kept or History(run.messages),
                scope=scope,
                on_event=on_event,
                exposure=self._turns.restore_exposure(pending.exposed, leaves_trace=not pending.reflects and run.conversation != run.run),
                phase="reflect" if pending.reflects else "deliberate",
                plan=ResumePlan.from_result(run, pending),
            )
        )

    def _was_resumed_since(self, run: RunResult) -> bool:
        """Return whether the run was resumed after this result."""
        events = self._engine.journal.read(run=run.run, after=run.recorded) if run.recorded else ()
        return any(event.kind == "run.resumed" for event in events)

    async def _load(self, run: str) -> LoadedRun:
        from callgate.agent.recorded_run import load_run

        loaded = await off_loop(self._engine.journal, partial(load_run, self._engine.journal, self._engine.blobs, run))
        if loaded.ended in _OVER:
            raise UsageError(f"Run '{run[:80]}' is over: it ended '{loaded.ended}'. Start a new one.")
        return loaded

    async def _continue(self, run: LoadedRun, place: QueuedTurn, extra: object, on_event: Callable[[AgentEvent], None] | None) -> RunResult:
        """Resume the run from its recorded state."""
        from callgate.agent.missing_tools import refuse_missing_tools, refuse_tools_of_stopped_servers
        from callgate.agent.resume_plan import ResumePlan, orphaned_calls

        if run.pending is not None:
            await refuse_missing_tools(self._engine, run.pending.approvals)
        if run.open is not None:
            await refuse_tools_of_stopped_servers(self._engine, [uid for uid in run.open.calls if uid in run.unfinished])
        began = run.began
        scope = replace(began.scope, extra=extra, provider=self._config.model.provider)
        self._engine.runs.check_extra(scope)
        trace = began.phase == "deliberate" and scope.conversation != run.run
        await self._engine.runs.open(scope)
        for unfinished in () if place.drained else orphaned_calls(run):
            self._engine.runs.abandon(unfinished, scope, "the process that ran it ended, and its run was resumed without it")
        history = self._choose_history(scope.conversation, run) if trace else run.history
        if trace and not place.drained:
            self._histories.keep(scope.conversation, history)
        start = TurnStart(
            place=place,
            history=history,
            scope=scope,
            on_event=on_event,
            exposure=self._turns.restore_exposure(began.exposed, leaves_trace=trace),
            phase=began.phase,
            plan=ResumePlan.from_record(run, self._turns.make_exit_tools(), self._config.settings.prices),
        )
        with self._engine.runs.at_work(run.run, scope.conversation):
            return await self._executor.run(start)

    def _choose_history(self, conversation: str, loaded: LoadedRun) -> History:
        """Return the conversation that this agent remembers if it continues the recorded one; else the recorded one.

        The remembered one continues it if it is recorded further and begins with the same messages.
        """
        remembered, own = self._histories.get(conversation), loaded.history
        if remembered is not None and remembered.recorded > loaded.last and remembered.messages[: len(own.messages)] == own.messages:
            return remembered
        return own
