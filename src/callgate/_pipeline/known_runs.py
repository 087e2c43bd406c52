"""What one engine knows of each run: read from the journal the first time, kept while the run is its own, forgotten when it is idle.

Beside `holding`, which knows who is at work on a run. Knows no stage and no tool.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import partial
from itertools import islice

from callgate._pipeline.again import RunState
from callgate._pipeline.ground import Ground
from callgate._pipeline.reading import Reading
from callgate._pipeline.record import Reason
from callgate._pipeline.writer import off_loop
from callgate.events import Draft

__all__ = ["KnownRuns"]

_MOST_RUNS = 1_000
_LOOKED_AT = 8
"""Runs that are looked at when there are more: some of them may be needed."""
_PIECE = 1_000
"""Events of a record that are read at once: some milliseconds."""


class KnownRuns:
    """Runs by id."""

    def __init__(self, ground: Ground) -> None:
        self._writer = ground.writer
        self._approvals = ground.approvals
        self._remember = ground.limits.remembered_calls
        self._runs: OrderedDict[str, RunState] = OrderedDict()
        self._opening = asyncio.Lock()
        self.is_busy: Callable[[str], bool] = self._runs.__contains__
        """Whether a run is being worked on; the engine says so."""
        self._counts: dict[str, dict[str, int]] = {}
        """Dangerous calls started by tick, of runs that are read again."""

    def state(self, run: str) -> RunState:
        """What is known of a run; read from the journal the first time."""
        state = self._runs.get(run)
        if state is None:
            reading = Reading(run, remember=self._remember)
            reading.take(self._writer.journal.read(run=run))
            state = self._keep(run, reading)
        return state

    async def open(self, run: str, *, new: bool = False) -> None:
        """Have a run to this engine alone, and read what is known of it: piece by piece, for a long record must not hold up the loop.

        Args:
            new: Nobody else can know the run, and it has no record.

        Raises:
            RunHeld: Another engine works on it.
        """
        if new:
            self._runs.setdefault(run, RunState(run, remember=self._remember))
            return
        async with self._opening:
            if await self._writer.journal.hold(run):
                self._approvals.forget(run)
                self._set_aside(run)
            reading, after = Reading(run, remember=self._remember), 0
            while run not in self._runs:
                piece = partial(self._writer.journal.read, run=run, after=after, limit=_PIECE)
                events = list(await off_loop(self._writer.journal, piece))
                reading.take(events)
                if len(events) < _PIECE:
                    self._keep(run, reading)
                    return
                after = events[-1].position
                await asyncio.sleep(0)

    def _set_aside(self, run: str) -> None:
        """Others may have written since this engine knew the run: all but its own counts is read again."""
        state = self._runs.pop(run, None)
        if state is not None and state.dangerous:
            self._counts[run] = state.dangerous

    def knows(self, run: str) -> bool:
        return run in self._runs

    def lost(self, run: str) -> None:
        """Somebody else has the run now: nothing that is known of it here counts any more."""
        self._set_aside(run)
        self._approvals.forget(run)

    def _keep(self, run: str, reading: Reading) -> RunState:
        state = self._runs[run] = reading.state()
        state.dangerous.update(self._counts.pop(run, {}))
        self._approvals.restore(reading.questions.values())
        self._forget_idle_runs()
        return state

    def _forget_idle_runs(self) -> None:
        """Beyond a bound, drop the oldest runs that nothing depends on; the journal can give them back.

        Looks at a few runs each time, and puts off those that are needed: so a new run costs the same however many there are.
        """
        for run in list(islice(self._runs, _LOOKED_AT)) if len(self._runs) > _MOST_RUNS else ():
            if not self._runs[run].idle or self.is_busy(run):
                self._runs.move_to_end(run)
                continue
            del self._runs[run]
            self._writer.journal.let_go(run)
            if len(self._runs) <= _MOST_RUNS:
                return

    def settle(self, uid: str, *, happened: bool, why: str, details: Mapping[str, object] | None = None) -> int | None:
        """Record that a call in doubt was settled; gives the event's position, None where the call was not in doubt."""
        state = self._runs.get(str(uid).rsplit("/", 2)[0])
        if state is None or not state.is_in_doubt(uid):
            return None
        body = Reason(reason=why, status="happened" if happened else "not_happened", details=details)
        position = self._writer.write(Draft(kind="fact.settled", run=state.run, body=body, call=uid))
        state.settle(uid, happened=happened)
        return position

    def under_way(self, run: str) -> bool:
        """Whether a call of the run is."""
        state = self._runs.get(run)
        return state is not None and state.under_way > 0
