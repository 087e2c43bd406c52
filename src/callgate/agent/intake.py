"""The calls of one message, from the moment each is sealed to their outcomes.

Exit calls become signals and go nowhere; the rest go to one emission of the engine, in order, as early as they are final. A message that
fails takes back what it started. Knows no history and no budgets' meaning, only whether a call may be had.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import repeat
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from callgate._pipeline.unfinished import Unfinished
from callgate.agent.exits import Exits, as_signal
from callgate.agent.results import Signal
from callgate.calls import Answered, Outcome, RawCall, Scope, ToolResult
from callgate.decide import REFUSED_BY_LOOP
from callgate.emission import Emission, EndOnRecord
from callgate.engine import Engine
from callgate.errors import CallFailed
from callgate.messages import ToolCall
from callgate.models.events import CallReopened, CallSealed
from callgate.stream.result import Closed

__all__ = ["BROKEN_OFF", "Desk", "Intake", "LeftOpen", "raw_call", "results_of"]


BROKEN_OFF: Final = "broken_off"
"""The code of a result that stands for a call which was broken off with its engine."""
_NOWHERE: Final = ("", 0, b"")
_TOGETHER: Final = 64
"""Calls that are handed on before the event loop comes round."""


def raw_call(call: ToolCall, closed: Closed, origin: str) -> RawCall:
    """A message's call as the engine takes it; free text becomes the one argument `input`."""
    arguments: object = {"input": call.arguments} if call.custom else call.arguments
    raw = RawCall(id=call.id, name=call.name, arguments=arguments, origin=origin, closed=closed)  # type: ignore[arg-type]
    if not (call.reasoning or call.lifted):
        return raw
    return replace(raw, reasoning=call.reasoning if isinstance(call.reasoning, str) else "", lifted=call.lifted is True)


class LeftOpen(Struct, frozen=True, kw_only=True):
    """What the record says of one call of a message that was not committed."""

    uid: str = ""
    position: int = 0
    """Of its end."""
    outcome: Outcome | None = None
    unfinished: Unfinished | None = None
    refusal: CallFailed | None = None
    """Why it is not started (again)."""
    final: bytes = b""
    """Its final arguments, where it has ended."""

    @property
    def counts(self) -> bool:
        """Whether it is one of the run's calls without being reserved anew: those that the loop refused are none."""
        result = self.outcome.result if type(self.outcome) is Answered else None
        return (bool(self.uid) or self.refusal is not None) and (result is None or result.code not in REFUSED_BY_LOOP)

    @property
    def over(self) -> bool:
        """Whether it has ended; one without an outcome leaves no trace."""
        return bool(self.uid) and self.unfinished is None


_NEW: Final = LeftOpen()


class Desk(Struct, frozen=True, kw_only=True, eq=False):
    """What takes the calls of all messages of one turn."""

    engine: Engine
    """Runs them."""
    exits: Exits | None
    """None where there are none."""
    may_run: Callable[[ToolCall, int], CallFailed | None]
    """Asked once per call, in order, with its place among the message's calls; an error refuses the call."""
    give_back: Callable[[int], None]
    """Told how many of the calls that were let run were dropped with their message."""
    origin: str
    """The provider API, for the record."""
    on_result: Callable[[ToolResult], None] | None = None
    """Told the result of each call before the restart handler is offered it."""


class Intake(Struct, eq=False):
    """One message's calls."""

    desk: Desk
    scope: Scope
    """Of this message; `iteration` is its number."""
    early: bool
    """Whether calls may start before the message is complete."""
    cause: int = 0
    """The position of the event that causes the calls which are handed in next."""
    ends: Sequence[EndOnRecord] = ()
    """Of each of the message's calls, once they have ended; exit calls have no uid."""
    _emission: Emission | None = None
    _held: dict[int, CallSealed] = {}
    """Calls that are sealed, but not in their turn."""
    _sealed_exits: dict[int, ToolCall] = {}
    """The exit calls that are sealed so far, by position."""
    _handed: list[ToolCall] = []
    """Calls that were handed on before the message was whole."""
    _next: int = 0
    """The position of the call that the emission takes next."""
    _asked: int = 0
    """How many calls it was asked about whether they may run."""
    _reserved: int = 0
    _spoiled: bool = False

    def see(self, event: CallSealed | CallReopened) -> None:
        """Hand on what is sealed, in the message's order."""
        self._note_exit(event)
        if isinstance(event, CallReopened):
            self._held.pop(event.position, None)
            self._spoiled = self._spoiled or event.position < self._next
        elif self.early and not self._spoiled and event.closed == "sealed":
            ready: CallSealed | None = event
            if event.position != self._next:
                self._held[event.position] = event
                return
            while ready is not None:
                self._handed.append(ready.call)
                self._add(ready.call, ready.closed)
                ready = self._held.pop(self._next, None) if self._held else None

    async def outcomes(self, calls: tuple[ToolCall, ...], closed: tuple[Closed, ...]) -> list[Outcome | None]:
        """Every call's outcome, in the message's order; None for exit calls."""
        if self._spoiled or not self._as_handed_on(calls):
            await self.drop("a call was changed after its end")
            self._emission, self._next, self._asked, self.early = None, 0, 0, False
        for position in range(self._next, len(calls)):
            self._add(calls[position], closed[position])
            if self._next % _TOGETHER == 0:
                await asyncio.sleep(0)
        outcomes = await self._ended()
        if self.desk.exits is None:
            return outcomes
        ended, ends = iter(outcomes), iter(self.ends)
        exits = [self._exit_of(call) is not None for call in calls]
        self.ends = [_NOWHERE if left else next(ends) for left in exits]
        return [None if left else next(ended) for left in exits]

    async def take_up(self, calls: tuple[ToolCall, ...], closed: tuple[Closed, ...], left: Mapping[int, LeftOpen]) -> list[Outcome | None]:
        """The outcomes of a message whose calls another engine began: what has ended stays, the rest is handed in.

        Args:
            left: What the record says, by the call's place; a call that it says nothing of is handed in like a new one.
        """
        self.early = False
        for place, call in enumerate(calls):
            known = left.get(place, _NEW)
            if not known.over and self._exit_of(call) is None:
                self._emit(call, closed[place], known)
            elif self.desk.on_result is not None and isinstance(known.outcome, Answered):
                self.desk.on_result(known.outcome.result)
        ended, ends = iter(await self._ended()), iter(self.ends)
        both: list[tuple[Outcome | None, EndOnRecord]] = []
        for place, call in enumerate(calls):
            known = left.get(place, _NEW)
            fresh = self._exit_of(call) is None and not known.over
            both.append((next(ended), next(ends)) if fresh else (known.outcome, (known.uid, known.position, known.final)))
        self.ends = [end for _, end in both]
        return [outcome for outcome, _ in both]

    async def _ended(self) -> list[Outcome | None]:
        """The outcomes of the calls that were handed in; `ends` says where theirs are."""
        self._reserved = 0
        if self._emission is None:
            return []
        outcomes = await self._emission.seal()
        self.ends = self._emission.ends
        return [*outcomes, *repeat(None, len(self.ends) - len(outcomes))]

    @property
    def sealed_exits(self) -> tuple[ToolCall, ...]:
        """The exit calls of a message that has not ended yet, as far as they are complete."""
        return tuple(self._sealed_exits[position] for position in sorted(self._sealed_exits))

    def signals_of(self, calls: Iterable[ToolCall]) -> list[Signal]:
        """What the exit calls among these say."""
        return [as_signal(call, self.scope.iteration, name) for call in calls if (name := self._exit_of(call)) is not None]

    async def drop(self, reason: str) -> None:
        """The message failed: end what started and forget it."""
        self.desk.give_back(self._reserved)
        self._reserved = 0
        if self._emission is not None:
            await self._emission.discard(reason)

    def _as_handed_on(self, calls: tuple[ToolCall, ...]) -> bool:
        """Whether the message, now that it is whole, has the calls that were handed on while it came."""
        before, now = tuple(self._handed), calls[: len(self._handed)]
        return before == now or (len(before) == len(now) and all(map(_same, before, now)))

    def _add(self, call: ToolCall, closed: Closed) -> None:
        self._next += 1
        if self._exit_of(call) is None:
            self._emit(call, closed)

    def _exit_of(self, call: ToolCall) -> str | None:
        """The exit tool that the call is for."""
        return self.desk.exits.meant(call.name) if self.desk.exits is not None else None

    def _note_exit(self, event: CallSealed | CallReopened) -> None:
        """Keep an exit call from when it is sealed, however its message ends."""
        if isinstance(event, CallReopened):
            self._sealed_exits.pop(event.position, None)
        elif event.closed == "sealed" and self._exit_of(event.call) is not None:
            self._sealed_exits[event.position] = event.call

    def _emit(self, call: ToolCall, closed: Closed, known: LeftOpen = _NEW) -> None:
        desk, emission = self.desk, self._emission
        if emission is None:
            emission = self._emission = desk.engine.emission(self.scope, early=self.early, on_result=desk.on_result)
        emission.cause = self.cause
        refusal = known.refusal or (desk.may_run(call, self._asked) if known.unfinished is None else None)
        self._asked += 1
        self._reserved += refusal is None
        emission.add(raw_call(call, closed, desk.origin), refusal=refusal, unfinished=known.unfinished)


def _same(before: ToolCall, now: ToolCall) -> bool:
    """Whether two readings of a call ask for the same thing."""
    return (before.name, before.arguments, before.id, before.custom) == (now.name, now.arguments, now.id, now.custom)


def results_of(outcomes: list[Outcome | None]) -> list[ToolResult | None]:
    """Each outcome's result, where it has one."""
    return [outcome.result if type(outcome) is Answered else None for outcome in outcomes]
