"""Run the calls of one message, from the moment each is complete in the stream to their outcomes.

Exit calls become signals and are left out; the rest go to one emission of the engine, which orders and holds them, as early as they are
final. If the message fails, the calls that it started are discarded. Knows no history.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from callgate._pipeline.recovery import Unfinished
from callgate.agent.exit_tools import ExitTools, as_signal
from callgate.agent.results import Signal
from callgate.calls import Answered, Outcome, RawCall, Scope, ToolResult
from callgate.decide import REFUSED_BY_LOOP
from callgate.emission import Emission, EndedCall
from callgate.engine import Engine
from callgate.errors import CallFailed
from callgate.messages import ToolCall
from callgate.models.events import CallReopened, CallSealed
from callgate.stream.pass_result import Closed

__all__ = ["BROKEN_OFF", "CallContext", "MessageCalls", "UncommittedCall", "raw_call"]


BROKEN_OFF: Final = "broken_off"
"""The code of a result that stands for a call which was broken off with its engine."""
_TOGETHER: Final = 64
"""Calls that are handed on before the event loop comes round."""


def raw_call(call: ToolCall, closed: Closed, origin: str) -> RawCall:
    """Return a message's call as the engine takes it; free text becomes the one argument `input`."""
    arguments: object = {"input": call.arguments} if call.custom else call.arguments
    raw = RawCall(id=call.id, name=call.name, arguments=arguments, origin=origin, closed=closed)  # type: ignore[arg-type]
    if not (call.reasoning or call.lifted):
        return raw
    return replace(raw, reasoning=call.reasoning if isinstance(call.reasoning, str) else "", lifted=call.lifted is True)


class UncommittedCall(Struct, frozen=True, kw_only=True):
    """The recorded state of one call of a message that was not committed."""

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
        """Whether the call counts as one of the run's without being reserved again. Calls that the loop refused do not count."""
        result = self.outcome.result if type(self.outcome) is Answered else None
        return (bool(self.uid) or self.refusal is not None) and (result is None or result.code not in REFUSED_BY_LOOP)

    @property
    def over(self) -> bool:
        """Whether it has ended; with or without an outcome."""
        return bool(self.uid) and self.unfinished is None


_NEW: Final = UncommittedCall()


class CallContext(Struct, frozen=True, kw_only=True, eq=False):
    """What the calls of all messages of one turn have in common."""

    engine: Engine
    """Runs them."""
    exits: ExitTools | None
    """None where there are none."""
    may_run: Callable[[ToolCall, int], CallFailed | None]
    """Asked once per call, in order, with its place among the message's calls; an error refuses the call."""
    give_back: Callable[[int], None]
    """Told how many of the calls that were let run were dropped with their message."""
    origin: str
    """The provider API, for the record."""
    on_result: Callable[[ToolResult], None] | None = None
    """Told the result of each call before the restart handler is offered it."""


class MessageCalls(Struct, eq=False):
    """Runs the calls of one message."""

    context: CallContext
    scope: Scope
    """Of this message; `iteration` is its number."""
    early: bool
    """Whether calls may start before the message is complete."""
    cause: int = 0
    """The position of the event that causes the calls which are handed in next."""
    _emission: Emission | None = None
    _sealed: dict[int, ToolCall] = {}
    """The calls that are sealed so far, by position; each as it was first."""
    _spoiled: bool = False
    """Whether a call went on after it was handed in."""

    def see(self, event: CallSealed | CallReopened) -> None:
        """Take an event of the stream, and hand in calls as soon as they are complete."""
        if isinstance(event, CallReopened):
            self._sealed.pop(event.position, None)
            if self._emission is not None and self._emission.reopen(event.position):
                self._spoiled = True
        elif event.closed == "sealed":
            self._sealed.setdefault(event.position, event.call)
            if self.early and not self._spoiled:
                self._hand_in(event.call, event.closed, event.position)

    async def ended(self, calls: tuple[ToolCall, ...], closed: tuple[Closed, ...]) -> list[EndedCall]:
        """Run the calls of the complete message. Return how each ended, by position; exit calls have no outcome."""
        if self._emission is not None and not self._as_handed_in(calls, self._emission):
            await self.drop("a call was changed after its end")
            self._emission, self.early = None, False
        emission = self._emission or self._opened()
        position = emission.taken
        while position < len(calls):
            self._hand_in(calls[position], closed[position], position)
            position = emission.taken
            if position % _TOGETHER == 0:
                await asyncio.sleep(0)
        return await emission.ended()

    async def take_up(
        self, calls: tuple[ToolCall, ...], closed: tuple[Closed, ...], left: Mapping[int, UncommittedCall]
    ) -> list[EndedCall]:
        """Run the calls of a message that another engine began: those that ended keep their results, the others are handed in.

        Args:
            left: What the record says, by the call's place; a call that it says nothing of is handed in like a new one.
        """
        self.early = False
        emission = self._opened()
        for place, call in enumerate(calls):
            known = left.get(place, _NEW)
            if known.over:
                emission.leave_out(place, EndedCall(outcome=known.outcome, uid=known.uid, position=known.position, arguments=known.final))
                if self.context.on_result is not None and isinstance(known.outcome, Answered):
                    self.context.on_result(known.outcome.result)
            else:
                self._hand_in(call, closed[place], place, known)
        return await emission.ended()

    @property
    def sealed_exits(self) -> tuple[ToolCall, ...]:
        """The exit calls that are complete so far."""
        if self.context.exits is None:
            return ()
        return tuple(call for _, call in sorted(self._sealed.items()) if self._exit_of(call) is not None)

    def signals_of(self, calls: Iterable[ToolCall]) -> list[Signal]:
        """Return the signals of the exit calls among these."""
        return [as_signal(call, self.scope.iteration, name) for call in calls if (name := self._exit_of(call)) is not None]

    async def drop(self, reason: str) -> None:
        """Discard the message, which failed: end the calls that it started."""
        emission = self._emission
        if emission is not None and not emission.over:
            self.context.give_back(emission.accepted)
            await emission.discard(reason)

    def _as_handed_in(self, calls: tuple[ToolCall, ...], emission: Emission) -> bool:
        """Whether the complete message has the calls that were handed in while it streamed, unchanged."""
        for position, before in self._sealed.items():
            if position >= len(calls) or not (before == calls[position] or _same(before, calls[position])):
                self._spoiled = emission.reopen(position) or self._spoiled
        return not self._spoiled

    def _exit_of(self, call: ToolCall) -> str | None:
        """Return the name of the exit tool that the call is for, or None."""
        return self.context.exits.meant(call.name) if self.context.exits is not None else None

    def _opened(self) -> Emission:
        context = self.context
        self._emission = context.engine.emission(self.scope, early=self.early, on_result=context.on_result)
        return self._emission

    def _hand_in(self, call: ToolCall, closed: Closed, position: int, known: UncommittedCall = _NEW) -> None:
        context, emission = self.context, self._emission or self._opened()
        if context.exits is not None and context.exits.meant(call.name) is not None:
            emission.leave_out(position)
            return
        emission.cause = self.cause
        refusal = known.refusal or (partial(context.may_run, call) if known.unfinished is None else None)
        emission.add(raw_call(call, closed, context.origin), position=position, refusal=refusal, unfinished=known.unfinished)


def _same(before: ToolCall, now: ToolCall) -> bool:
    """Whether two versions of a call have the same name, arguments and id."""
    return (before.name, before.arguments, before.id, before.custom) == (now.name, now.arguments, now.id, now.custom)
