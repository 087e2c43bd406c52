"""The runs of one engine: their state, their leases, and the messages of other processes for them.

`KnownRuns` holds the state of runs. `RunLeases` keeps the leases of the runs that this engine works on, and ends a run whose lease another
engine has taken. `InboxDelivery` carries out messages of other processes. Knows no route, no tool and no agent loop.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import islice

from msgspec import Struct, field

from callgate._abort_signals import Control
from callgate._pipeline.approval_answers import ANSWERS, answer_of, check_edit, record_answer
from callgate._pipeline.call_state import CallState
from callgate._pipeline.engine_options import EngineContext
from callgate._run_state.approvals import Approvals
from callgate._run_state.event_bodies import Reason
from callgate._run_state.idempotency import RunState
from callgate._run_state.recorder import Recorder, off_loop
from callgate._run_state.run_recovery import RunReader
from callgate._run_state.settlements import SETTLEMENTS, Settlement
from callgate.errors import RecordFailed, UsageError
from callgate.events import Draft
from callgate.protocols import InboxMessage
from callgate.tools import ToolRegistry

__all__ = ["InboxDelivery", "KnownRuns", "RunLeases", "Work"]

_ENDS = {"stop": "stopped", "kill": "killed"}
_MOST_LOST = 1_000
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


class KnownRuns:
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
        self._own = own
        self._work = work
        self._counts: dict[str, dict[str, int]] = {}
        """The numbers of dangerous calls started by tick (`Scope.tick`), for runs whose state has to be read again."""

    def is_busy(self, run: str) -> bool:
        """Return whether the run is being worked on."""
        if run == self._own or run in self._work:
            return True
        state = self.by_run.get(run)
        return state is not None and state.under_way > 0

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
            self.by_run.setdefault(run, RunState(run, remember=self._remember))
            return
        async with self._opening:
            if await self._recorder.journal.acquire_lease(run):
                self._approvals.forget(run)
                self._set_aside(run)
            reading, after = RunReader(run, remember=self._remember), 0
            while run not in self.by_run:
                piece = partial(self._recorder.journal.read, run=run, after=after, limit=_PIECE)
                events = list(await off_loop(self._recorder.journal, piece))
                reading.take(events)
                if len(events) < _PIECE:
                    self._keep(run, reading)
                    return
                after = events[-1].position
                await asyncio.sleep(0)

    def _set_aside(self, run: str) -> None:
        """Drop the run's state except for this engine's own counts, because other engines may have written to its record since."""
        state = self.by_run.pop(run, None)
        if state is not None and state.dangerous:
            self._counts[run] = state.dangerous

    def knows(self, run: str) -> bool:
        return run in self.by_run

    def lost(self, run: str) -> None:
        """Forget the run, because another engine has its lease and may change its state."""
        self._set_aside(run)
        self._approvals.forget(run)

    def _keep(self, run: str, reading: RunReader) -> RunState:
        state = self.by_run[run] = reading.state()
        state.dangerous.update(self._counts.pop(run, {}))
        self._approvals.restore(reading.questions.values())
        self._forget_idle_runs()
        return state

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
            self._recorder.journal.release_lease(run)
            if len(self.by_run) <= _MOST_RUNS:
                return

    def settle(self, uid: str, *, happened: bool, why: str, details: Mapping[str, object] | None = None) -> int | None:
        """Record whether a call with an unknown outcome took effect. Return the event's position; None if its outcome was not unknown."""
        state = self.by_run.get(str(uid).rsplit("/", 2)[0])
        if state is None or not state.is_in_doubt(uid):
            return None
        body = Reason(reason=why, status="happened" if happened else "not_happened", details=details)
        position = self._recorder.write(Draft(kind="fact.settled", run=state.run, body=body, call=uid))
        state.settle(uid, happened=happened)
        return position

    def settle_by_hand(self, uid: str, said: Settlement, *, cause: int = 0) -> int | None:
        """Record an operator's statement about a call.

        Return the event's position; None if no unknown outcome of the call is known.
        """
        state = self.by_run.get(uid.rsplit("/", 2)[0])
        if state is None or not state.is_in_doubt(uid):
            return None
        by, reason = self._recorder.cut(said.by) or "the operator", self._recorder.cut(said.reason)
        body = Reason(reason=reason or "the operator said so", status="happened" if said.happened else "not_happened", details={"by": by})
        parents = (cause,) if cause else ()
        position = self._recorder.write(Draft(kind="fact.settled", run=state.run, body=body, call=uid, parents=parents))
        state.settle(uid, happened=said.happened, by=by)
        return position

    def tell_happened(self, uid: str, details: Mapping[str, object]) -> None:
        """Record that an operator's statement about one call has answered another call."""
        run = uid.rsplit("/", 2)[0]
        body = Reason(reason="an identical call was told that this one happened", status="happened", details=details)
        self._recorder.write(Draft(kind="fact.settled", run=run, body=body, call=uid))
        self.by_run[run].told_happened(uid)


class InboxDelivery:
    """Delivers messages of other processes to runs: an answer to a question, a stop, a kill.

    Each message is recorded once; an invalid one is recorded with the reason for its refusal. A message that arrives while its run is not
    being worked on is delivered when work on the run begins.

    Args:
        work: The engine's current work, by run.
        running: The running calls, by uid.
        known: The states of runs.
        approvals: The questions asked in the runs.
        tools: The engine's tools, which check the arguments of humans.
    """

    def __init__(
        self,
        recorder: Recorder,
        control: Control,
        work: Mapping[str, Work],
        running: Mapping[str, CallState],
        known: KnownRuns,
        approvals: Approvals,
        tools: ToolRegistry,
    ) -> None:
        self._recorder = recorder
        self._control = control
        self._work = work
        self._running = running
        self._known = known
        self._approvals = approvals
        self._tools = tools
        self._messages: dict[str, list[InboxMessage]] = {}
        """Messages that wait until their run is known, or begins."""

    def message_arrived(self, message: InboxMessage) -> None:
        self._messages.setdefault(message.run, []).append(message)
        self.deliver(message.run)

    def forget(self, run: str) -> None:
        """Drop the waiting messages of a run; the next engine that acquires its lease receives them again."""
        self._messages.pop(run, None)

    def deliver(self, run: str) -> None:
        """Carry out the waiting messages of a run, as far as that is possible now."""
        if run not in self._messages or not self._known.knows(run):
            return
        work = self._work.get(run)
        for message in self._messages.pop(run):
            if message.kind in _ENDS and work is not None and not work.begun:
                self._messages.setdefault(run, []).append(message)
                work.end_wanted.set()
            else:
                self._do(message)

    def _do(self, message: InboxMessage) -> None:
        try:
            if message.kind in ANSWERS:
                self._answer(message)
            elif message.kind in SETTLEMENTS:
                self._settle(message)
            else:
                self._end(message)
        except UsageError as refused:
            self._record("inbox.refused", message, str(refused))
        except RecordFailed as error:
            self._recorder.log.error("%s", error)

    def _answer(self, message: InboxMessage) -> None:
        if message.target.rsplit("/", 2)[0] != message.run:
            raise UsageError(f"The approval '{message.target[:80]}' is none of this run's.")
        answer = answer_of(message)
        if answer.allow and message.replaced_by:
            raise UsageError("A later answer to the same question has replaced it.")
        question = self._approvals.to_answer(message.target, allow=answer.allow)
        journal = self._recorder.journal
        if answer.arguments and not journal.remote:  # on a server, reading would block the event loop: the gate checks them
            check_edit(journal.read(call=message.target), answer, self._tools)
        cause = self._record("inbox.taken", message, self._said(message, answer.reason))
        record_answer(self._recorder, self._approvals, question, answer, cause=cause)

    def _settle(self, message: InboxMessage) -> None:
        state = self._known.by_run.get(message.run)
        if state is None or not state.is_in_doubt(message.target):
            raise UsageError(f"The call '{message.target[:80]}' is not in doubt, so nothing was changed.")
        cause = self._record("inbox.taken", message, self._said(message, message.reason))
        said = Settlement(happened=SETTLEMENTS[message.kind], by=message.actor, reason=message.reason)
        self._known.settle_by_hand(message.target, said, cause=cause)

    def _said(self, message: InboxMessage, reason: str) -> str:
        return f"{self._recorder.cut(reason) or 'no reason given'} ({self._recorder.cut(message.actor) or 'nobody named'})"

    def _end(self, message: InboxMessage) -> None:
        conversations, states = self._affected(message)
        said = self._said(message, message.reason)
        self._record("inbox.taken", message, said)
        why = f"{_ENDS[message.kind]} from another process: {said}"
        for conversation in conversations:
            end = self._control.kill if message.kind == "kill" else self._control.stop
            end(conversation, why)
        for state in states:
            state.stopped = why
            if message.kind == "kill":
                state.kill.fire(why)

    def _affected(self, message: InboxMessage) -> tuple[set[str], list[CallState]]:
        """Return the conversations that only this run uses, and its calls in other conversations.

        Raises:
            UsageError: The run has no work to end, or the kind of the message is unknown.
        """
        if message.kind not in _ENDS:
            raise UsageError(
                f"It is not known what '{message.kind[:40]}' asks for. Known are: {', '.join((*ANSWERS, *SETTLEMENTS, *_ENDS))}."
            )
        work = self._work.get(message.run)
        running = list(self._running.values())
        shared = {"", *(state.scope.conversation for state in running if state.scope.run != message.run)}
        mine = [state for state in running if state.scope.run == message.run]
        conversations = (work.conversations if work is not None else set()) | ({state.scope.conversation for state in mine} - shared)
        if not (conversations or mine):
            raise UsageError("Nothing of the run was at work.")
        return conversations, [state for state in mine if state.scope.conversation not in conversations]

    def _record(self, kind: str, message: InboxMessage, reason: str) -> int:
        details = {"wanted": self._recorder.cut(message.kind, 40), "by": self._recorder.cut(message.actor), "at_ns": message.at_ns}
        parents = (message.cause,) if message.cause else ()
        body = Reason(reason=reason, details=details)
        return self._recorder.write(Draft(kind=kind, run=message.run, body=body, parents=parents, inbox=message.id))


class RunLeases:
    """Keeps the leases of the runs that this engine works on, and ends a run whose lease another engine has taken.

    A run that is lost is ended at once: its calls and its conversation are killed. Nothing further of it can be recorded, because the
    journal refuses writes without the lease.

    Args:
        work: The engine's current work, by run. Modified.
        running: The running calls, by uid.
        known: The states of runs.
        inbox: Delivers messages of other processes.
    """

    def __init__(
        self,
        recorder: Recorder,
        control: Control,
        work: dict[str, Work],
        running: Mapping[str, CallState],
        known: KnownRuns,
        inbox: InboxDelivery,
    ) -> None:
        self._journal = recorder.journal
        self._log = recorder.log
        self._control = control
        self._running = running
        self._known = known
        self._work = work
        self._inbox = inbox
        self._lost: dict[str, str] = {}

    @contextmanager
    def at_work(self, run: str, conversation: str | None, *, alone: bool) -> Iterator[asyncio.Event]:
        """Keep the run's lease until the block ends. Another engine may acquire it after that.

        Args:
            alone: Whether no other code of this engine may work on the run at the same time.

        Yields:
            An event that is set when another process requests that the run is stopped or killed before it begins.

        Raises:
            UsageError: `alone` is set and the run is already being worked on.
        """
        if alone and run in self._work:
            raise UsageError(f"Run '{run[:80]}' is being worked on already. Wait until that has ended, or kill its conversation.")
        self._lost.pop(run, None)
        work = self._work.setdefault(run, Work())
        work.count += 1
        if conversation is not None:
            work.conversations.add(conversation)
        try:
            yield work.end_wanted
        finally:
            work.count -= 1
            if not work.count:
                del self._work[run]
                if not self._known.is_busy(run):
                    self._inbox.forget(run)
                    self._journal.release_lease(run)

    def why_lost(self, run: str) -> str:
        """Return why the run's lease was lost; empty if it was not."""
        return self._lost.get(run, "")

    def lost(self, run: str, why: str) -> None:
        """End the calls and the conversation of a run whose lease another engine has taken."""
        self._log.error("%s", why)
        self._lost[run] = why
        while len(self._lost) > _MOST_LOST:
            del self._lost[next(iter(self._lost))]
        self._known.lost(run)
        for state in self._running.values():
            if state.scope.run == run:
                state.kill.fire(why)
        work = self._work.get(run)
        for conversation in work.conversations if work is not None else ():
            self._control.kill(conversation, why)

    def message_arrived(self, message: InboxMessage) -> None:
        self._inbox.message_arrived(message)

    def begin(self, run: str) -> None:
        """Deliver the waiting messages of an agent's run, which now has its turn of the conversation."""
        if run in self._work:
            self._work[run].begun = True
        self.deliver(run)

    def deliver(self, run: str) -> None:
        """Carry out the waiting messages of a run, as far as that is possible now."""
        self._inbox.deliver(run)
