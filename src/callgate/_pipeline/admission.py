"""Admit runs and calls: acquire the lease of a run, and create the state of each call in its run.

Runs before `parse`. Checks scopes, and the properties that a call needs to be recorded at all. `EngineRuns` is the interface for code that
works on whole runs, such as the agent loop. Knows no tool.
"""

from __future__ import annotations

import asyncio
from asyncio import get_running_loop
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from operator import attrgetter

from msgspec.structs import replace

from callgate._abort_signals import AbortSignal
from callgate._json import text_if_small
from callgate._pipeline.ask_judges import Judges
from callgate._pipeline.call_state import CallState, Nest
from callgate._pipeline.engine_lifecycle import Lifecycle
from callgate._pipeline.engine_options import EngineContext, HostFields
from callgate._pipeline.known_runs import KnownRuns
from callgate._pipeline.open_runs import NO_SCOPE, LatestScope, OpenRuns
from callgate._pipeline.outcomes import Outcomes
from callgate._pipeline.run_leases import RunLeases
from callgate._run_state.event_bodies import MOST_CHARS, ScopeFacts, valid_text, with_id
from callgate._run_state.run_recovery import Unfinished
from callgate.calls import RawCall, Scope, ToolResult
from callgate.errors import RecordFailed, RunHeld, UsageError
from callgate.events import Body, Draft
from callgate.messages import Message

__all__ = ["Admission", "EngineRuns", "check_call", "check_scope"]

_NAMES = ("run", "conversation", "tick", "message_id", "phase", "principal", "actor", "workspace", "locale", "provider")
_WORDS = attrgetter(*_NAMES)
_KINDS = ({str}, int, int, bool, bool)
"""The types of a scope's text values, and of its numbers and switches."""
_EXPECTED = {str: "text", int: "a whole number", bool: "True or False"}


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
        known: KnownRuns,
        open_runs: OpenRuns,
        latest: LatestScope,
        lifecycle: Lifecycle,
        leases: RunLeases,
        run: str,
        *,
        is_new: bool,
        host_fields: HostFields | None,
    ) -> None:
        self._clock = context.clock
        self._recorder = context.recorder
        self._known = known
        self._lifecycle = lifecycle
        self._leases = leases
        self._run = run
        self._is_new = is_new
        self._host_fields = host_fields
        self._open_runs = open_runs
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
        placed = self.placed(scope)
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
        placed = self.placed(scope)
        if self._host_fields is not None:
            self.check_extra(scope)
        if not self._is_open(placed.run):
            return False
        self._take(scope, placed)
        self._latest.opened = scope
        return True

    def _is_open(self, run: str) -> bool:
        return self._known.is_open(run, new=self._is_new and run == self._run)

    def admit(
        self,
        raw: RawCall,
        scope: Scope,
        kill: AbortSignal,
        nest: Nest,
        *,
        cause: int = 0,
        unfinished: Unfinished | None = None,
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
        if type(raw.id) is not str or not raw.id.isascii() or type(raw.name) is not str or not raw.name.isascii():
            cut = self._recorder.cut
            raw = replace(raw, id="" if raw.id is None else cut(raw.id), name=cut(raw.name or ""))
        elif len(raw.id) > MOST_CHARS or len(raw.name) > MOST_CHARS:
            raw = replace(raw, id=self._recorder.cut(raw.id), name=self._recorder.cut(raw.name))
        if not raw.id:
            raw = with_id(raw, self._clock)
        if scope is not self._latest.scope:
            self.check(scope)
        placed = self._latest.placed
        state = self._known.by_run.get(placed.run) or self._known.state(placed.run)
        began, uid, last, doubtful = self._clock.monotonic(), "", cause or state.position, False
        if unfinished is None:
            uid = state.next_uid(placed.iteration)
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
            began=began,
            last=last,
            unfinished=unfinished,
            doubtful=doubtful,
        )

    def admit_nested(self, raw: RawCall, parent: CallState) -> CallState:
        """Create the state of a call that a tool makes.

        It shares the run, scope, deadline and kill signal of its parent, which causes it.
        """
        raw = with_id(raw, self._clock)
        state = self._known.state(parent.scope.run)
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
            identical=parent.made,
        )

    def check(self, scope: Scope) -> None:
        """Raise `UsageError` if the scope is invalid. A valid one is kept for the calls that use it.

        Raises:
            UsageError: The value is not a scope, one of its fields has the wrong type, or its `extra` is not as declared.
        """
        if scope is not self._latest.scope:
            placed = self.placed(scope)
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
        latest.scope, latest.placed, latest.opened = scope, placed, NO_SCOPE
        latest.facts = ScopeFacts(placed, self._recorder.redactor)

    def placed(self, scope: Scope) -> Scope:
        """Return the scope with a run: its own, or else the engine's.

        Raises:
            UsageError: The scope is invalid.
        """
        check_scope(scope)
        return _recordable(scope if scope.run else replace(scope, run=self._run))


def check_call(raw: object) -> None:
    """Raise `UsageError` if `raw` is not a call."""
    if not isinstance(raw, RawCall):
        raise UsageError(
            f"A {type(raw).__name__} was handed in as a call. Make a RawCall of it: RawCall.from_provider(item) for a call from a"
            " provider's SDK, or RawCall(name=..., arguments=..., id=...)."
        )
    if raw.idempotency_key is not None and not isinstance(raw.idempotency_key, str):
        raise UsageError(f"RawCall.idempotency_key is {raw.idempotency_key!r:.80}; it must be text, or None.")


def check_scope(scope: object) -> None:
    """Raise `UsageError` if a value of the scope can be neither recorded nor compared."""
    if not isinstance(scope, Scope):
        raise UsageError(f"A {type(scope).__name__} was handed in as a scope. Give callgate.Scope(...), or leave it out.")
    kinds = set(map(type, _WORDS(scope))), type(scope.turn), type(scope.iteration), type(scope.deliberate), type(scope.surface_errors)
    if kinds == _KINDS and scope.allowed_tools is None:
        return
    for name, kind, value in (*_text_of(scope), *_others_of(scope)):
        if not isinstance(value, kind):
            raise UsageError(f"Scope.{name} is {value!r:.80}; it must be {_EXPECTED[kind]}.")
    allowed: object = scope.allowed_tools
    if allowed is not None and not isinstance(allowed, (frozenset, set, tuple, list)):
        raise UsageError(f"Scope.allowed_tools is {allowed!r:.80}; it must be a frozenset of names, or None for all tools.")


def _others_of(scope: Scope) -> Iterator[tuple[str, type, object]]:
    yield "turn", int, scope.turn
    yield "iteration", int, scope.iteration
    yield "deliberate", bool, scope.deliberate
    yield "surface_errors", bool, scope.surface_errors


def _text_of(scope: Scope) -> Iterator[tuple[str, type, object]]:
    return ((name, str, value) for name, value in zip(_NAMES, _WORDS(scope), strict=True))


def _recordable(scope: Scope) -> Scope:
    """Return the scope if its text can be recorded.

    Raises:
        UsageError: A field is not valid Unicode.
    """
    if "".join(_WORDS(scope)).isascii():
        return scope
    for name, value in zip(_NAMES, _WORDS(scope), strict=True):
        if not value.isascii() and valid_text(value) != value:
            raise UsageError(f"Scope.{name} is not valid Unicode: {value[:80]!a}. Give text that UTF-8 can hold.")
    return scope


class EngineRuns:
    """The runs of one engine, for code that works on whole runs, such as the agent loop.

    Deals with single calls only to abandon one that an interrupted run left open.
    """

    def __init__(
        self,
        context: EngineContext,
        admission: Admission,
        leases: RunLeases,
        outcomes: Outcomes,
        lifecycle: Lifecycle,
        judges: Judges,
        start_servers: Callable[[], Awaitable[None]],
    ) -> None:
        self._judges = judges
        self._start_servers = start_servers
        self._journal = context.journal
        self._recorder = context.recorder
        self._admission = admission
        self._leases = leases
        self._outcomes = outcomes
        self._lifecycle = lifecycle
        self._conversations = context.conversations

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The event loop that the engine belongs to; None if it belongs to none yet."""
        return self._lifecycle.loop

    async def open(self, scope: Scope, *, new: bool = False) -> None:
        """Acquire the lease of a scope's run and load its state, with the engine's servers started. Runs no call.

        Args:
            scope: The scope that names the run.
            new: Whether the run's id has just been made, so that no other engine can know it.

        Raises:
            RunHeld: Another engine works on the run.
            RecordFailed: The record cannot be read.
            UsageError: A server that the engine needs cannot be started.
        """
        await self._start_servers()
        await self._admission.open(scope, new=new)

    def check_extra(self, scope: Scope) -> None:
        """Check before a run begins, instead of at its first call, that the scope's `extra` is as declared.

        Raises:
            UsageError: It is not as declared.
        """
        self._admission.check_extra(scope)

    def at_work(self, run: str, conversation: str | None = None, *, alone: bool = False) -> AbstractContextManager[asyncio.Event]:
        """Keep the run's lease until the block ends. Another engine may acquire it after that.

        The yielded event is set when another process requests that the run is stopped or killed before it begins.

        Args:
            alone: Whether no other code of this engine may work on the run at the same time.

        Raises:
            UsageError: `alone` is set and the run is already being worked on; or the engine is closed, or belongs to another event loop.
        """
        self._lifecycle.check_open()
        return self._leases.at_work(run, conversation, alone=alone)

    def showing(self, run: str, messages: Sequence[Message]) -> AbstractContextManager[None]:
        """Show a run's conversation to the judges of its calls until the block ends."""
        return self._judges.showing(run, messages)

    def begin(self, run: str) -> None:
        """Deliver messages of other processes to a run that begins its turn. A stop that was sent earlier ends the run now."""
        self._leases.begin(run)

    def under_way(self, conversation: str) -> bool:
        """Return whether a turn of the conversation, or a call in it, is running."""
        return self._conversations.busy(conversation) or self._lifecycle.conversing(conversation)

    def why_lost(self, run: str) -> str:
        """Return why the run's lease was lost; empty if it was not."""
        return self._leases.why_lost(run)

    def write(self, kind: str, run: str, body: Body, parents: tuple[int, ...] = ()) -> int:
        """Record an event that belongs to no call, and return its position.

        Raises:
            RecordFailed: The event could not be written.
        """
        return self._recorder.write(Draft(kind=kind, run=run, body=body, parents=parents))

    async def durable(self, position: int) -> None:
        """Wait until an event is as durable as the journal guarantees.

        Raises:
            RecordFailed: The event could not be made durable.
        """
        await self._recorder.durable(position)

    async def placed(self, position: int) -> int:
        """Return the final position of an event from the position that `write` returned; 0 if the event was not kept."""
        try:
            await self._recorder.durable(position)
        except RecordFailed:
            return 0
        return self._journal.final_position(position)

    def abandon(self, unfinished: Unfinished, scope: Scope, why: str) -> None:
        """Record the end of a call that a run left open and that will not be resumed. Does not run the call."""
        state = self._admission.admit(RawCall(name=unfinished.name), scope, AbortSignal(), _no_nested_call, unfinished=unfinished)
        state.started = unfinished.claimed
        self._outcomes.cancelled(state, why)


async def _no_nested_call(parent: CallState, name: str, arguments: Mapping[str, object]) -> ToolResult:
    raise RuntimeError(f"{parent.uid} was abandoned and calls no other tool.")
