"""Locks of running calls: a call starts only when it conflicts with no running call of its engine.

Placed after the gate, because the final arguments determine what a call touches, and before the cache, so that a read that waits for a
write does not get a result from before that write. Two calls of one run and conversation conflict unless `may_run_beside` allows both.
Other calls conflict only if both declare the resources that they touch. Calls wait in the order of their arrival, so that none waits
forever. A call whose gate takes time, such as one that a policy's plain function or a model judges, keeps its place meanwhile.

A nested call, which a tool makes, is part of the call of that tool and cannot deadlock. It does not wait for the calls
within which it was made. Of the calls that have not started, it waits only for earlier nested calls of the same call.
If it would have to wait for a call that waits for its own parent, it starts; but if both declare that they touch the
same resource, it is refused.

Knows neither what a call does nor how it is recorded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import suppress
from contextvars import ContextVar
from itertools import chain, takewhile

from msgspec import Struct

from callgate._abort_signals import settled
from callgate._clock import Clock
from callgate._pipeline.call_order import UNDECLARED_READ, Footprint
from callgate._pipeline.call_state import CallState
from callgate._pipeline.wait_graph import WaitGraph, callers
from callgate._secret_redaction import RedactedLog
from callgate.errors import CallNotStarted
from callgate.tools.resource_conflicts import KeyIndex

__all__ = ["CallLock", "CallLocks", "caller_of"]

_FOREVER_S = 1e9
_LONG_WAIT_S = 1.0
"""Seconds after which a wait that a scope would have avoided is logged."""
_RUNNING: ContextVar[CallState | None] = ContextVar("callgate_running_call", default=None)
"""The call whose tool, hooks or handlers run in this context."""


def caller_of(state: CallState) -> CallState | None:
    """Return the call within which this one is made: its parent, or the call whose code runs in this context."""
    return state.parent or _innermost_running(_RUNNING.get())


class CallLock(Struct, eq=False):
    """One call that runs, or that waits until it may run."""

    number: int
    state: CallState
    group: tuple[str, str]
    """The run and the conversation of the call."""
    tool: str
    footprint: Footprint
    outer: CallLock | None
    """The call within which this call was made, if it runs in this engine."""
    before: CallState | None
    """The call that was running in this context when this call arrived."""
    granted: bool = False
    waiting: list[CallLock] = []
    """The calls that wait for this one."""
    awaited: CallLock | None = None
    """The call that this one waits for."""
    refusal: CallNotStarted | None = None
    """Why the call will not start; None if it may."""
    ready: asyncio.Future[None] | None = None
    """Resolved when the call is granted or refused."""

    def wake(self) -> None:
        """Wake the task that waits for the lock."""
        if self.ready is not None and not self.ready.done():
            with suppress(RuntimeError):  # the event loop of the waiting task is closed
                self.ready.set_result(None)

    def within(self, other: CallLock) -> bool:
        """Return whether this call was made within another one."""
        outer = self.outer
        while outer is not None and outer is not other:
            outer = outer.outer
        return outer is not None


class _RunLocks(Struct, eq=False):
    """The locks of one conversation of a run by number, which is the order of their arrival."""

    every: dict[int, CallLock] = {}
    effects: dict[int, CallLock] = {}
    barriers: dict[int, CallLock] = {}
    """The calls with an effect that do not declare what they touch."""
    reads: dict[int, CallLock] = {}
    """The calls without an effect that do not declare what they touch."""
    inner: dict[int, CallLock] = {}
    """The nested calls, which may have started before calls that arrived earlier."""

    def groups(self, lock: CallLock) -> list[dict[int, CallLock]]:
        """Return the dicts in which a lock is listed."""
        effect, declared = not lock.footprint.reads_only, lock.footprint.touched is not None
        listed = [self.every]
        if effect:
            listed.append(self.effects)
        if not declared:
            listed.append(self.barriers if effect else self.reads)
        if lock.outer is not None:
            listed.append(self.inner)
        return listed

    def undeclared_conflicts(self, footprint: Footprint) -> list[dict[int, CallLock]]:
        """Return the locks of the run that conflict with a footprint because one of the two does not declare its
        resources.
        """
        if footprint.touched is None:
            return [self.effects if footprint.reads_only else self.every]
        return [self.barriers] if footprint.reads_only else [self.barriers, self.reads]


class CallLocks:
    """The locks of one engine. Belongs to its event loop.

    Args:
        waits: Which calls of the engine wait for which others.
        own_run: The run of calls whose scope names none.
        log: Receives a warning if calls without a scope wait long for each other.
    """

    def __init__(self, waits: WaitGraph, clock: Clock, own_run: str, log: RedactedLog) -> None:
        self._waits = waits
        self._clock = clock
        self._unscoped = (own_run, "")
        self._log = log
        self._warned = False
        self._runs: dict[tuple[str, str], _RunLocks] = {}
        self._alone: CallLock | None = None
        """The lock of the only call, while no other call has arrived. It is not listed yet, so that a call alone costs little."""
        self._by_number: dict[int, CallLock] = {}
        self._by_state: dict[CallState, CallLock] = {}
        self._last = 0
        self._reads = KeyIndex()
        self._writes = KeyIndex()

    def take(self, state: CallState, tool: str, footprint: Footprint, *, judged: bool = True) -> CallLock:
        """Add the lock of a call.

        If the lock is granted, the call may start; otherwise use `wait`. Use `release` in any case. After this, calls
        that are made in this context are part of this call.

        Args:
            judged: Whether the gate has let the call pass. If not, the lock keeps its place, and is taken again after the gate.
        """
        if state.locked:
            return self._take_again(state, tool, footprint)
        alone, self._alone = self._alone, None
        if alone is not None:
            self._list(alone)
        before = _RUNNING.get()
        state.caller = state.parent or (None if before is None else _innermost_running(before))
        self._last += 1
        outer = None if state.caller is None else self._outer(state)
        lock = CallLock(self._last, state, (state.scope.run, state.scope.conversation), tool, footprint, outer, before)
        state.locked = True
        _RUNNING.set(state)
        if judged and not self._by_number:
            lock.granted = True
            self._alone = lock
            return lock
        run = self._list(lock)
        if not judged:
            return lock
        if footprint is UNDECLARED_READ and outer is None and not run.effects:
            lock.granted = True
        else:
            self._decide(lock, new=True)
        return lock

    def _take_again(self, state: CallState, tool: str, footprint: Footprint) -> CallLock:
        """Decide about the lock of a call that has passed the gate. It loses its place if the gate has changed what the call touches."""
        lock = self._by_state[state]
        if footprint != lock.footprint:
            self.release(lock)
            return self.take(state, tool, footprint)
        self._decide(lock)
        return lock

    async def wait(self, lock: CallLock) -> None:
        """Wait until the call may start.

        Raises:
            CallNotStarted: The call was killed, its time ran out, or it would wait for itself.
        """
        state = lock.state
        if lock.refusal is None:
            lock.ready = asyncio.get_running_loop().create_future()
            if not (lock.group == self._unscoped and await self._is_soon_ready(lock, lock.ready)):
                await settled(lock.ready, state.kill, min(state.deadline - self._clock.monotonic(), _FOREVER_S))
        if lock.granted:
            return
        if lock.refusal is not None:
            raise lock.refusal
        why = state.kill.reason or f"{_name_for_others(lock.awaited, lock)}, which must end before it, had not ended when its time was over"
        raise CallNotStarted.because(why)

    async def _is_soon_ready(self, lock: CallLock, ready: asyncio.Future[None]) -> bool:
        """Wait a moment. If the call still waits for another one because their host gave no scope, say so once."""
        if self._warned or await settled(ready, lock.state.kill, min(lock.state.deadline - self._clock.monotonic(), _LONG_WAIT_S)):
            return ready.done()
        other = lock.awaited
        if not self._warned and other is not None and other.group == lock.group and not lock.state.kill.aborted:
            self._warned = True
            self._log.warning(
                "%s (%s) has waited for %s (%s) for %g s. Neither came with a run or a conversation of its own, and bare tools of one run"
                " and conversation never run at the same time. If they belong to different users or tasks, give each its own:"
                " Scope(conversation=...). Or declare what the tools touch: effect='none', reads=, writes=. This is said once for each"
                " engine.",
                *(lock.tool, lock.state.uid, other.tool, other.state.uid, _LONG_WAIT_S),
            )
        return False

    def release(self, lock: CallLock) -> bool:
        """Remove the lock of a call that has ended or will not start, unless it is removed already.

        Calls that waited for it may start. Return whether there were any.
        """
        state = lock.state
        if not state.locked:
            return False
        state.locked = False
        _RUNNING.set(lock.before)
        if lock is self._alone:
            self._alone = None
            return False
        self._unlist(lock)
        if lock.awaited is not None:
            self._waits.end(state)
        for waiting in lock.waiting:
            if waiting.awaited is lock and waiting.number in self._by_number:
                self._decide(waiting)
        return bool(lock.waiting)

    def _outer(self, state: CallState) -> CallLock | None:
        """Return the lock of the innermost call within which a call was made, among those that run in this engine."""
        for caller in callers(state):
            lock = self._by_state.get(caller)
            if lock is not None:
                return lock
        return None

    def _list(self, lock: CallLock) -> _RunLocks:
        """Add a lock to those that other calls are compared with; return the locks of its run."""
        self._by_number[lock.number] = self._by_state[lock.state] = lock
        run = self._runs.get(lock.group)
        if run is None:
            run = self._runs[lock.group] = _RunLocks()
        if lock.footprint is UNDECLARED_READ and lock.outer is None:
            run.every[lock.number] = run.reads[lock.number] = lock
            return run
        for group in run.groups(lock):
            group[lock.number] = lock
        if (touched := lock.footprint.touched) is not None:
            for key in touched.reads:
                self._reads.add(key, lock.number)
            for key in touched.writes:
                self._writes.add(key, lock.number)
        return run

    def _unlist(self, lock: CallLock) -> None:
        del self._by_number[lock.number], self._by_state[lock.state]
        run = self._runs[lock.group]
        if lock.footprint is UNDECLARED_READ and lock.outer is None:
            del run.every[lock.number], run.reads[lock.number]
        else:
            for group in run.groups(lock):
                del group[lock.number]
        if (touched := lock.footprint.touched) is not None:
            for key in touched.reads:
                self._reads.remove(key, lock.number)
            for key in touched.writes:
                self._writes.remove(key, lock.number)
        if not run.every:
            del self._runs[lock.group]

    def _decide(self, lock: CallLock, *, new: bool = False) -> None:
        """Grant a lock, make it wait for a conflicting one, or refuse it if it would wait for itself.

        Args:
            new: Whether the lock has just been added, so that all others are older.
        """
        lock.awaited = None
        for other, declared in self._conflicts(lock, new=new):
            if not _comes_first(other, lock):
                continue
            if lock.outer is None or not self._waits.would_deadlock(lock.state, other.state):
                lock.awaited = other
                other.waiting.append(lock)
                self._waits.begin(lock.state, other.state)
                return
            if declared and other.granted:
                lock.refusal = _refusal(lock, other)
                break
        else:
            lock.granted = True
        self._waits.end(lock.state)
        lock.wake()

    def _conflicts(self, lock: CallLock, *, new: bool) -> Iterator[tuple[CallLock, bool]]:
        """Yield the locks that conflict with this one, and whether the conflict is about resources that both declare."""
        run = self._runs[lock.group]
        for group in run.undeclared_conflicts(lock.footprint):
            for other in _in_order(lock, group, run.inner, new=new):
                yield other, False
        for number in sorted(self._declared_conflicts(lock), reverse=True):
            other = self._by_number[number]
            if not (other.footprint.reads_only and lock.footprint.reads_only):
                yield other, True

    def _declared_conflicts(self, lock: CallLock) -> set[int]:
        """Return the numbers of the locks whose declared resources conflict with those of this one."""
        touched, found = lock.footprint.touched, set[int]()
        if touched is None:
            return found
        for key in touched.writes:
            found.update(self._reads.below(key), *self._reads.above(key), self._writes.below(key), *self._writes.above(key))
        for key in touched.reads:
            found.update(self._writes.below(key), *self._writes.above(key))
        found.discard(lock.number)
        return found


def _in_order(lock: CallLock, group: dict[int, CallLock], inner: dict[int, CallLock], *, new: bool) -> Iterator[CallLock]:
    """Return the conflicting locks that may have to be waited for, those that most likely have to be first.

    For a new lock, the latest one comes first, so that conflicting calls wait for one another in a chain. For a lock
    that has waited, the older ones come first. Nested calls may have started before an older one, so they are included,
    too.
    """
    others: Iterable[CallLock]
    if new:
        others = reversed(group.values())
    elif lock.outer is not None:
        others = group.values()
    else:
        older = takewhile(lambda one: one.number < lock.number, group.values())
        others = chain(older, (one for one in inner.values() if one.number in group))
    return (one for one in others if one is not lock)


def _comes_first(other: CallLock, lock: CallLock) -> bool:
    """Return whether a conflicting call starts before this one, or has already started."""
    if lock.outer is None:
        return other.granted or other.number < lock.number
    if not other.granted:
        return other.outer is lock.outer and other.number < lock.number
    return not lock.within(other)


def _refusal(lock: CallLock, other: CallLock) -> CallNotStarted:
    return CallNotStarted(
        f"{lock.tool} was not started: it must not run beside {_name_for_others(other, lock)}, which waits for the call that made this one."
        " Nothing happened; it may be sent again when one of the two has ended.",
        code="waits_for_itself",
    )


def _name_for_others(other: CallLock | None, lock: CallLock) -> str:
    """Return a name of a call for messages to the model of another call. It must reveal nothing of other runs."""
    if other is None or other.state.scope.run != lock.state.scope.run:
        return "a call of another run"
    return f"{other.tool} ({other.state.uid})"


def _innermost_running(state: CallState | None) -> CallState | None:
    """Return the first call that still runs, of this call and the calls within which it was made, from the inside out."""
    while state is not None and not state.locked:
        state = state.caller
    return state
