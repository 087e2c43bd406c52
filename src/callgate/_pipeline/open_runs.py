"""Open runs for calls, and let other engines take idle runs, so that any engine of a journal may serve the next call of a run.

A run that the host named is opened by the first call in it. When it has had no call for a moment, its lease is offered: another engine may
take it, and until one does, this engine holds it and receives the messages for the run. The next call here acquires the lease again, and
reads the run anew only if another engine has held it since. Events that were made without that are refused by the journal. An engine that
finds a run held waits a little longer than that moment. Knows no route and no tool.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from operator import attrgetter
from typing import Final

from msgspec import Struct

from callgate._clock import Clock
from callgate._engine_limits import IDLE_RUN_S
from callgate._pipeline.engine_context import EngineContext
from callgate._pipeline.run_states import RunStates
from callgate._run_state.event_bodies import ScopeFacts, decode_result
from callgate._run_state.recorder import off_loop
from callgate._run_state.run_recovery import unfinished_calls
from callgate._run_state.run_state import RunState
from callgate._runners.abandoned_code import AbandonedCalls
from callgate.calls import Scope
from callgate.errors import RunHeld
from callgate.protocols import OffersLeases

__all__ = ["NO_SCOPE", "LatestScope", "OpenRuns"]

_WAIT_S: Final = 3 * IDLE_RUN_S
"""Seconds to wait for a run that another engine holds. An idle run is offered within twice `IDLE_RUN_S`."""
_FIRST_LOOK_S: Final = 0.01
_LONGEST_LOOK_S: Final = 0.1
_LATEST_EVENTS: Final = 200
"""How many events of a held run are searched for the call that keeps it at its engine."""


NO_SCOPE: Final = Scope()
"""A scope that no caller has: it is compared by identity."""


class LatestScope(Struct):
    """The scope that was checked last, and the values computed from it. Usually all calls of a turn share a scope."""

    scope: Scope
    """As the host gave it; initially one that no caller has."""
    with_run: Scope
    """The same scope with its run: its own, or else the engine's."""
    facts: ScopeFacts
    opened: Scope = NO_SCOPE
    """The scope, once its run is open; before that, and when another engine may take the run, `NO_SCOPE`."""


class OpenRuns:
    """Opens the runs of one engine, and offers the idle ones to others.

    Args:
        own: The engine's own run, which is never offered.
        latest: The scope that was checked last. `opened` is unset when its run is offered.
        behind: The calls of this engine that have ended while their code still runs.
        deliver: Carries out the messages that wait for a run. Called when its state is known.
    """

    def __init__(
        self,
        context: EngineContext,
        run_states: RunStates,
        own: str,
        latest: LatestScope,
        behind: AbandonedCalls,
        deliver: Callable[[str], None],
    ) -> None:
        journal = context.journal
        self._events = journal
        self._journal = journal if journal.shared and isinstance(journal, OffersLeases) else None
        self._clock: Clock = context.clock
        self._run_states = run_states
        self._own = own
        self._latest = latest
        self._behind = behind
        self._deliver = deliver
        self._last_calls: dict[str, int] = {}
        """The number of calls that each watched run had when it was last examined."""
        self._timer: asyncio.TimerHandle | None = None

    async def open(self, run: str, *, new: bool = False) -> None:
        """Acquire the run's lease, load its state, and carry out the messages that wait for it.

        Waits a moment for an engine that holds the lease of an idle run.

        Args:
            new: Whether no other engine can know the run, and it has no record.

        Raises:
            RunHeld: Another engine works on the run.
        """
        until, look_s = self._clock.monotonic() + _WAIT_S, _FIRST_LOOK_S
        while True:
            try:
                await self._run_states.open(run, new=new)
            except RunHeld as held:
                if self._clock.monotonic() >= until:
                    raise await self._explain(held, run) from held
                await asyncio.sleep(look_s)
                look_s = min(2 * look_s, _LONGEST_LOOK_S)
            else:
                break
        if self._journal is not None and run != self._own:
            self._last_calls.setdefault(run, -1)
            if self._timer is None:
                self._timer = asyncio.get_running_loop().call_later(IDLE_RUN_S, self._offer_idle, self._journal)
        self._deliver(run)

    async def _explain(self, held: RunHeld, run: str) -> RunHeld:
        """Return the error with the call that keeps the run at its engine, if the latest events tell."""
        latest = await off_loop(self._events, partial(self._events.read, run=run, limit=_LATEST_EVENTS, newest_first=True))
        events = sorted(latest, key=attrgetter("position"))
        going = [f"{call.name or 'A call'} ({call.uid}) has not ended there" for call in unfinished_calls(events).values()]
        settled = {event.call for event in events if event.kind == "fact.settled"}
        unknown = [
            f"Code of {result.name} ({event.call}), whose outcome is unknown, may still run there"
            for event in events
            if event.kind == "call.completed" and event.call not in settled and (result := decode_result(event.body)).status == "unknown"
        ]
        why = going or unknown
        return RunHeld(f"{held} {why[-1]}.") if why else held

    def _offer_idle(self, journal: OffersLeases) -> None:
        """Offer the runs that have had no call since they were last examined."""
        for run, calls in tuple(self._last_calls.items()):
            state = self._run_states.by_run.get(run)
            if state is None:  # another engine has taken it, or it was dropped
                del self._last_calls[run]
            elif self._run_states.is_busy(run) or state.counter != calls or self._runs_on(state):
                self._last_calls[run] = state.counter
            else:
                del self._last_calls[run]
                if self._latest.with_run.run == run:
                    self._latest.opened = NO_SCOPE
                self._run_states.let_go(run)
                journal.offer_lease(run)
        again = bool(self._last_calls)
        self._timer = asyncio.get_running_loop().call_later(IDLE_RUN_S, self._offer_idle, journal) if again else None

    def _runs_on(self, state: RunState) -> bool:
        """Return whether code of a call with an unknown outcome still runs in this process."""
        return any(uid in self._behind for uid in state.in_doubt.by_uid())
