"""How calls come in: the run they belong to, known to this engine and to no other, and their own place in it.

Before `parse`. A scope is one value per turn, so what is made of it is kept for all its calls. Knows no tool.
"""

from __future__ import annotations

from asyncio import get_running_loop
from contextlib import suppress
from operator import attrgetter

from msgspec.structs import replace

from callgate._pipeline.desk import Desk
from callgate._pipeline.flight import Flight
from callgate._pipeline.holding import Holding
from callgate._pipeline.life import Life
from callgate._pipeline.record import valid_text
from callgate._pipeline.unfinished import Unfinished
from callgate._signals import AbortSignal
from callgate.calls import RawCall, Scope
from callgate.errors import RecordFailed, RunHeld, UsageError

__all__ = ["Entrance"]

_WORDS = attrgetter("run", "conversation", "tick", "principal", "actor", "workspace", "locale", "provider")


class Entrance:
    """The entrance of one engine.

    Args:
        run: The engine's own run, for scopes that name none.
        is_new: Whether nobody else can know that run.
    """

    def __init__(self, desk: Desk, life: Life, holding: Holding, run: str, *, is_new: bool) -> None:
        self._desk = desk
        self._life = life
        self._holding = holding
        self._run = run
        self._is_new = is_new
        self.given: Scope | None = None
        """The scope that came last."""
        self._placed = Scope()

    async def open(self, scope: Scope, *, new: bool = False) -> None:
        """Have a scope's run to this engine, and know it, without holding up the event loop. See `Engine.open`."""
        self._life.check_open()
        placed = self._place(scope)
        try:
            await self._desk.open(placed.run, new=new or (placed.run == self._run and self._is_new))
        except RunHeld:
            raise
        except Exception as error:
            self._life.check_open()  # it was closed meanwhile, and its journal with it
            raise RecordFailed(
                f"The record of run '{placed.run[:80]}' cannot be read ({error}). Nothing is run until it can be."
            ) from error
        self.given, self._placed = scope, placed
        self._holding.take_in(placed.run)

    def admit(
        self, raw: RawCall, scope: Scope, signal: AbortSignal, occurrence: int = 0, cause: int = 0, unfinished: Unfinished | None = None
    ) -> Flight:
        """Give a call its place in its run, or the one it had before its run was cut off."""
        if self._life.closed or self._life.loop is not get_running_loop():
            self._life.check_open()
        if type(raw.id) is not str or not raw.id.isascii() or type(raw.name) is not str or not raw.name.isascii():
            raw = replace(raw, id="" if raw.id is None else valid_text(raw.id), name=valid_text(raw.name or ""))
        if scope is not self.given:
            self.given, self._placed = scope, self._place(scope)
        return self._desk.flight(raw, self._placed, signal, occurrence=occurrence, cause=cause, unfinished=unfinished)

    def _place(self, scope: Scope) -> Scope:
        return _recordable(scope if scope.run else replace(scope, run=self._run))


def _recordable(scope: Scope) -> Scope:
    """The scope, if its words can be recorded.

    Raises:
        UsageError: One of them is no valid Unicode.
    """
    with suppress(TypeError):  # a word that is none is the host's own, and is not recorded as text
        if "".join(_WORDS(scope)).isascii():
            return scope
    for name in scope.__struct_fields__:
        value = getattr(scope, name)
        if isinstance(value, str) and not value.isascii() and valid_text(value) != value:
            raise UsageError(f"Scope.{name} is no valid Unicode: {value[:80]!a}. Give text that UTF-8 can hold.")
    return scope
