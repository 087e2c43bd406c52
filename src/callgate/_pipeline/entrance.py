"""How calls come in: the run they belong to, known to this engine and to no other, and their own place in it.

Before `parse`. A scope is one value per turn, so what is made of it is kept for all its calls. Knows no tool.
"""

from __future__ import annotations

from asyncio import get_running_loop
from collections.abc import Iterator
from operator import attrgetter

from msgspec.structs import replace

from callgate._abort_signals import AbortSignal
from callgate._pipeline.desk import Desk
from callgate._pipeline.flight import Flight
from callgate._pipeline.holding import Holding
from callgate._pipeline.host_fields import HostFields
from callgate._pipeline.known_runs import KnownRuns
from callgate._pipeline.life import Life
from callgate._pipeline.record import MOST_CHARS, valid_text
from callgate._pipeline.unfinished import Unfinished
from callgate.calls import RawCall, Scope
from callgate.errors import RecordFailed, RunHeld, UsageError

__all__ = ["Entrance"]

_NAMES = ("run", "conversation", "tick", "phase", "principal", "actor", "workspace", "locale", "provider")
_WORDS = attrgetter(*_NAMES)
_KINDS = ({str}, int, int)
"""Of a scope's words, and of its two numbers."""


class Entrance:
    """The entrance of one engine.

    Args:
        run: The engine's own run, for scopes that name none.
        is_new: Whether nobody else can know that run.
        host_fields: What the host declares of every scope's `extra`; None: nothing.
    """

    def __init__(
        self, desk: Desk, known: KnownRuns, life: Life, holding: Holding, run: str, *, is_new: bool, host_fields: HostFields | None
    ) -> None:
        self._desk = desk
        self._known = known
        self._life = life
        self._holding = holding
        self._run = run
        self._is_new = is_new
        self._host_fields = host_fields
        self.given = Scope()
        """The scope that came last; at first, one that nobody has."""
        self._placed = Scope()

    async def open(self, scope: Scope, *, new: bool = False) -> None:
        """Have a scope's run to this engine, and know it, without holding up the event loop. See `RunsAtWork.open`."""
        self._life.check_open()
        placed = self._place(scope)
        try:
            await self._known.open(placed.run, new=new or (placed.run == self._run and self._is_new))
        except RunHeld:
            raise
        except Exception as error:
            self._life.check_open()  # it was closed meanwhile, and its journal with it
            raise RecordFailed(
                f"The record of run '{placed.run[:80]}' cannot be read ({error}). Nothing is run until it can be."
            ) from error
        self.given, self._placed = scope, placed
        self._holding.take_in(placed.run)

    def admit(self, raw: RawCall, scope: Scope, signal: AbortSignal, cause: int = 0, unfinished: Unfinished | None = None) -> Flight:
        """Give a call its place in its run, or the one it had before its run was cut off."""
        if self._life.closed or self._life.loop is not get_running_loop():
            self._life.check_open()
        if type(raw) is not RawCall or raw.idempotency_key is not None:
            _check_call(raw)
        if type(raw.id) is not str or not raw.id.isascii() or type(raw.name) is not str or not raw.name.isascii():
            raw = replace(raw, id="" if raw.id is None else self._desk.cut(raw.id), name=self._desk.cut(raw.name or ""))
        elif len(raw.id) > MOST_CHARS or len(raw.name) > MOST_CHARS:
            raw = replace(raw, id=self._desk.cut(raw.id), name=self._desk.cut(raw.name))
        if scope is not self.given:
            self.check(scope)
        return self._desk.flight(raw, self._placed, signal, cause=cause, unfinished=unfinished)

    def check(self, scope: Scope) -> None:
        """Refuse what is no scope; one that is stands for the calls that come with it.

        Raises:
            UsageError: It is none, one of its words is of another kind, or its `extra` is not as declared.
        """
        if scope is not self.given:
            placed = self._place(scope)
            self.check_extra(scope)
            self.given, self._placed = scope, placed

    def check_extra(self, scope: Scope) -> None:
        """Refuse a scope whose `extra` is not as the host has declared it.

        Raises:
            UsageError: It is not.
        """
        if self._host_fields is not None:
            self._host_fields.check(scope.extra)

    def _place(self, scope: Scope) -> Scope:
        _check_scope(scope)
        return _recordable(scope if scope.run else replace(scope, run=self._run))


def _check_call(raw: object) -> None:
    if not isinstance(raw, RawCall):
        raise UsageError(f"A {type(raw).__name__} was handed in as a call. Make a RawCall of it: RawCall(name=..., arguments=..., id=...).")
    if raw.idempotency_key is not None and not isinstance(raw.idempotency_key, str):
        raise UsageError(f"RawCall.idempotency_key is {raw.idempotency_key!r:.80}; it must be text, or None.")


def _check_scope(scope: object) -> None:
    """Refuse what could be neither recorded nor compared."""
    if not isinstance(scope, Scope):
        raise UsageError(f"A {type(scope).__name__} was handed in as a scope. Give callgate.Scope(...), or leave it out.")
    if (set(map(type, _WORDS(scope))), type(scope.turn), type(scope.iteration)) == _KINDS and scope.allowed_tools is None:
        return
    for name, kind, value in (*_text_of(scope), ("turn", int, scope.turn), ("iteration", int, scope.iteration)):
        if not isinstance(value, kind):
            raise UsageError(f"Scope.{name} is {value!r:.80}; it must be {'text' if kind is str else 'a whole number'}.")
    allowed: object = scope.allowed_tools
    if allowed is not None and not isinstance(allowed, (frozenset, set, tuple, list)):
        raise UsageError(f"Scope.allowed_tools is {allowed!r:.80}; it must be a frozenset of names, or None for all tools.")


def _text_of(scope: Scope) -> Iterator[tuple[str, type, object]]:
    return ((name, str, value) for name, value in zip(_NAMES, _WORDS(scope), strict=True))


def _recordable(scope: Scope) -> Scope:
    """The scope, if its words can be recorded.

    Raises:
        UsageError: One of them is no valid Unicode.
    """
    if "".join(_WORDS(scope)).isascii():
        return scope
    for name, value in zip(_NAMES, _WORDS(scope), strict=True):
        if not value.isascii() and valid_text(value) != value:
            raise UsageError(f"Scope.{name} is no valid Unicode: {value[:80]!a}. Give text that UTF-8 can hold.")
    return scope
