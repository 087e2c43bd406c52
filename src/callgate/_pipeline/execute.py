"""Give an approved call room, run it and judge what came back: what the cache stage skips on a hit.

Between approval and start stand the last things that can keep a call with an effect from starting: the emission's order, an earlier call
like it whose outcome nobody knows, the slots, the tick's limit; and the hooks that only observe, which see what is about to start. Knows
nothing of policies, of other hooks or how results look.
"""

from __future__ import annotations

import logging
from collections.abc import Coroutine
from functools import partial
from typing import Any

from callgate._json import exceeds
from callgate._pipeline.cache import Cache, Finish
from callgate._pipeline.check import check
from callgate._pipeline.desk import Desk
from callgate._pipeline.doubts import rule_out_repeat, settle_by_verify
from callgate._pipeline.fencing import Fence
from callgate._pipeline.flight import Flight
from callgate._pipeline.ground import Ground
from callgate._pipeline.hooks import observe_start
from callgate._pipeline.keep import kept
from callgate._pipeline.run import Ran, run
from callgate._runners import OWN_RUNNERS, Runners
from callgate._runners.offload import LARGE_BYTES
from callgate.hooks import Hook
from callgate.protocols import WriteLog
from callgate.route import ApprovedCall, Checked
from callgate.tools import BoundTool

__all__ = ["Executor"]

log = logging.getLogger("callgate")


class Executor:
    """Runs the approved calls of one engine."""

    def __init__(self, ground: Ground, desk: Desk, cache: Cache, runners: Runners, timeout_s: float, writes: WriteLog | None) -> None:
        self._desk = desk
        self._cache = cache
        self._runners = runners
        self._control = ground.control
        self._clock = ground.clock
        self._timeout_s = timeout_s
        self._grace_s = ground.limits.grace_s
        self._reader = ground.reader
        self._redactor = ground.redactor
        self._offload = ground.offload
        self._writes = writes
        self._left: dict[str, frozenset[str]] = {}
        """What may still be written by code that was left behind, by the uid of its call."""
        runners.behind.on_gone = self._gone
        self.fence = Fence(ground.journal, runners.behind)
        self._advised: set[str] = set()
        """The tools whose authors were told how to say more about failures, by identity."""

    async def cached(self, flight: Flight, approved: ApprovedCall, finish: Finish) -> Checked:
        """What the call came to: from the cache, shared with an identical call that is running, or from its own run.

        Args:
            finish: Runs the hooks over it.
        """
        flight.start_clock(self._clock.monotonic() + self._timeout_s)
        changes_by = self._desk.hooks(approved.call.tool).changes_by
        return await self._cache.answer(flight, approved, partial(self.executed, flight, approved), finish, changes_by)

    async def executed(self, flight: Flight, approved: ApprovedCall) -> Checked:
        """What the call's own run came to."""
        if flight.before_start is not None and (turn := flight.before_start(approved)) is not None:
            await turn
        tool = approved.call.tool
        began = self._clock.monotonic()
        slots = self._desk.slots(tool)
        try:
            if slots.take_nowait():
                flight.held = slots
            else:
                await flight.take(slots, min(self._timeout_s, flight.deadline - began))
            observers = self._desk.hooks(tool).observers
            if observers or flight.state.uncertain:
                happened = await self._cleared(flight, approved, observers)
                if happened is not None:
                    return happened
            self._check_stop(flight)
            if tool.category == "dangerous":
                flight.tick = self._desk.take_dangerous(approved.call)
            ran = await (self._ran(flight, approved) if tool.effect == "none" else self._written(flight, approved))
        finally:
            flight.nest = None
            if flight.held is not None:
                flight.give()
        if ran.execution.status != "returned":
            flight.started = ran.may_have_happened
        took_s = self._clock.monotonic() - began
        if tool.output is not None and exceeds(ran.execution.value, LARGE_BYTES):
            checked = await self._offload.run(partial(check, tool, ran, took_s, self._redactor))
        else:
            checked = check(tool, ran, took_s, self._redactor)
        return checked if checked.status != "unknown" else await self._in_doubt(flight, approved, ran, checked)

    async def _cleared(self, flight: Flight, approved: ApprovedCall, observers: tuple[Hook, ...]) -> Checked | None:
        """None where the call may start now, after its observers have seen it; what an earlier call like it gave, where that answers it.

        Doubts are looked at last, because another call may leave one while this one waits for its slot or its observers.
        """
        if observers:
            happened = await self._ruled_out(flight, approved)
            if happened is not None:
                return happened
            self._check_stop(flight)
            await observe_start(approved.call, approved.encoded, observers, self._desk)
        return await self._ruled_out(flight, approved)

    def _check_stop(self, flight: Flight) -> None:
        if flight.stopped or self._control.stops:
            self._desk.check_stop(flight)

    async def _ruled_out(self, flight: Flight, approved: ApprovedCall) -> Checked | None:
        return await rule_out_repeat(flight, approved, self._desk, self.fence) if flight.state.uncertain else None

    async def _in_doubt(self, flight: Flight, approved: ApprovedCall, ran: Ran, checked: Checked) -> Checked:
        """Ask the tool what became of a call whose code is gone; where it cannot tell, let none like it start."""
        execution, runner = ran.execution, approved.call.tool.runner
        gone = execution.status == "raised" or (runner in OWN_RUNNERS and not (runner == "process" and execution.abandoned))
        if execution.status == "raised":
            self._advise_author(approved.call.tool, execution.error_type)
        if execution.status in ("raised", "crashed"):
            left_s = flight.deadline - self._clock.monotonic()
            checked = await settle_by_verify(flight, approved, checked, self._desk, min(self._desk.hook_timeout_s, left_s), gone=gone)
        if checked.status == "unknown":
            flight.state.now_uncertain(approved.call, approved.encoded, approved.key, gone=gone)
        return checked

    def _advise_author(self, tool: BoundTool, exception: str) -> None:
        if tool.identity not in self._advised:
            self._advised.add(tool.identity)
            log.warning(
                "Tool %s (%s) raised %s, and its effect is `%s`: it may have happened before that, so the outcome is unknown."
                ' If the tool only reads, say effect="none". Where nothing happened, raise callgate.NotDone, or declare the exceptions'
                " that mean that: not_done=(%s,). This is said once for each tool.",
                *(tool.name, tool.tool.where(), exception, tool.effect, exception),
            )

    def _ran(self, flight: Flight, approved: ApprovedCall) -> Coroutine[Any, Any, Ran]:
        flight.start_clock(self._clock.monotonic() + self._timeout_s)
        tool = approved.call.tool
        start, claims = self._runners.start(tool.runner), tool.effect != "none" and self._runners.claims(tool.runner)
        stopping = partial(self._control.stopping, flight.scope.conversation)
        context = self._desk.context(flight, approved)
        return run(approved, context, start, flight, self._clock, self._grace_s, self._reader, stopping, claims=claims)

    async def _written(self, flight: Flight, approved: ApprovedCall) -> Ran:
        """The run of a call with an effect, between two looks at what it writes."""
        touched = approved.call.tool.touched(approved.call.arguments, flight.scope)
        writes = self._cache.begin_writing(touched)
        try:
            async with kept(self._writes, flight, approved, touched):
                return await self._ran(flight, approved)
        finally:
            if flight.uid in self._runners.behind:
                self._left[flight.uid] = writes
            else:
                self._cache.end_writing(writes)

    def _gone(self, uid: str) -> None:
        if uid in self._left:
            self._cache.end_writing(self._left.pop(uid))
