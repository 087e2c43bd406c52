"""The state of the runs of one engine, read from the journal when a run is opened.

`Work` is the engine's current work on a run, such as that of an agent. Knows no route, no tool, and no messages of other processes.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import islice

from msgspec import Struct, field

from callgate._pipeline.engine_context import EngineContext
from callgate._run_state.calls_in_doubt import UncertainCall
from callgate._run_state.event_bodies import Reason
from callgate._run_state.recorder import off_loop
from callgate._run_state.run_recovery import RunReader
from callgate._run_state.run_state import RunState
from callgate._run_state.settlements import Settlement
from callgate.errors import RunHeld
from callgate.events import Draft

__all__ = ["RunStates", "Work"]

_MOST_RUNS = 1_000
_LOOKED_AT = 8
"""The number of runs to examine when there are too many, because some of them may be in use."""
_PIECE = 1_000
"""The number of events of a record to read at a time: some milliseconds."""


class Work(Struct):
    """The work of this engine on one run."""

    count: int = 0
    conversations: set[str] = field(default_factory=set)
    begun: bool = False
    """Whether the run has its turn of the conversation."""
    end_wanted: asyncio.Event = field(default_factory=asyncio.Event)
    """Set while a stop or kill is pending until the run begins."""


class RunStates:
    """The state of each run, as one engine knows it. Read from the journal on first use, dropped when the run is idle.

    Args:
        own: The engine's own run.
        work: The engine's current work, by run.
    """

    def __init__(self, context: EngineContext, own: str, work: Mapping[str, Work]) -> None:
        self._recorder = context.recorder
        self._approvals = context.approvals
        self._remember = context.limits.remembered_calls
        self.by_run: OrderedDict[str, RunState] = OrderedDict()
        """The states, by run."""
        self._opening = asyncio.Lock()
        self._waiting: dict[str, int] = {}
        """How many callers of `open` have not returned, by run."""
        self._outdated: set[str] = set()
        """Runs whose lease is being acquired, or was when the caller gave up: another engine may have written to their records."""
        self._kept: set[str] = set()
        """Runs whose lease was acquired here, and neither lost nor released nor offered since. Their states are known."""
        self._unread: dict[str, RunState] = {}
        """The last states of runs whose state has to be read again and was not, because that failed. By run."""
        self._own = own
        self._work = work
        self._counts: dict[str, dict[str, int]] = {}
        """The numbers of dangerous calls started by tick (`Scope.tick`), for runs whose state has to be read again."""
        self._own_doubts: dict[str, dict[str, UncertainCall]] = {}
        """The calls of this engine with an unknown outcome, by uid, for runs whose state has to be read again: the record does not say
        whether the code of a call of a living engine has ended, which this engine knows of its own calls.
        """

    def is_busy(self, run: str) -> bool:
        """Return whether the run is being worked on."""
        if run == self._own or run in self._work:
            return True
        state = self.by_run.get(run)
        return state is not None and state.under_way > 0

    def is_at_work(self, run: str) -> bool:
        """Return whether an agent keeps the run's lease. If it loses the lease, the run has ended."""
        return run in self._work

    def state(self, run: str) -> RunState:
        """Return the state of a run; read it from the journal the first time."""
        state = self.by_run.get(run)
        if state is None:
            reading = RunReader(run, remember=self._remember)
            reading.take(self._recorder.journal.read(run=run))
            state = self._keep(run, reading)
        return state

    async def open(self, run: str, *, new: bool = False) -> None:
        """Acquire the run's lease and load its state, in pieces, because reading a long record must not block the event loop.

        Args:
            new: Whether no other engine can know the run, and it has no record.

        Raises:
            RunHeld: Another engine works on the run.
        """
        if new:
            if run not in self.by_run:
                self.by_run[run] = RunState(run, remember=self._remember)
            return
        with self._waits(run):
            async with self._opening:
                await self._open(run)

    async def _open(self, run: str) -> None:
        outdated = run in self._outdated
        self._outdated.add(run)
        if await self._acquire(run) or outdated:
            self._approvals.forget(run)
            if run in self.by_run:
                self._unread[run] = self.by_run[run]
            self._set_aside(run)
        self._outdated.discard(run)
        await self._load(run)
        self._unread.pop(run, None)
        self._kept.add(run)

    @contextmanager
    def _waits(self, run: str) -> Iterator[None]:
        """Count a caller of `open`."""
        self._waiting[run] = self._waiting.get(run, 0) + 1
        try:
            yield
        finally:
            self._waiting[run] -= 1
            if not self._waiting[run]:
                del self._waiting[run]

    def remembered(self, run: str) -> RunState | None:
        """Return the last state of a run that this engine knew, or None. Other engines may have worked on the run since."""
        return self.by_run.get(run) or self._unread.get(run)

    def is_open(self, run: str, *, new: bool = False) -> bool:
        """Return whether `open` has nothing to do, and no earlier call waits for it: a later one must not overtake that."""
        return (run in self._kept and run not in self._waiting) or (new and run in self.by_run)

    def let_go(self, run: str) -> None:
        """Note that the run's lease is released or offered, so that the run has to be opened again."""
        self._kept.discard(run)

    async def _acquire(self, run: str) -> bool:
        """Acquire the run's lease, and return whether this engine did not hold it before."""
        try:
            return await self._recorder.journal.acquire_lease(run)
        except RunHeld:
            self._outdated.discard(run)  # the next attempt acquires it anew
            raise

    async def _load(self, run: str) -> None:
        """Read the run's state from the journal, unless it is known."""
        reading, after = RunReader(run, remember=self._remember), 0
        while run not in self.by_run:
            piece = partial(self._recorder.journal.read, run=run, after=after, limit=_PIECE)
            events = list(await off_loop(self._recorder.journal, piece))
            if run in self.by_run:  # a nested call has needed it meanwhile
                return
            reading.take(events)
            if len(events) < _PIECE:
                self._keep(run, reading)
                return
            after = events[-1].position
            await asyncio.sleep(0)

    def _set_aside(self, run: str) -> None:
        """Drop the run's state except for this engine's own counts and calls, because other engines may have written to its record
        since.
        """
        state = self.by_run.pop(run, None)
        self._kept.discard(run)
        if state is not None and state.dangerous:
            self._counts[run] = state.dangerous
        if state is not None and (own := {uid: doubt for uid, doubt in state.in_doubt.by_uid().items() if doubt.origin is None}):
            self._own_doubts[run] = own

    def knows(self, run: str) -> bool:
        """Return whether the run's state is known, as of the lease that this engine has now."""
        return run in self.by_run and run not in self._outdated

    def forget(self, run: str) -> None:
        """Forget the run, because another engine has its lease and may change its state."""
        self._set_aside(run)
        self._approvals.forget(run)

    def _keep(self, run: str, reading: RunReader) -> RunState:
        state = self.by_run[run] = reading.state()
        state.dangerous.update(self._counts.pop(run, {}))
        if own := self._own_doubts.pop(run, None):
            self._restore_own(state, {uid: doubt for uid, doubt in own.items() if uid not in reading.resumed})
        self._approvals.restore(reading.questions.values())
        self._forget_idle_runs()
        return state

    def _restore_own(self, state: RunState, own: Mapping[str, UncertainCall]) -> None:
        """Replace the calls in doubt that this engine started last with what it knows of them."""
        writer = self._recorder.identity
        for fact, doubt in state.in_doubt.latest.items():
            if doubt.uid in own and doubt.origin is not None and doubt.origin.writer == writer:
                state.in_doubt.latest[fact] = own[doubt.uid]

    def _forget_idle_runs(self) -> None:
        """Drop the oldest idle runs above a limit; they can be read from the journal again.

        Examines only a few runs each time, and moves those in use to the end, so that the cost of a new run does not depend on their
        number.
        """
        for run in list(islice(self.by_run, _LOOKED_AT)) if len(self.by_run) > _MOST_RUNS else ():
            if not self.by_run[run].idle or self.is_busy(run):
                self.by_run.move_to_end(run)
                continue
            del self.by_run[run]
            self._kept.discard(run)
            self._recorder.journal.release_lease(run)
            if len(self.by_run) <= _MOST_RUNS:
                return

    def settle(self, uid: str, *, happened: bool, why: str, details: Mapping[str, object] | None = None, key_run: str = "") -> int | None:
        """Record whether a call with an unknown outcome took effect. Return the event's position; None if its outcome was not unknown.

        Args:
            key_run: The run of the key of the call's effect, if this engine holds that run. It gets the record if this engine does
                not work on the call's own run, which another engine may hold.
        """
        state = self.by_run.get(str(uid).rsplit("/", 2)[0])
        state = state if state is not None and uid in state.in_doubt else None
        run = state.run if state is not None else key_run
        if not run:
            return None
        position = self._record_settled(run, uid, happened=happened, why=why, details=details)
        if state is not None:
            state.settle(uid, happened=happened)
        return position

    def settle_by_hand(self, uid: str, said: Settlement, *, cause: int = 0) -> int | None:
        """Record an operator's statement about a call.

        Return the event's position; None if the call cannot be settled so, see `RunState.can_settle` and `RunState.can_free`.
        """
        state = self.by_run.get(uid.rsplit("/", 2)[0])
        if state is None or not (state.can_settle(uid, happened=said.happened) or (not said.happened and state.can_free(uid))):
            return None
        by, reason = self._recorder.cut(said.by) or "the operator", self._recorder.cut(said.reason)
        why = reason or "the operator said so"
        position = self._record_settled(state.run, uid, happened=said.happened, why=why, details={"by": by}, cause=cause)
        state.settle(uid, happened=said.happened, by=by)
        return position

    def tell_happened(self, uid: str, details: Mapping[str, object]) -> None:
        """Record that an operator's statement about one call has answered another call."""
        run = uid.rsplit("/", 2)[0]
        self._record_settled(run, uid, happened=True, why="an identical call was told that this one happened", details=details)
        self.by_run[run].in_doubt.forget_confirmed(uid)

    def _record_settled(self, run: str, uid: str, *, happened: bool, why: str, details: Mapping[str, object] | None, cause: int = 0) -> int:
        body = Reason(reason=why, status="happened" if happened else "not_happened", details=details)
        parents = (cause,) if cause else ()
        return self._recorder.write(Draft(kind="fact.settled", run=run, body=body, call=uid, parents=parents))
