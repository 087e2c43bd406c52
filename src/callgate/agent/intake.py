"""The calls of one message, from the moment each is sealed to their outcomes.

Exit calls become signals and go nowhere; the rest go to one emission of the engine, in order, as early as they are final. A message that
fails takes back what it started. Knows no history and no budgets' meaning, only whether a call may be had.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, cast

from msgspec import Struct

from callgate._pipeline.unfinished import Unfinished
from callgate.agent.exits import Exits, as_signal
from callgate.agent.results import Signal
from callgate.calls import Answered, Outcome, RawCall, Scope, ToolResult
from callgate.emission import Emission
from callgate.engine import Engine
from callgate.errors import CallFailed
from callgate.messages import ToolCall
from callgate.models.events import CallReopened, CallSealed, ModelEvent
from callgate.stream.result import Closed

__all__ = ["BROKEN_OFF", "Intake", "LeftOpen", "raw_call", "results_of"]


BROKEN_OFF: Final = "broken_off"
"""The code of a result that stands for a call which was broken off with its engine."""
_NOWHERE: Final = ("", 0)


def raw_call(call: ToolCall, closed: str, origin: str) -> RawCall:
    """A message's call as the engine takes it; free text becomes the one argument `input`."""
    arguments: object = {"input": call.arguments} if call.custom else call.arguments
    return RawCall(id=call.id, name=call.name, arguments=arguments, origin=origin, closed=cast("Closed", closed))  # type: ignore[arg-type]


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
    def over(self) -> bool:
        """Whether it has ended; one without an outcome leaves no trace."""
        return bool(self.uid) and self.unfinished is None


_NEW: Final = LeftOpen()


class Intake:
    """One message's calls.

    Args:
        engine: Runs them.
        scope: Of this message; `iteration` is its number.
        exits: The exit tools.
        may_run: Asked once per call, in order, with its place among the message's calls; an error refuses the call.
        give_back: Told how many of the calls that it let run were dropped with their message.
        early: Whether calls may start before the message is complete.
        origin: The provider API, for the record.
    """

    __slots__ = (
        "_calls",
        "_early",
        "_emission",
        "_engine",
        "_exits",
        "_give_back",
        "_handed",
        "_held",
        "_may_run",
        "_next",
        "_origin",
        "_reserved",
        "_scope",
        "_spoiled",
        "cause",
        "ends",
        "finals",
        "signals",
    )

    def __init__(
        self,
        engine: Engine,
        scope: Scope,
        *,
        exits: Exits,
        may_run: Callable[[ToolCall, int], CallFailed | None],
        give_back: Callable[[int], None],
        early: bool,
        origin: str,
    ) -> None:
        self._engine = engine
        self._scope = scope
        self._exits = exits
        self._may_run = may_run
        self._give_back = give_back
        self._early = early
        self._origin = origin
        self._emission: Emission | None = None
        self._held: dict[int, CallSealed] = {}
        self._next = 0
        """The position of the call that the emission takes next."""
        self._calls = 0
        self._handed: list[ToolCall] = []
        """Calls that were handed on before the message was whole."""
        self._reserved = 0
        self._spoiled = False
        self.signals: list[Signal] = []
        self.cause = 0
        """The position of the event that causes the calls which are handed in next."""
        self.ends: list[tuple[str, int]] = []
        """For each of the message's calls, once they have ended: its uid (empty for exit calls) and the position of its end."""
        self.finals: list[bytes] = []
        """The final arguments of each, as canonical JSON; empty where it has none."""

    def see(self, event: ModelEvent) -> None:
        """Take what concerns calls; hand on what is sealed, in the message's order."""
        kind = type(event)
        if kind is CallSealed:
            sealed = cast("CallSealed", event)
            if self._early and not self._spoiled and sealed.closed == "sealed":
                self._held[sealed.position] = sealed
                while (ready := self._held.pop(self._next, None)) is not None:
                    self._handed.append(ready.call)
                    self._add(ready.call, ready.closed)
        elif kind is CallReopened:
            self._held.pop(cast("CallReopened", event).position, None)
            self._spoiled = self._spoiled or cast("CallReopened", event).position < self._next

    async def outcomes(self, calls: tuple[ToolCall, ...], closed: tuple[Closed, ...]) -> list[Outcome | None]:
        """Every call's outcome, in the message's order; None for exit calls."""
        if self._spoiled or not self._as_handed_on(calls):
            await self.drop("a call was changed after its end")
            self._emission, self._next, self._calls, self._early = None, 0, 0, False
            self.signals.clear()
        for position in range(self._next, len(calls)):
            self._add(calls[position], closed[position])
        self._reserved = 0
        ended, ends, finals = await self._ended()
        exits = [self._is_exit(call) for call in calls]
        self.ends = [_NOWHERE if left else next(ends, _NOWHERE) for left in exits]
        self.finals = [b"" if left else next(finals, b"") for left in exits]
        return [None if left else next(ended, None) for left in exits]

    async def take_up(self, calls: tuple[ToolCall, ...], closed: tuple[Closed, ...], left: Mapping[int, LeftOpen]) -> list[Outcome | None]:
        """The outcomes of a message whose calls another engine began: what has ended stays, the rest is handed in.

        Args:
            left: What the record says, by the call's place; a call that it says nothing of is handed in like a new one.
        """
        self._early = False
        ids: dict[str, int] = {}
        for place, call in enumerate(calls):
            occurrence = ids.get(call.id, 0)
            if self._signalled(call):
                continue
            ids[call.id] = occurrence + 1
            known = left.get(place, _NEW)
            if not known.over:
                self._emit(call, closed[place], known, occurrence)
        self._reserved = 0
        ended, ends, finals = await self._ended()
        outcomes: list[Outcome | None] = []
        for place, call in enumerate(calls):
            known = left.get(place, _NEW)
            fresh = not self._is_exit(call) and not known.over
            self.ends.append(next(ends, _NOWHERE) if fresh else (known.uid, known.position))
            self.finals.append(next(finals, b"") if fresh else known.final)
            outcomes.append(next(ended, None) if fresh else known.outcome)
        return outcomes

    async def _ended(self) -> tuple[Iterator[Outcome], Iterator[tuple[str, int]], Iterator[bytes]]:
        """The outcomes of the calls that were handed in, where their ends are, and their final arguments."""
        if self._emission is None:
            return iter(()), iter(()), iter(())
        outcomes = await self._emission.seal()
        return iter(outcomes), iter(self._emission.ends), iter(self._emission.finals)

    def signals_of(self, calls: Iterable[ToolCall]) -> list[Signal]:
        """What the exit calls of a message say whose other calls do not run."""
        return [as_signal(call, self._scope.iteration, name) for call in calls if (name := self._exits.meant(call.name)) is not None]

    async def drop(self, reason: str) -> None:
        """The message failed: end what started and forget it."""
        self._give_back(self._reserved)
        self._reserved = 0
        if self._emission is not None:
            await self._emission.discard(reason)

    def _as_handed_on(self, calls: tuple[ToolCall, ...]) -> bool:
        """Whether the message, now that it is whole, has the calls that were handed on while it came."""
        if len(self._handed) > len(calls):
            return False
        return all(before is now or _same(before, now) for before, now in zip(self._handed, calls, strict=False))

    def _add(self, call: ToolCall, closed: Closed) -> None:
        self._next += 1
        if not self._signalled(call):
            self._emit(call, closed, _NEW)

    def _is_exit(self, call: ToolCall) -> bool:
        return bool(self._exits) and self._exits.meant(call.name) is not None

    def _signalled(self, call: ToolCall) -> bool:
        """Whether this is an exit call, which is taken down and goes nowhere."""
        name = self._exits.meant(call.name) if self._exits else None
        if name is not None:
            self.signals.append(as_signal(call, self._scope.iteration, name))
        return name is not None

    def _emit(self, call: ToolCall, closed: Closed, known: LeftOpen, occurrence: int = 0) -> None:
        if self._emission is None:
            self._emission = self._engine.emission(self._scope, early=self._early)
        self._emission.cause = self.cause
        refusal = known.refusal or (self._may_run(call, self._calls) if known.unfinished is None else None)
        self._calls += 1
        self._reserved += refusal is None
        raw = raw_call(call, closed, self._origin)
        self._emission.add(raw, refusal=refusal, unfinished=known.unfinished, occurrence=occurrence)


def _same(before: ToolCall, now: ToolCall) -> bool:
    """Whether two readings of a call ask for the same thing."""
    return (before.name, before.arguments, before.id, before.custom) == (now.name, now.arguments, now.id, now.custom)


def results_of(outcomes: list[Outcome | None]) -> list[ToolResult | None]:
    """Each outcome's result, where it has one."""
    return [outcome.result if isinstance(outcome, Answered) else None for outcome in outcomes]
