"""Answer a call from a cached result, and let identical calls that run at the same time share one run.

Placed after the gate, so that a denied call is never answered from the cache, and before the run. A cache
hit skips only the run: the hooks after the call, normalisation and recording still happen.

A result is stored as the hooks leave it, so that data that they hide or withhold is never stored. On a hit
the hooks run on the stored result again; if they change a result that they had changed before, it is
dropped and the tool runs. Stored and shared results are encoded, so that no two calls share an object. Only
successful results are stored. A result that was read before or during a write to its resources is never
given to a call that arrives after that write has begun, nor stored in a file where another process has dropped it
meanwhile; for the writes of other engines of the journal, which may be of anything, see `other_engines_writes`. If the
store fails, the tool runs and the call still gets its result.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from contextlib import suppress

from msgspec import Struct
from msgspec.structs import replace

from callgate._abort_signals import settled
from callgate._clock import Clock
from callgate._pipeline.cached_results import CachedResults, decode_checked, encode_checked
from callgate._pipeline.call_state import CallState
from callgate._pipeline.other_engines_writes import OtherEnginesWrites
from callgate._pipeline.wait_graph import WaitGraph
from callgate._run_state.event_bodies import joined_texts
from callgate._run_state.recorder import Recorder
from callgate.errors import CallNotStarted, ResultRejected
from callgate.stage_types import ApprovedCall, Checked
from callgate.tools.resource_conflicts import ANYTHING, TouchedKeys, meet

__all__ = ["Cache", "Finish", "cache_key"]

_OWN_ENDS = frozenset({"killed", "not_started"})
"""Failures that concern a single call and are not caused by its tool."""


Finish = Callable[[Checked], Awaitable[Checked]]
"""Runs the hooks over a result."""


def cache_key(approved: ApprovedCall, changes_by: str = "") -> str:
    """Return the key of a cached result: a hash of everything that the result depends on.

    This is the tool's identity, the final arguments, the principal, the actor, the workspace and the tick.

    Args:
        changes_by: The names of the hooks that may change the result.
    """
    call = approved.call
    scope = call.scope
    tick = _tick(approved) if call.tool.cache_scope == "tick" else ""
    texts = (call.tool.identity, scope.principal, scope.actor, scope.workspace, tick)
    digest = hashlib.blake2b(joined_texts(texts) + b"\x00" + approved.encoded, digest_size=20)
    if changes_by:
        digest.update(b"\x00" + changes_by.encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def _tick(approved: ApprovedCall) -> str:
    scope = approved.call.scope
    return f"{scope.run}/{scope.conversation}/{scope.tick or scope.turn}"


class _End(Struct, frozen=True):
    """How a run ended."""

    value: bytes
    """The encoded result, so that no two calls share an object."""
    failure_class: str | None
    until: float
    """The deadline of the call that ran."""

    def holds_for(self, until: float) -> bool:
        """Return whether a call with this deadline would have failed in the same way."""
        return self.failure_class not in _OWN_ENDS and (self.failure_class != "timeout" or self.until >= until)


class _Shared(Struct, frozen=True, eq=False):
    """A run that identical calls wait for."""

    leader: CallState
    reads: frozenset[str]
    done: asyncio.Future[_End | None]
    """Resolved when the run has ended; with None if its result cannot be shared."""


class Cache:
    """The cache stage of one engine.

    Args:
        cached_results: The results that are kept.
        recorder: Has the journal, if other engines may use it; None: they may not.
    """

    def __init__(
        self,
        cached_results: CachedResults,
        clock: Clock,
        waits: WaitGraph,
        *,
        recorder: Recorder | None,
    ) -> None:
        self._cached_results = cached_results
        keeps = not cached_results.is_common
        self._others = None if recorder is None else OtherEnginesWrites(recorder, clock, self._forget_for_others, keeps_results=keeps)
        self._clock = clock
        self._runs: dict[str, _Shared] = {}
        self._waits = waits
        self._writing: list[frozenset[str]] = []
        """The resources that running calls, and the abandoned code of ended calls, may write."""
        self._abandoned: dict[str, frozenset[str]] = {}
        """The resources that abandoned code may still write, by the uid of its call."""
        self._changed_again: set[str] = set()
        """The identities of tools whose hooks changed a stored result that they had changed before. Results of these
        tools that hooks have changed are not stored.
        """

    async def answer(
        self, state: CallState, approved: ApprovedCall, execute: Callable[[], Awaitable[Checked]], finish: Finish, changes_by: str
    ) -> Checked:
        """Return the call's result as the hooks leave it.

        It comes from the cache, from an identical call that is running, or from `execute`. A call that waits for
        another's result stops waiting when it is killed or its deadline passes; then `execute` determines how it ends.
        If the awaited run fails, one of the waiting calls runs again. If that run fails as well, all calls that waited
        for it get its result, unless the failure concerns only the call that ran.

        Args:
            finish: Runs the hooks over a result. If it raises, the result is neither shared nor cached.
            changes_by: The names of the hooks that may change the result.

        Raises:
            CallNotStarted: The call would wait for itself.
        """
        if approved.call.tool.cache_scope is None:
            return await finish(await execute())
        reads = _reads(approved)
        if reads and (await self._do_others_write(state) or self._is_written(reads)):
            return await finish(await execute())
        key = cache_key(approved, changes_by)
        again = False
        while True:
            found = await self._found(approved, key, finish)
            if found is not None:
                return found
            shared = self._runs.get(key)
            if shared is None:
                lead = _Shared(state, reads, asyncio.get_running_loop().create_future())
                return await self._lead(lead, approved, key, execute, finish)
            if not await self._wait_for_end(state, approved, shared):
                return await finish(await execute())
            end = shared.done.result()
            if end is not None and (end.failure_class is None or (again and end.holds_for(state.deadline))):
                return await finish(replace(decode_checked(end.value), joined=True, attempts=0))
            again = True

    async def _found(self, approved: ApprovedCall, key: str, finish: Finish) -> Checked | None:
        """Return the stored result as the hooks leave it; None if there is none or the tool has to run.

        A result that the hooks change or withhold is dropped. If they had already changed it before it was stored, the
        tool has to run.
        """
        tool = approved.call.tool
        kept = self._cached_results.get(tool, key)
        if kept is None:
            return None
        cached = replace(kept, cached=tool.cache_scope, attempts=0, duration_ms=0.0)
        try:
            after = await finish(cached)
        except ResultRejected:
            self._cached_results.drop(tool, key)
            raise
        if _same(after, cached):
            return cached
        self._cached_results.drop(tool, key)
        if kept.changed:
            self._changed_again.add(tool.identity)
            return None
        return after

    async def _wait_for_end(self, state: CallState, approved: ApprovedCall, shared: _Shared) -> bool:
        """Wait for an identical call's run to end; return False if this call is killed or times out first.

        Raises:
            CallNotStarted: The other run waits for this call.
        """
        if self._waits.would_deadlock(state, shared.leader):
            name = approved.call.tool.name
            raise CallNotStarted(
                f"{name} was not started: a call of {name} with these very arguments is under way and waits for this one, so that this one"
                " would wait for itself. Give it other arguments, or do the work without it.",
                code="waits_for_itself",
            )
        with self._waits.waiting(state, shared.leader):
            return await settled(shared.done, state.kill, state.deadline - self._clock.monotonic())

    async def _lead(
        self, shared: _Shared, approved: ApprovedCall, key: str, execute: Callable[[], Awaitable[Checked]], finish: Finish
    ) -> Checked:
        """Run the call, share the result with identical calls that wait for it, and store it as the hooks leave it."""
        self._runs[key] = shared
        tool, reads = approved.call.tool, shared.reads
        mark = self._cached_results.announce(tool, key, reads)
        try:
            checked = await self._run(shared, key, execute)
            after = await finish(checked)
            others_write = bool(reads) and await self._do_others_write(shared.leader)
            if after.status == "ok" and not others_write and self._runs.get(key) is shared:
                kept = after if _same(after, checked) else replace(after, changed=True)
                if not (kept.changed and tool.identity in self._changed_again):
                    self._cached_results.put(tool, key, kept, reads, mark)
            return after
        finally:
            self._let_go(shared, key)

    async def _run(self, shared: _Shared, key: str, execute: Callable[[], Awaitable[Checked]]) -> Checked:
        """Run the call, and wake the identical calls that wait for it. If it fails, the next identical call runs."""
        end: _End | None = None
        try:
            checked = await execute()
            with suppress(ValueError):  # an exception's text may not be valid Unicode; then it is not passed on
                end = _End(encode_checked(checked), checked.failure_class, shared.leader.deadline)
            return checked
        finally:
            if end is None or end.failure_class is not None:
                self._let_go(shared, key)
            shared.done.set_result(end)

    def _let_go(self, shared: _Shared, key: str) -> None:
        if self._runs.get(key) is shared:
            del self._runs[key]

    # Writes

    async def _do_others_write(self, state: CallState) -> bool:
        """Drop what other engines may have written since they were last looked at, and return whether one may be writing now."""
        within_s = state.deadline - self._clock.monotonic()
        return self._others is not None and await self._others.are_under_way(state.kill, within_s)

    def _forget_for_others(self, outside: bool) -> None:
        """Drop everything that was read, because anything may have been written.

        Args:
            outside: Whether not only by calls of other engines, which have dropped it from the store beside the journal.
        """
        self._forget_shared_runs(ANYTHING)
        if self._cached_results.may_exist:
            self._cached_results.drop_written_elsewhere(ANYTHING, persistent=outside or not self._cached_results.is_common)

    def begin_writing(self, uid: str, touched: TouchedKeys | None) -> frozenset[str]:
        """Drop all results that were read from resources which a call writes from now on.

        Return these resources, for `end_writing`. Until `end_writing`, no result that was read from them is stored or
        shared. A call that does not declare what it touches may write anything. A call that already waits for a shared
        run which reads these resources may use its result; a later call may not.
        """
        writes = ANYTHING if touched is None else touched.writes
        if self._others is not None:
            self._others.note_own_start(uid)
        if writes:
            self._forget(writes)
            self._writing.append(writes)
        return writes

    def end_writing(self, uid: str, writes: frozenset[str]) -> None:
        """Drop the results that were read while the call wrote. The call writes no more."""
        if self._others is not None:
            self._others.note_own_end(uid)
        if writes:
            self._writing.remove(writes)
            self._forget(writes)

    def keep_writing(self, uid: str, writes: frozenset[str]) -> None:
        """Record that a call has ended but its abandoned code may write until `code_ended` is called."""
        self._abandoned[uid] = writes

    def code_ended(self, uid: str) -> None:
        """Record that the abandoned code of a call has ended."""
        if uid in self._abandoned:
            self.end_writing(uid, self._abandoned.pop(uid))

    def _is_written(self, reads: frozenset[str]) -> bool:
        return any(_meet(writes, reads) for writes in self._writing)

    def _forget(self, writes: frozenset[str]) -> None:
        if self._runs:
            self._forget_shared_runs(writes)
        if self._cached_results.may_exist:
            self._cached_results.drop_written(writes)

    def _forget_shared_runs(self, writes: frozenset[str]) -> None:
        for key in [key for key, shared in self._runs.items() if _meet(writes, shared.reads)]:
            del self._runs[key]


def _reads(approved: ApprovedCall) -> frozenset[str]:
    """Return the resources that the result is read from.

    If the tool does not declare them, there are none that calls of this engine write. If the declaration fails, they
    may be any.
    """
    call = approved.call
    if call.tool.tool.reads is None:
        return frozenset()
    touched = call.tool.touched(call.arguments, call.scope)
    return ANYTHING if touched is None else touched.reads


def _same(one: Checked, other: Checked) -> bool:
    """Return whether hooks have left a result unchanged; notes about its conversion are ignored."""
    if one is other:
        return True
    try:
        return encode_checked(replace(one, notes=())) == encode_checked(replace(other, notes=()))
    except ValueError:  # no valid Unicode
        return False


def _meet(writes: frozenset[str], reads: frozenset[str]) -> bool:
    return any(meet(write, read) for write in writes for read in reads)
