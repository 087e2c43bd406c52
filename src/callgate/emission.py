"""Run all calls of one assistant message: decide which run side by side and which wait, and return results in order.

A call runs beside an earlier one of its message only if both have no effect, or both declare their resources and these do not meet;
anything else waits for the earlier one. Every call is parsed before the first effect starts, so that a call without a name ends the message
before anything happened. A failing call does not cancel others. While the message still streams, calls without effect that may run beside
everything before them start early; they are adopted when the message is sealed and dropped when it is discarded. Of a message with more
calls than the limit, those above it are refused when it is sealed: none of them is taken along the route.

Calls are ordered, held and indexed here and nowhere else: a call that arrives before its turn is held until those before it have arrived,
and a call that does not take the route, such as one that another engine has ended, keeps its position.
"""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Protocol

from msgspec import Struct

from callgate._abort_signals import AbortSignal, settled
from callgate._json import canonical
from callgate._pipeline.call_state import CallState
from callgate._pipeline.concurrency import CallOrder, Footprint, QueueStarter, TaskQueue, may_run_beside
from callgate._pipeline.outcomes import Outcomes, UnstartedCalls
from callgate._pipeline.parse import has_large_arguments
from callgate._pipeline.recovery import Unfinished
from callgate.calls import Aborted, Answered, Outcome, RawCall, Scope, ToolResult
from callgate.errors import CallFailed, UsageError
from callgate.route import ApprovedCall, ValidatedCall

__all__ = ["Emission", "EndedCall", "Refusal"]

Refusal = CallFailed | Callable[[int], CallFailed | None]
"""Why a call may not run; or what is asked for that when its turn comes, with the number of the message's calls that came before."""

_FOREVER_S = 1e9
_FORGOTTEN = "what had not run will not, and nobody has the results. Seal it, or discard it where its stream fails."
_TOGETHER = 64
"""Calls that are prepared before the event loop comes round: some milliseconds."""
_BEGUN_TOGETHER = 1_024
"""Calls that are begun before the event loop comes round."""
_TOGETHER_BYTES = 262_144
"""Bytes of arguments that are prepared before the event loop comes round; after as many, a message is prepared when it is sealed."""
_MAPPING_BYTES = 16_384
"""What arguments that are no text count as, without looking into them."""
_FREE = Footprint(reads_only=True, touched=None)


class Route(Protocol):
    """What an emission needs from the engine: admission to the run, and the two halves of the route."""

    def admit(self, raw: RawCall, scope: Scope, signal: AbortSignal, *, cause: int, unfinished: Unfinished | None) -> CallState: ...
    async def parse_large(self, state: CallState) -> None: ...
    def prepare(self, state: CallState, refusal: CallFailed | None = None) -> ValidatedCall | Outcome: ...
    async def complete(self, state: CallState, call: ValidatedCall) -> Outcome: ...

    @property
    def crowded(self) -> bool:
        """Whether so much waits to be recorded that a call has to wait as well."""
        ...

    async def wait_for_capacity(self) -> None:
        """Wait until that is no longer so."""
        ...


class EndedCall(Struct, frozen=True, kw_only=True, gc=False):
    """How one call of a message ended."""

    outcome: Outcome | None = None
    """None where the call leaves no trace."""
    uid: str = ""
    """Empty for a call that was not taken along the route."""
    position: int = 0
    """Of its latest event."""
    arguments: bytes = b""
    """Its final arguments as canonical JSON: approved, or at least valid; empty where they are neither."""


_LEFT_OUT = EndedCall()


class _Slot(Struct, eq=False):
    """One call of the message."""

    state: CallState
    index: int
    refusal: CallFailed | None = None
    """Why the loop does not let the call run, where it does not."""
    size_bytes: int = 0
    """About how large its arguments are."""
    footprint: Footprint = _FREE
    """What the call touches: as it was asked for, and once it is approved, as it will run."""
    running: bool = False
    """Whether its tool may have started."""
    call: ValidatedCall | None = None
    outcome: Outcome | None = None
    waits: tuple[int, ...] = ()
    early: bool = False
    started: bool = False
    entered: bool = False
    """Whether it is on the second half of the route, which gives it its end."""
    ended: asyncio.Future[None] | None = None
    """Made by the first who waits for this call."""

    @property
    def is_new(self) -> bool:
        """Whether the call is neither prepared nor ended."""
        return self.call is None and self.outcome is None and not self.state.ended

    async def end(self, kill: AbortSignal) -> None:
        """Wait until the call has ended, whether or not it has started; or until the message is killed."""
        if self.outcome is None and not kill.aborted:
            self.ended = self.ended or asyncio.get_running_loop().create_future()
            await settled(self.ended, kill, _FOREVER_S)

    def tell(self) -> None:
        """Wake the tasks that wait for the end."""
        if self.ended is not None and not self.ended.done():
            with suppress(RuntimeError):  # the event loop of whoever waits is closed
                self.ended.set_result(None)


class _SameId(Struct, eq=False):
    """The calls of one message that the model gave the same id, in order."""

    slots: list[_Slot] = []
    _seen: int = 0
    _firsts: dict[tuple[str, bytes], _Slot] = {}

    def first_like(self, call: ValidatedCall) -> _Slot:
        """Return the first call of the same tool with the same arguments."""
        for slot in self.slots[self._seen :]:
            self._seen += 1
            if slot.call is not None:
                self._firsts.setdefault(_likeness(slot.call), slot)
        return self._firsts[_likeness(call)]


def _likeness(call: ValidatedCall) -> tuple[str, bytes]:
    return call.tool.identity, canonical(call.arguments)


class Emission:
    """The calls of one message. Add them, then `seal` once, or `discard`.

    Args:
        route: The engine.
        unstarted: Ends the calls that do not take it.
        outcomes: Waits for the record of the ends of those that do.
        scope: Of the turn; `iteration` is this message's number.
        signal: Ends every call when it fires.
        starter: Begins what can start before the message is complete.
        early: Whether calls without effect may start before the message is complete.
        on_result: Told the result of each call, refused ones included, before the restart handler is offered it. Must not raise.
        most: How many calls are taken along the route.
        parallel: How many calls may run at once.
    """

    def __init__(
        self,
        route: Route,
        unstarted: UnstartedCalls,
        outcomes: Outcomes,
        scope: Scope,
        signal: AbortSignal,
        starter: QueueStarter,
        *,
        early: bool = True,
        on_result: Callable[[ToolResult], None] | None = None,
        most: int,
        parallel: int,
    ) -> None:
        self.cause = 0
        """The position of the event that causes the calls which are added next; 0: none of this run's own."""
        self._route = route
        self._unstarted = unstarted
        self._outcomes = outcomes
        self._scope = scope
        self._early = early
        self._on_result = on_result
        self._most = most
        self._places: list[_Slot | EndedCall | RawCall] = []
        """The message's calls by position, as far as their turn has come: on the route, without one, and above the limit."""
        self._held: dict[int, Callable[[], None]] = {}
        """Takes the call at a position whose turn has not come."""
        self._surplus: list[RawCall] = []
        """The calls above the limit."""
        self.accepted = 0
        """How many of the calls that were taken have no refusal."""
        self._kill = AbortSignal(signal)
        self._slots: list[_Slot] = []
        self._first: _Slot | None = None
        """The first call that may run: it waits for none."""
        self._order: CallOrder | None = None
        """Made for the second call that may run."""
        self._ids: dict[str, _SameId] = {}
        """The calls of each of the model's ids."""
        self._queue = TaskQueue(starter, parallel)
        self._prepared_bytes = 0
        """Of arguments, before the message was sealed."""
        self._unprepared = False
        """Whether calls wait to be prepared until the message is sealed."""
        self._changed: list[_Slot] = []
        """Calls that will run with other arguments than those the plan was made for."""
        self._over = False
        self._stopped = False
        """A call ended the message; those that have not started will not."""

    @property
    def taken(self) -> int:
        """How many positions of the message have been taken; the next one is the position whose turn it is."""
        return len(self._places)

    @property
    def over(self) -> bool:
        """Whether the message was sealed or discarded."""
        return self._over

    def add(
        self, raw: RawCall, *, position: int | None = None, refusal: Refusal | None = None, unfinished: Unfinished | None = None
    ) -> int:
        """Take the next call of the message; may start it. Returns its position.

        Args:
            raw: As the model emitted it.
            position: Its position, where calls come in another order than the message's: one that is too early is held. One that was taken
                already is not taken again.
            refusal: Why the loop does not let the call run: it ends with this error, recorded like any other.
            unfinished: What the record has of this call, where its run is resumed.
        """
        if self._over:
            raise self._is_over()
        now = len(self._places)
        if position is None or position == now:
            self._take(raw, refusal, unfinished)
            if self._held:
                self._take_held()
            return now
        if position > now:
            self._held[position] = partial(self._take, raw, refusal, unfinished)
        return position

    def leave_out(self, position: int | None = None, ended: EndedCall = _LEFT_OUT) -> int:
        """Skip the next call of the message: it does not take the route, and ended as `ended` says. Return its position."""
        if self._over:
            raise self._is_over()
        now = len(self._places)
        if position is None or position == now:
            self._places.append(ended)
            if self._held:
                self._take_held()
            return now
        if position > now:
            self._held[position] = partial(self._places.append, ended)
        return position

    def reopen(self, position: int) -> bool:
        """The call at this position is not complete after all. Return whether it was taken, so that the message has to be discarded."""
        self._held.pop(position, None)
        return position < len(self._places)

    def _take_held(self) -> None:
        while (take := self._held.pop(len(self._places), None)) is not None:
            take()

    def _take(self, raw: RawCall, refusal: Refusal | None, unfinished: Unfinished | None) -> None:
        asked = len(self._slots) + len(self._surplus)
        if refusal is not None and not isinstance(refusal, CallFailed):
            refusal = refusal(asked)
        self.accepted += refusal is None
        if asked >= self._most and isinstance(raw, RawCall):
            self._surplus.append(raw)
            self._places.append(raw)
            return
        state = self._route.admit(raw, self._scope, self._kill, cause=self.cause, unfinished=unfinished)
        state.on_result = self._on_result
        arguments = state.raw.arguments
        size_bytes = len(arguments) if isinstance(arguments, (str, bytes)) else _MAPPING_BYTES
        slot = _Slot(state, asked, refusal, size_bytes=size_bytes)
        self._slots.append(slot)
        self._places.append(slot)
        self._ids.setdefault(state.raw.id, _SameId()).slots.append(slot)
        if not self._early or self._prepared_bytes >= _TOGETHER_BYTES:
            self._unprepared = True
        elif size_bytes >= _MAPPING_BYTES and has_large_arguments(state.raw):
            self._prepared_bytes, self._unprepared = _TOGETHER_BYTES, True
        else:
            self._prepared_bytes += size_bytes
            self._prepare(slot)
            if slot.call is not None and slot.call.tool.effect == "none" and not slot.waits and state.raw.closed == "sealed":
                slot.early = True
                self._start(slot)

    async def seal(self) -> list[Outcome]:
        """Run what has not run and return every call's outcome, in emission order."""
        return [one.outcome for one in await self.ended() if one.outcome is not None]

    async def ended(self) -> list[EndedCall]:
        """Seal the message; return how each of its calls ended, by position."""
        if self._over:
            raise self._is_over()
        self._over = True
        try:
            if self._unprepared or len(self._slots) >= _TOGETHER:
                await self._prepare_rest()
            if len(self._slots) > 1:
                self._unstarted.note("emission.sealed", [slot.state.uid for slot in self._slots], "")
            await self._run_rest()
            if self._surplus:
                await self._refuse_surplus()
        except asyncio.CancelledError:
            await self._end_all("the caller was cancelled")
            raise
        return self.ends

    @property
    def ends(self) -> list[EndedCall]:
        """How each call ended, by position, as far as it has."""
        ends: list[EndedCall] = []
        for place in self._places:
            if type(place) is _Slot:
                state, call = place.state, place.call
                final = state.encoded or (b"" if call is None else canonical(call.arguments))
                ends.append(EndedCall(outcome=place.outcome, uid=state.uid, position=state.last, arguments=final))
            else:
                ends.append(place if type(place) is EndedCall else _LEFT_OUT)
        return ends

    async def _prepare_rest(self) -> None:
        number, size_bytes = 0, 0
        for slot in self._slots:
            number, size_bytes = number + 1, size_bytes + slot.size_bytes
            if slot.is_new and has_large_arguments(slot.state.raw):
                await self._route.parse_large(slot.state)
            if slot.is_new:  # the message may have been ended meanwhile
                self._prepare(slot)
            if number >= _TOGETHER or size_bytes >= _TOGETHER_BYTES:
                number, size_bytes = 0, 0
                await (self._route.wait_for_capacity() if self._route.crowded else asyncio.sleep(0))

    async def _run_rest(self) -> None:
        """Run every call that is taken along the route to its outcome, and wait until all of these are on disk."""
        for slot in self._slots:
            if type(slot.outcome) is Aborted:
                await self._end_all(f"its message was ended by another call ({slot.outcome.reason})")
                break
        else:
            await self._finish()
        ended: list[_Slot] = []
        outcomes: list[tuple[CallState, Outcome]] = []
        for slot in self._slots:
            if slot.outcome is not None:
                ended.append(slot)
                outcomes.append((slot.state, slot.outcome))
        for slot, outcome in zip(ended, await self._outcomes.durable(outcomes), strict=True):
            slot.outcome = outcome

    async def _refuse_surplus(self) -> None:
        """Give the calls above the limit their outcomes."""
        outcomes = iter(await self._unstarted.above_limit(self._surplus, self._slots[0].state.scope, self._most))
        self._places = [EndedCall(outcome=next(outcomes)) if isinstance(place, RawCall) else place for place in self._places]

    async def discard(self, reason: str) -> None:
        """Discard the message, which failed or was killed: end the calls that started early and drop their results."""
        if self._over:
            return
        self._over = True
        try:
            await self._end_all(reason)
        finally:
            if self._slots:
                self._unstarted.note("emission.discarded", [slot.state.uid for slot in self._slots], reason)

    def end(self, reason: str) -> None:
        """End every call, now: what has not begun will not, what runs is killed. The outcomes can still be had from `seal`."""
        self._kill.fire(reason)
        self._end_rest(reason, [slot for slot in self._slots if not slot.entered])

    def __del__(self) -> None:
        if getattr(self, "_over", True) or not self._slots:
            return
        self._unstarted.forgotten([slot.state for slot in self._slots], "its message was dropped by the host")
        what = f"A message of {len(self._slots)} calls was neither sealed nor discarded; {_FORGOTTEN}"
        warnings.warn(what, ResourceWarning, stacklevel=2, source=self)

    def _is_over(self) -> UsageError:
        return UsageError("This emission is over: it was sealed or discarded. Begin a new one for the next message.")

    def _prepare(self, slot: _Slot) -> None:
        prepared = self._route.prepare(slot.state, slot.refusal)
        if not isinstance(prepared, ValidatedCall):
            slot.outcome = prepared
            return
        slot.call = prepared
        tool = prepared.tool
        if tool.effect != "none" or tool.tool.reads is not None or tool.tool.writes is not None:
            slot.footprint = _footprint(prepared)
        if self._first is None:
            self._first = slot
        else:
            slot.waits = self._planned(self._first, slot)

    def _planned(self, first: _Slot, slot: _Slot) -> tuple[int, ...]:
        """The indexes of the calls that must have ended before this one starts."""
        if self._order is None:
            self._order = CallOrder()
            self._order.add(first.index, first.footprint)
        return self._order.add(slot.index, slot.footprint)

    def _start(self, slot: _Slot) -> None:
        slot.state.before_start = partial(self._clear_to_start, slot)
        slot.started = True
        self._queue.add(partial(self._run, slot), 1 + slot.size_bytes * _TOGETHER // _TOGETHER_BYTES)

    async def _run(self, slot: _Slot) -> None:
        try:
            for index in slot.waits:
                await self._slots[index].end(self._kill)
            if self._route.crowded:
                await self._route.wait_for_capacity()
            if slot.outcome is None and not self._stopped and slot.call is not None:
                slot.entered = True
                if len(self._ids[slot.state.raw.id].slots) > 1:
                    await self._join_duplicate(slot, slot.call)
                slot.outcome = await self._route.complete(slot.state, slot.call)
            elif slot.outcome is None:
                slot.outcome = self._unstarted.not_started(slot.state, "the message was stopped before this call")
            self._stopped = self._stopped or isinstance(slot.outcome, Aborted)
        finally:
            slot.state.before_start = None  # or slot and state would keep each other until the garbage is collected
            if slot.ended is not None:
                slot.tell()

    async def _join_duplicate(self, slot: _Slot, call: ValidatedCall) -> None:
        """Give a duplicate of an earlier call of the message (same id, tool and arguments) the result of the earlier one."""
        first = self._ids[slot.state.raw.id].first_like(call)
        if first is slot:
            return
        slot.state.duplicate = True
        if call.tool.effect == "none":
            await first.end(self._kill)
            slot.state.first = first.outcome.result if isinstance(first.outcome, Answered) else None

    def _clear_to_start(self, slot: _Slot, approved: ApprovedCall) -> Awaitable[None] | None:
        """Where a hook or policy changed what a call touches, let it and what it now meets run one after the other."""
        if self._changed or approved.call is not slot.call:
            return self._in_turn(slot, approved)
        slot.running = True
        return None

    async def _in_turn(self, slot: _Slot, approved: ApprovedCall) -> None:
        if slot.call is not None and approved.encoded != canonical(slot.call.arguments):
            slot.footprint = _footprint(approved.call)
            self._changed.append(slot)
        if self._changed:
            while not self._kill.aborted and (other := self._in_the_way(slot)) is not None:
                await other.end(self._kill)
        slot.running = True

    def _in_the_way(self, slot: _Slot) -> _Slot | None:
        """A call that runs, or comes before a changed one, and that this one may not run beside."""
        changed = slot in self._changed
        for other in self._slots if changed else self._changed:
            if other is slot or other.outcome is not None or may_run_beside(slot.footprint, other.footprint):
                continue
            if other.running or (changed and other.index < slot.index):
                return other
        return None

    async def _finish(self) -> None:
        for number, slot in enumerate(self._slots, 1):
            if not slot.started and slot.outcome is None:
                self._start(slot)
            if number % _BEGUN_TOGETHER == 0:
                await asyncio.sleep(0)
        await self._queue.ended()
        for slot in self._slots:
            if slot.outcome is None:
                raise asyncio.CancelledError  # somebody cancelled the tasks of the message

    def _end_rest(self, why: str, slots: list[_Slot]) -> None:
        """End those of these calls that have no outcome as not started."""
        for slot in slots:
            if slot.outcome is None and not slot.state.ended:
                slot.outcome = self._unstarted.not_started(slot.state, why)

    async def _end_all(self, reason: str) -> None:
        """End every call, and wait for those that run; whoever is cancelled meanwhile leaves them to end by themselves."""
        self.end(reason)
        await asyncio.shield(self._queue.ended())
        self._end_rest(reason, self._slots)


def _footprint(call: ValidatedCall) -> Footprint:
    touched = call.tool.touched(call.arguments, call.scope)
    if call.tool.effect == "none" and touched is None:
        return _FREE
    return Footprint(call.tool.effect == "none", touched)
