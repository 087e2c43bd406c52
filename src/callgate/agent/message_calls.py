"""Run the calls of one message, from the time when each is complete in the stream to their outcomes.

Exit calls (calls of tools that only report) become signals and are not run. All other calls are handed to one
`Emission` of the engine, which keeps them in order. Each call is handed in as soon as its arguments are final. If the
message fails, the calls that it started are discarded. Knows no history.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final

from msgspec import Struct

from callgate._run_state.run_recovery import UnfinishedCall
from callgate.agent.exit_tools import ExitTools, as_signal
from callgate.agent.run_result import Signal
from callgate.calls import Answered, Outcome, Scope, ToolResult
from callgate.emission import Emission, EndedCall
from callgate.engine import Engine
from callgate.errors import CallFailed
from callgate.loop_decision import REFUSED_BY_LOOP
from callgate.messages import ToolCall
from callgate.models.model_events import CallReopened, CallSealed
from callgate.provider_responses import raw_call, same_call
from callgate.stream.pass_result import Closed

__all__ = ["BROKEN_OFF", "CallContext", "MessageCalls", "UncommittedCall"]


BROKEN_OFF: Final = "broken_off"
"""The code of the result of a call that was aborted because its engine ended."""
_TOGETHER: Final = 64
"""The number of calls that are handed in before other tasks of the event loop can run."""


class UncommittedCall(Struct, frozen=True, kw_only=True):
    """The recorded state of one call of a message that was not committed."""

    uid: str = ""
    position: int = 0
    """The position of the event that ended the call."""
    outcome: Outcome | None = None
    unfinished: UnfinishedCall | None = None
    refusal: CallFailed | None = None
    """The error that prevents the call from being started (again)."""
    final: bytes = b""
    """The final arguments of a call that has ended."""

    @property
    def counts(self) -> bool:
        """Whether the call counts against the budget without being reserved again. Calls that the loop refused do not count."""
        result = self.outcome.result if type(self.outcome) is Answered else None
        return (bool(self.uid) or self.refusal is not None) and (result is None or result.code not in REFUSED_BY_LOOP)

    @property
    def over(self) -> bool:
        """Whether the call has ended, with or without an outcome."""
        return bool(self.uid) and self.unfinished is None


_NEW: Final = UncommittedCall()


class CallContext(Struct, frozen=True, kw_only=True, eq=False):
    """The values that the calls of all messages of one turn share."""

    engine: Engine
    """Runs the calls."""
    exits: ExitTools | None
    """None if the agent has no exit tools."""
    may_run: Callable[[ToolCall, int], CallFailed | None]
    """Called once per call, in order, with the call's index in its message; a returned error refuses the call."""
    give_back: Callable[[int], None]
    """Called with the number of accepted calls that were discarded with their message."""
    origin: str
    """The provider API, which is recorded."""
    on_result: Callable[[ToolResult], None] | None = None
    """Called with the result of each call, before the restart handler gets it."""


class MessageCalls(Struct, eq=False):
    """Runs the calls of one message."""

    context: CallContext
    scope: Scope
    """The scope of this message; `iteration` is the message's number."""
    early: bool
    """Whether calls may start before the message is complete."""
    cause: int = 0
    """The position of the event that causes the calls to be handed in next."""
    _emission: Emission | None = None
    _sealed: dict[int, ToolCall] = {}
    """The calls that are sealed (known to be complete) so far, by position, each in its first version."""
    _spoiled: bool = False
    """Whether the model continued a call after it had been handed in."""

    def see(self, event: CallSealed | CallReopened) -> None:
        """Process an event of the stream. Hand in its call if the call is complete and may start early."""
        if isinstance(event, CallReopened):
            self._sealed.pop(event.position, None)
            if self._emission is not None and self._emission.reopen(event.position):
                self._spoiled = True
        elif event.closed == "sealed":
            self._sealed.setdefault(event.position, event.call)
            if self.early and not self._spoiled:
                self._hand_in(event.call, event.closed, event.position)

    async def run_to_end(self, calls: tuple[ToolCall, ...], closed: tuple[Closed, ...]) -> list[EndedCall]:
        """Run the calls of the complete message. Return how each ended, by position; exit calls have no outcome."""
        if self._emission is not None and not self._as_handed_in(calls, self._emission):
            await self.drop("a call was changed after its end")
            self._emission, self.early = None, False
        emission = self._emission or self._open()
        position = emission.next_position
        while position < len(calls):
            self._hand_in(calls[position], closed[position], position)
            position = emission.next_position
            if position % _TOGETHER == 0:
                await asyncio.sleep(0)
        return await emission.seal_with_ends()

    @property
    def ends(self) -> list[EndedCall]:
        """How each call of the message has ended so far, by position."""
        return self._emission.ends_so_far if self._emission is not None else []

    async def take_up(
        self, calls: tuple[ToolCall, ...], closed: tuple[Closed, ...], uncommitted: Mapping[int, UncommittedCall]
    ) -> list[EndedCall]:
        """Run the open calls of an interrupted or waiting run. Calls that have ended keep their results.

        Args:
            calls: The calls of the message.
            closed: For each call, how its arguments were proved complete.
            uncommitted: The recorded state of calls, by position. A call without one is handed in like a new call.
        """
        self.early = False
        emission = self._open()
        for place, call in enumerate(calls):
            known = uncommitted.get(place, _NEW)
            if known.over:
                emission.leave_out(place, EndedCall(outcome=known.outcome, uid=known.uid, position=known.position, arguments=known.final))
                if self.context.on_result is not None and isinstance(known.outcome, Answered):
                    self.context.on_result(known.outcome.result)
            else:
                self._hand_in(call, closed[place], place, known)
        return await emission.seal_with_ends()

    @property
    def sealed_exits(self) -> tuple[ToolCall, ...]:
        """The exit calls that are complete so far."""
        if self.context.exits is None:
            return ()
        return tuple(call for _, call in sorted(self._sealed.items()) if self._exit_of(call) is not None)

    def signals_of(self, calls: Iterable[ToolCall]) -> list[Signal]:
        """Return the signals of the exit calls among `calls`."""
        return [as_signal(call, self.scope.iteration, name) for call in calls if (name := self._exit_of(call)) is not None]

    async def drop(self, reason: str) -> None:
        """Discard the failed message: end the calls that it started."""
        emission = self._emission
        if emission is not None and not emission.is_over:
            self.context.give_back(emission.accepted_calls)
            await emission.discard(reason)

    def _as_handed_in(self, calls: tuple[ToolCall, ...], emission: Emission) -> bool:
        """Return whether the complete message contains the calls that were handed in while it streamed, unchanged."""
        for position, before in self._sealed.items():
            if position >= len(calls) or not (before == calls[position] or same_call(before, calls[position])):
                self._spoiled = emission.reopen(position) or self._spoiled
        return not self._spoiled

    def _exit_of(self, call: ToolCall) -> str | None:
        """Return the name of the exit tool that the call is for, or None."""
        return self.context.exits.meant(call.name) if self.context.exits is not None else None

    def _open(self) -> Emission:
        context = self.context
        self._emission = context.engine.emission(self.scope, early=self.early, on_result=context.on_result)
        return self._emission

    def _hand_in(self, call: ToolCall, closed: Closed, position: int, known: UncommittedCall = _NEW) -> None:
        context, emission = self.context, self._emission or self._open()
        if context.exits is not None and context.exits.meant(call.name) is not None:
            emission.leave_out(position)
            return
        refusal = known.refusal or (partial(context.may_run, call) if known.unfinished is None else None)
        raw = raw_call(call, closed, context.origin)
        emission.add(raw, position=position, refusal=refusal, unfinished=known.unfinished, cause=self.cause)
