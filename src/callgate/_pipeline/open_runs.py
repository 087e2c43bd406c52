"""Open runs for calls, and let other engines take idle runs, so that any engine of a journal may serve the next call of a run.

A run that the host named is opened by the first call in it. When it has had no call for a moment, its lease is offered: another engine may
take it, and until one does, this engine holds it and receives the messages for the run. The next call here acquires the lease again, and
reads the run anew only if another engine has held it since. Events that were made without that are refused by the journal. An engine that
finds a run held waits a little longer than that moment. Knows no route and no tool.
"""

from __future__ import annotations

import asyncio
from typing import Final

from msgspec import Struct

from callgate._clock import Clock
from callgate._engine_limits import IDLE_RUN_S
from callgate._pipeline.engine_options import EngineContext
from callgate._pipeline.known_runs import KnownRuns
from callgate._run_state.event_bodies import ScopeFacts
from callgate._run_state.idempotency import RunState
from callgate.calls import Scope
from callgate.errors import RunHeld
from callgate.protocols import OffersLeases

__all__ = ["NO_SCOPE", "LatestScope", "OpenRuns"]

_WAIT_S: Final = 3 * IDLE_RUN_S
"""Seconds to wait for a run that another engine holds. An idle run is offered within twice `IDLE_RUN_S`."""
_FIRST_LOOK_S: Final = 0.01
_LONGEST_LOOK_S: Final = 0.1


NO_SCOPE: Final = Scope()
"""A scope that no caller has: it is compared by identity."""


class LatestScope(Struct):
    """The scope that was checked last, and the values computed from it. Usually all calls of a turn share a scope."""

    scope: Scope
    """As the host gave it; initially one that no caller has."""
    placed: Scope
    """With its run."""
    facts: ScopeFacts
    opened: Scope = NO_SCOPE
    """The scope, once its run is open; before that, and when another engine may take the run, `NO_SCOPE`."""


class OpenRuns:
    """Opens the runs of one engine, and offers the idle ones to others.

    Args:
        own: The engine's own run, which is never offered.
        latest: The scope that was checked last. `opened` is unset when its run is offered.
    """

    def __init__(self, context: EngineContext, known: KnownRuns, own: str, latest: LatestScope) -> None:
        journal = context.journal
        self._journal = journal if journal.shared and isinstance(journal, OffersLeases) else None
        self._clock: Clock = context.clock
        self._known = known
        self._own = own
        self._latest = latest
        self._last_calls: dict[str, int] = {}
        """The number of calls that each watched run had when it was last examined."""
        self._timer: asyncio.TimerHandle | None = None

    async def open(self, run: str, *, new: bool = False) -> None:
        """Acquire the run's lease and load its state, waiting a moment for an engine that holds the lease of an idle run.

        Args:
            new: Whether no other engine can know the run, and it has no record.

        Raises:
            RunHeld: Another engine works on the run.
        """
        until, look_s = self._clock.monotonic() + _WAIT_S, _FIRST_LOOK_S
        while True:
            try:
                await self._known.open(run, new=new)
            except RunHeld:
                if self._clock.monotonic() >= until:
                    raise
                await asyncio.sleep(look_s)
                look_s = min(2 * look_s, _LONGEST_LOOK_S)
            else:
                break
        if self._journal is not None and run != self._own:
            self._last_calls.setdefault(run, -1)
            if self._timer is None:
                self._timer = asyncio.get_running_loop().call_later(IDLE_RUN_S, self._offer_idle, self._journal)

    def _offer_idle(self, journal: OffersLeases) -> None:
        """Offer the runs that have had no call since they were last examined."""
        for run, calls in tuple(self._last_calls.items()):
            state = self._known.by_run.get(run)
            if state is None:  # another engine has taken it, or it was dropped
                del self._last_calls[run]
            elif self._known.is_busy(run) or state.counter != calls or _only_here(state):
                self._last_calls[run] = state.counter
            else:
                del self._last_calls[run]
                if self._latest.placed.run == run:
                    self._latest.opened = NO_SCOPE
                journal.offer_lease(run)
        again = bool(self._last_calls)
        self._timer = asyncio.get_running_loop().call_later(IDLE_RUN_S, self._offer_idle, journal) if again else None


def _only_here(state: RunState) -> bool:
    """Return whether the run has an unknown outcome of this engine, of which the record does not say whether its code has ended."""
    return any(doubt.origin is None for doubt in state.uncertain.values())
