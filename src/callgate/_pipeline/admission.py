"""Admit runs and calls: acquire the lease of a run, and create the state of each call in its run.

Runs before `parse`. Checks scopes, and the properties that a call needs to be recorded at all. Knows no tool.
"""

from __future__ import annotations

import logging
from asyncio import get_running_loop
from collections.abc import Awaitable, Callable

from msgspec import Struct
from msgspec.structs import replace

from callgate._abort_signals import AbortSignal
from callgate._json import text_if_small
from callgate._pipeline.call_state import CallState, Nest
from callgate._pipeline.engine_context import EngineContext
from callgate._pipeline.engine_lifecycle import Lifecycle
from callgate._pipeline.host_fields import HostFields
from callgate._pipeline.open_runs import NO_SCOPE, LatestScope, OpenRuns
from callgate._pipeline.run_states import RunStates
from callgate._pipeline.scope_checks import check_call, check_scope, check_text
from callgate._run_state.event_bodies import MOST_CHARS, ScopeFacts, with_id
from callgate._run_state.run_recovery import UnfinishedCall
from callgate.calls import RawCall, Scope
from callgate.errors import RecordFailed, RunHeld

__all__ = ["Admission", "RunOfMessage"]

log = logging.getLogger("callgate")


class Admission:
    """Admits the runs and calls of one engine. A scope is usually shared by all calls of a turn, so the latest one is checked only once.

    Args:
        latest: The scope that was checked last.
        run: The engine's own run, for scopes that name none.
        is_new: Whether the id of that run was made for this engine, so that no other engine can know it.
        host_fields: The host's declaration of `Scope.extra`; None: not declared.
    """

    def __init__(
        self,
        context: EngineContext,
        run_states: RunStates,
        open_runs: OpenRuns,
        latest: LatestScope,
        lifecycle: Lifecycle,
        run: str,
        *,
        is_new: bool,
        host_fields: HostFields | None,
    ) -> None:
        self._clock = context.clock
        self._recorder = context.recorder
        self._run_states = run_states
        self._lifecycle = lifecycle
        self._run = run
        self._is_new = is_new
        self._host_fields = host_fields
        self._open_runs = open_runs
        self._tools = context.tools
        self._survives = context.survives
        self._has_warned = self._has_warned_of_run = False
        self._latest = latest

    async def open(self, scope: Scope, *, new: bool = False) -> None:
        """Acquire the lease of a scope's run and load its state, without blocking the event loop. Runs no call.

        Args:
            scope: The scope that names the run.
            new: Whether the run's id has just been made, so that no other engine can know it.

        Raises:
            RunHeld: Another engine works on the run.
            RecordFailed: The record cannot be read.
        """
        self._lifecycle.check_open()
        placed = self.scope_with_run(scope)
        try:
            await self._open_runs.open(placed.run, new=new or (placed.run == self._run and self._is_new))
        except RunHeld:
            raise
        except Exception as error:
            self._lifecycle.check_open()  # it was closed meanwhile, and its journal with it
            raise RecordFailed(
                f"The record of run '{placed.run[:80]}' cannot be read ({error}). Nothing is run until it can be.",
                told="The record of calls cannot be read.",
            ) from error
        self._take(scope, placed)
        if self._is_open(placed.run):
            self._latest.opened = scope

    def open_nowait(self, scope: Scope) -> bool:
        """Use a scope whose run is open, without waiting. Return False if `open` is needed.

        Raises:
            UsageError: The scope is invalid, or the engine is closed or belongs to another event loop.
        """
        self._lifecycle.check_open()
        placed = self.scope_with_run(scope)
        if self._host_fields is not None:
            self.check_extra(scope)
        if not self._is_open(placed.run):
            return False
        self._take(scope, placed)
        self._latest.opened = scope
        return True

    def run_of_message(self, scope: Scope, acquire: Callable[[Scope], Awaitable[None]]) -> RunOfMessage:
        """Return the run of the calls of a message, which `acquire` opens."""
        if not scope.run and self._is_new and self._survives and not self._has_warned_of_run:
            self._warn_of_unnamed_run()
        return RunOfMessage(scope, self.scope_with_run(scope).run, self, acquire)

    def is_usable(self, run: str) -> bool:
        """Return whether calls of a run can be admitted now: it is open, an agent works on it, or no other engine can know it."""
        return (self._is_new and run == self._run) or self._run_states.is_at_work(run) or self._is_open(run)

    def _is_open(self, run: str) -> bool:
        return self._run_states.is_open(run, new=self._is_new and run == self._run)

    def admit(
        self,
        raw: RawCall,
        scope: Scope,
        kill: AbortSignal,
        nest: Nest,
        *,
        cause: int = 0,
        unfinished: UnfinishedCall | None = None,
    ) -> CallState:
        """Create the state of a call in its run. A call of a resumed run gets the state that it had before the run was interrupted.

        Args:
            nest: Runs calls of other tools that this call's tool makes.
            cause: The position of the event that causes the call.
            unfinished: The recorded state of the call, if another engine started it and its run is resumed.
        """
        if self._lifecycle.closed or self._lifecycle.loop is not get_running_loop():
            self._lifecycle.check_open()
        if type(raw) is not RawCall or raw.idempotency_key is not None:
            check_call(raw)
        is_plain = type(raw.id) is str and type(raw.name) is str and raw.id.isascii() and raw.name.isascii()
        if not is_plain or len(raw.id) > MOST_CHARS or len(raw.name) > MOST_CHARS:
            cut = self._recorder.cut
            raw = replace(raw, id="" if raw.id is None else cut(raw.id), name=cut(raw.name or ""))
        if not raw.id:
            raw = with_id(raw, self._clock)
        if scope is not self._latest.scope:
            self.check(scope)
        placed = self._latest.with_run
        state = self._run_states.by_run.get(placed.run) or self._run_states.state(placed.run)
        if unfinished is None:
            uid, last, doubtful = state.next_uid(placed.iteration), cause or state.position, False
        else:
            uid, last, doubtful = unfinished.uid, unfinished.position, unfinished.claimed
        return CallState(
            raw=raw,
            arguments=raw.arguments if type(raw.arguments) is str else text_if_small(raw.arguments),
            scope=placed,
            run_state=state,
            recorder=self._recorder,
            uid=uid,
            kill=kill,
            facts=self._latest.facts,
            nest=nest,
            began=self._clock.monotonic(),
            last=last,
            unfinished=unfinished,
            doubtful=doubtful,
        )

    def admit_nested(self, raw: RawCall, parent: CallState) -> CallState:
        """Create the state of a call that a tool makes.

        It shares the run, scope, deadline and kill signal of its parent, which causes it.
        """
        raw = with_id(raw, self._clock)
        state = self._run_states.state(parent.scope.run)
        return CallState(
            raw=raw,
            arguments=raw.arguments if type(raw.arguments) is str else text_if_small(raw.arguments),
            scope=parent.scope,
            run_state=state,
            recorder=self._recorder,
            uid=state.next_uid(parent.scope.iteration),
            kill=parent.kill,
            facts=parent.facts,
            nest=parent.nest,
            began=self._clock.monotonic(),
            last=parent.last,
            parent=parent,
            deadline=parent.deadline,
            identical=parent.number_nested(),
        )

    def check(self, scope: Scope) -> None:
        """Raise `UsageError` if the scope is invalid. A valid one is kept for the calls that use it.

        Raises:
            UsageError: The value is not a scope, one of its fields has the wrong type, or its `extra` is not as declared.
        """
        if scope is not self._latest.scope:
            placed = self.scope_with_run(scope)
            if self._host_fields is not None:
                self.check_extra(scope)
            self._take(scope, placed)

    def check_extra(self, scope: Scope) -> None:
        """Check that the scope's `extra` is as the host has declared it.

        Raises:
            UsageError: It is not as declared.
        """
        if self._host_fields is not None:
            self._host_fields.check(scope.extra)

    def _take(self, scope: Scope, placed: Scope) -> None:
        """Keep the values computed from a scope, for the calls that use it."""
        latest = self._latest
        latest.scope, latest.with_run, latest.opened = scope, placed, NO_SCOPE
        latest.facts = ScopeFacts(placed, self._recorder.redactor)

    def scope_with_run(self, scope: Scope) -> Scope:
        """Return the scope with a run: its own, or else the engine's.

        Raises:
            UsageError: The scope is invalid.
        """
        check_scope(scope)
        if scope.allowed_tools is not None and not scope.deliberate:
            self._warn_of_allowed_tools()
        placed = scope if scope.run else replace(scope, run=self._run)
        check_text(placed)
        return placed

    def _warn_of_allowed_tools(self) -> None:
        """Log, once for each engine, that a scope has an allowlist that is not used."""
        if not self._has_warned:
            self._has_warned = True
            log.warning(
                "Scope.allowed_tools does not block any tool without deliberate=True. Give both: Scope(deliberate=True, allowed_tools=...)"
            )

    def _warn_of_unnamed_run(self) -> None:
        """Log, once for each engine, that calls with effects would be repeated by a program that starts again."""
        repeatable = next((one for one in self._tools if one.effect == "once" and one.effect_key is None), None)
        if repeatable is not None:
            self._has_warned_of_run = True
            log.warning(
                "The calls of this message are in a run without a name, which ends with the engine: if the program starts again and hands"
                " in the same message, %s has its effect again. Name the run, with the same name after a restart: Scope(run=...). This is"
                " said once for each engine.",
                repeatable.name,
            )


class RunOfMessage(Struct):
    """The run of the calls of one message, which is opened when they need it.

    Calls are admitted only while it is open, because otherwise another engine may work on it.
    """

    scope: Scope
    run: str
    """The id of the run: the scope's, or else the engine's own."""
    admission: Admission
    acquire: Callable[[Scope], Awaitable[None]]

    @property
    def is_open(self) -> bool:
        return self.admission.is_usable(self.run)

    async def open(self) -> None:
        """Open the run, unless it is open.

        Raises:
            RunHeld: Another engine works on the run.
            RecordFailed: The record cannot be read.
        """
        if not self.is_open:
            await self.acquire(self.scope)
