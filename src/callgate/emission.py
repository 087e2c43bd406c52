"""Run all calls of one assistant message: decide which run concurrently and which wait, and return results in order.

A call runs concurrently with an earlier one of its message only if both have no effect, or if both declare their resources and these do not
conflict; otherwise it waits for the earlier one. Every call is parsed before the first effect starts, so that a call without a name ends
the message before anything happened. A failing call does not cancel others. While the message is still streaming, calls without effect that
may run concurrently with all calls before them start early. Their results are used when the message is sealed (complete), and dropped when
it is discarded. If a message has more calls than the limit, the calls above it are refused when it is sealed and never take the route.

Only this module gives calls their positions: a call that does not take the route, such as one that another engine has ended, keeps its own.
`_pipeline.held_calls` holds calls that arrive before those in front of them, or before their run is open, and
`_pipeline.emission_execution` runs those on the route.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from callgate._abort_signals import AbortSignal
from callgate._json import canonical
from callgate._pipeline.admission import RunOfMessage
from callgate._pipeline.call_order import footprint_of
from callgate._pipeline.call_route import CallRoute
from callgate._pipeline.call_state import CallState
from callgate._pipeline.duplicate_calls import DuplicateCalls
from callgate._pipeline.emission_calls import EmissionCall, EndedCall
from callgate._pipeline.emission_execution import AT_ONCE, AT_ONCE_BYTES, EmissionExecution
from callgate._pipeline.emission_order import EmissionOrder
from callgate._pipeline.held_calls import HeldCalls
from callgate._pipeline.parse import has_large_arguments
from callgate._pipeline.task_queue import QueueStarter, TaskQueue
from callgate._run_state.run_recovery import UnfinishedCall
from callgate.calls import Answered, Outcome, RawCall, Scope, Suspended, ToolResult
from callgate.errors import CallFailed, RecordFailed, RunHeld, UsageError
from callgate.stage_types import ValidatedCall

__all__ = ["Emission", "EndedCall", "Refusal"]

Refusal = CallFailed | Callable[[int], CallFailed | None]
"""The error that refuses a call, or a function that returns it. The function is called in order, with the number of earlier calls."""

_MAPPING_BYTES = 16_384
"""The assumed size of arguments that are not text; their real size is not computed."""


_LEFT_OUT = EndedCall()


class Emission:
    """The calls of one message. Add them, then `seal` once, or `discard`.

    Args:
        route: The engine's route.
        scope: The scope of the turn; `iteration` is this message's number.
        signal: Ends every call when it fires.
        starter: Begins calls that can start before the message is complete.
        run: The run of the scope. None: no other engine can work on it, so it needs not be opened.
        early: Whether calls without effect may start before the message is complete.
        on_result: Called with the result of each call, including refused ones, before the restart handler gets it. Must not raise.
    """

    def __init__(
        self,
        route: CallRoute,
        scope: Scope,
        signal: AbortSignal,
        starter: QueueStarter,
        run: RunOfMessage | None,
        *,
        early: bool = True,
        on_result: Callable[[ToolResult], None] | None = None,
    ) -> None:
        self._route = route
        self._unstarted = route.unstarted
        self._refusal: RunHeld | RecordFailed | None = None
        """Why the run cannot be opened, so that no further call is admitted."""
        self._refusal_logged = False
        self._scope = scope
        self._early = early
        self._on_result = on_result
        self._most = route.context.limits.calls_per_message
        """The maximum number of calls that take the route."""
        self._places: list[EmissionCall | EndedCall | RawCall] = []
        """The calls taken so far, by position: those on the route, those without one, and those above the limit."""
        self._held = HeldCalls(self._places, run)
        self._surplus: list[RawCall] = []
        """The calls above the limit."""
        self.accepted_calls = 0
        """The number of calls that were taken and not refused by the loop."""
        self._kill = kill = AbortSignal(signal)
        self._entries: list[EmissionCall] = []
        """The calls on the route."""
        self._execution = EmissionExecution(
            route,
            kill,
            TaskQueue(starter, route.context.limits.parallel_calls),
            self._entries,
            EmissionOrder(self._entries, kill),
            DuplicateCalls(self._entries, kill),
        )
        self._prepared_bytes = 0
        """The bytes of arguments that were prepared before the message was sealed."""
        self._unprepared = False
        """Whether some calls will be prepared only when the message is sealed."""

    @property
    def next_position(self) -> int:
        """The position of the next call that is added, which is also the number of those that were."""
        return self._held.next_position if self._held.by_position else len(self._places)

    @property
    def is_over(self) -> bool:
        """Whether the message was sealed or discarded."""
        return self._execution.is_over

    def add(
        self,
        raw: RawCall,
        *,
        position: int | None = None,
        refusal: Refusal | None = None,
        unfinished: UnfinishedCall | None = None,
        cause: int = 0,
    ) -> int:
        """Take the next call of the message, and start it if it may start early. Return its position.

        Args:
            raw: The call as the model emitted it.
            position: Its position, if calls may arrive out of order: a call that arrives too early is held, and a position that was already
                taken is ignored.
            refusal: The error with which the loop refuses the call. It is recorded like any other error.
            unfinished: The recorded state of the call, if its run is resumed.
            cause: The position of the event that causes the call; 0 if no event of this run does.
        """
        if self._execution.is_over:
            raise self._over_error()
        now, held = len(self._places), self._held
        if held.run is None and not held.by_position and (position is None or position == now):
            self._take(raw, refusal, unfinished, cause)
            return now
        return held.hold(position, partial(self._take, raw, refusal, unfinished, cause))

    def leave_out(self, position: int | None = None, ended: EndedCall = _LEFT_OUT) -> int:
        """Skip the next call of the message and return its position. The call does not take the route.

        Args:
            ended: The end of the call.
        """
        if self._execution.is_over:
            raise self._over_error()
        return self._held.hold(position, partial(self._places.append, ended))

    def reopen(self, position: int) -> bool:
        """Withdraw the call at this position because it was not complete. Return whether it was taken, so that the message must be
        discarded."""
        self._held.withdraw(position)
        return position < len(self._places)

    def _take(self, raw: RawCall, refusal: Refusal | None, unfinished: UnfinishedCall | None, cause: int) -> None:
        if self._refusal is not None:
            self._places.append(EndedCall(outcome=self._refuse_unopened(raw, self._refusal)))
            return
        asked = len(self._entries) + len(self._surplus)
        if refusal is not None and not isinstance(refusal, CallFailed):
            refusal = refusal(asked)
        self.accepted_calls += refusal is None
        if asked >= self._most and isinstance(raw, RawCall):
            self._surplus.append(raw)
            self._places.append(raw)
            return
        state = self._route.admit(raw, self._scope, self._kill, cause=cause, unfinished=unfinished)
        state.on_result = self._on_result
        arguments = state.arguments
        size_bytes = len(arguments) if isinstance(arguments, (str, bytes)) else _MAPPING_BYTES
        entry = EmissionCall(state, asked, refusal, size_bytes=size_bytes)
        self._entries.append(entry)
        self._places.append(entry)
        if not self._early or self._prepared_bytes >= AT_ONCE_BYTES:
            self._unprepared = True
        elif size_bytes >= _MAPPING_BYTES and has_large_arguments(arguments):
            self._prepared_bytes, self._unprepared = AT_ONCE_BYTES, True
        else:
            self._prepared_bytes += size_bytes
            self._prepare(entry)
            if entry.call is not None and entry.call.tool.effect == "none" and not entry.waits and state.raw.closed == "sealed":
                entry.early = True
                self._execution.start(entry)

    async def seal(self) -> list[Outcome]:
        """Run all remaining calls and return every call's outcome, in the order of the message."""
        return [one.outcome for one in await self.seal_with_ends() if one.outcome is not None]

    async def seal_with_ends(self) -> list[EndedCall]:
        """Do the same as `seal`, but return how each call ended, by position, including calls without an outcome."""
        if self._execution.is_over:
            raise self._over_error()
        self._execution.is_over = True
        try:
            if self._held.run is not None:
                await self._open_run()
            if self._unprepared or len(self._entries) >= AT_ONCE:
                await self._prepare_rest()
            if len(self._entries) > 1:
                self._unstarted.record("emission.sealed", [entry.state.uid for entry in self._entries], "")
            await self._execution.run_to_end()
            await self._make_durable()
            if self._surplus:
                await self._refuse_surplus()
        except asyncio.CancelledError:
            await self._end_all("the caller was cancelled")
            raise
        return self.ends_so_far

    @property
    def ends_so_far(self) -> list[EndedCall]:
        """The ends of the calls by position, as far as they have ended."""
        ends: list[EndedCall] = []
        for place in self._places:
            if type(place) is EmissionCall:
                state, call = place.state, place.call
                final = state.encoded or (b"" if call is None else canonical(call.arguments))
                cut = place.outcome is None and state.started
                ends.append(
                    EndedCall(
                        outcome=place.outcome,
                        uid=state.uid,
                        position=state.last,
                        arguments=final,
                        in_doubt=cut,
                        asked_within=state.asked_within,
                    )
                )
            else:
                ends.append(place if type(place) is EndedCall else _LEFT_OUT)
        return ends

    async def _prepare_rest(self) -> None:
        number, size_bytes = 0, 0
        for entry in self._entries:
            number, size_bytes = number + 1, size_bytes + entry.size_bytes
            if entry.is_new and has_large_arguments(entry.state.arguments):
                await self._route.preparation.parse_large(entry.state)
            if entry.is_new:  # the message may have ended meanwhile
                self._prepare(entry)
            if number >= AT_ONCE or size_bytes >= AT_ONCE_BYTES:
                number, size_bytes = 0, 0
                recorder = entry.state.recorder
                await (recorder.wait_for_capacity() if recorder.crowded else asyncio.sleep(0))

    async def _open_run(self) -> None:
        """Open the run and take the calls that waited for that. If it cannot be opened, end every call, because another engine may have
        run it already.
        """
        try:
            await self._held.open(self._kill)
        except (RunHeld, RecordFailed) as error:
            self._refusal = error
            waiting = [entry for entry in self._entries if entry.outcome is None and not entry.entered]
            await self._end_all(str(error))
            for entry in waiting:
                entry.outcome = self._refuse_unopened(entry.state.raw, error)
        self._held.take()

    def _refuse_unopened(self, raw: RawCall, error: RunHeld | RecordFailed) -> Outcome:
        """Return the outcome of a call whose run cannot be opened. The log says it once for the whole message."""
        first, self._refusal_logged = not self._refusal_logged, True
        return self._route.refuse_unopened(raw, self._scope, error, log=first)

    async def _make_durable(self) -> None:
        """Wait until all outcomes are on disk."""
        ended: list[EmissionCall] = []
        outcomes: list[tuple[CallState, Outcome]] = []
        for entry in self._entries:
            if entry.outcome is not None:
                ended.append(entry)
                outcomes.append((entry.state, entry.outcome))
        for entry, outcome in zip(ended, await self._route.outcomes.durable(outcomes), strict=True):
            unrecorded = type(outcome) is Answered and outcome.result.failure_class == RecordFailed.failure_class
            entry.outcome = self._route.replace_unrecorded(entry.state, outcome) if unrecorded else outcome

    async def _refuse_surplus(self) -> None:
        """Refuse the calls above the limit."""
        outcomes = iter(await self._unstarted.refuse_surplus(self._surplus, self._entries[0].state.scope, self._most))
        self._places[:] = [EndedCall(outcome=next(outcomes)) if isinstance(place, RawCall) else place for place in self._places]

    async def discard(self, reason: str) -> None:
        """Discard the message, which failed or was killed. Calls that started early are ended, their results are dropped, and questions
        about them are closed.
        """
        if self._execution.is_over:
            return
        self._execution.is_over = True
        self._held.discard()
        try:
            await self._end_all(reason)
        finally:
            for entry in self._entries:
                if type(entry.outcome) is Suspended:
                    self._unstarted.withdraw_question(entry.state, entry.outcome.approval_id, reason)
            if self._entries:
                self._unstarted.record("emission.discarded", [entry.state.uid for entry in self._entries], reason)

    def end(self, reason: str) -> None:
        """End every call now: calls that have not begun will not begin, and running calls are killed.

        `seal` still returns their outcomes.
        """
        self._held.ended = True
        self._execution.end(reason)

    async def _end_all(self, reason: str) -> None:
        """End every call, and wait for the running ones."""
        self._held.ended = True
        await self._execution.end_all(reason)

    def _over_error(self) -> UsageError:
        return UsageError("This emission is over: it was sealed or discarded. Begin a new one for the next message.")

    def _prepare(self, entry: EmissionCall) -> None:
        prepared = self._route.preparation.prepare(entry.state, entry.refusal)
        if not isinstance(prepared, ValidatedCall):
            entry.outcome = prepared
            return
        tool = prepared.tool
        entry.call = prepared if tool.effect_key is None else self._execution.duplicates.ask_once(entry, prepared)
        if tool.effect != "none" or tool.tool.reads is not None or tool.tool.writes is not None:
            entry.footprint = footprint_of(prepared)
        if len(self._entries) > 1:
            self._execution.order.add(entry)
