"""The one route that every tool call takes.

    parse → resolve → validate → gate → cache → run → check → hooks → normalise      (record brackets the whole)

The order is code, not configuration: it is the safety argument. Stages raise typed errors; `Endings` turns them into results and nobody
else does. The engine makes the route from its parts; an emission takes the calls of a message along it, and a tool its own calls. Must not
know models, loops or transports.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from callgate._abort_signals import FAILURES, AbortSignal
from callgate._json import canonical, exceeds
from callgate._pipeline.activity import Activity
from callgate._pipeline.again import Known, call_key
from callgate._pipeline.desk import Desk
from callgate._pipeline.doubts import refuse_other_arguments, rule_out_second_start
from callgate._pipeline.endings import Endings
from callgate._pipeline.entrance import Entrance
from callgate._pipeline.execute import Executor
from callgate._pipeline.flight import Flight
from callgate._pipeline.gate import gate
from callgate._pipeline.ground import Ground
from callgate._pipeline.hooks import hook_result
from callgate._pipeline.life import Life
from callgate._pipeline.parse import check_name, has_large_arguments, parse, parsed_or_error
from callgate._pipeline.quoting import quoted_error, quoted_notes
from callgate._pipeline.record import Reason, arguments_hash
from callgate._pipeline.repeats import earlier_result, taking_on
from callgate._pipeline.resolve import resolve
from callgate._pipeline.unfinished import Unfinished
from callgate._pipeline.unrouted import Unrouted
from callgate._pipeline.validate import validate
from callgate._runners.offload import LARGE_BYTES
from callgate.calls import Aborted, Answered, Outcome, RawCall, Scope, Suspended, ToolResult
from callgate.errors import CallAborted, CallFailed, CallNotStarted, ResultRejected
from callgate.route import ApprovedCall, Checked, ValidatedCall
from callgate.tools import ToolRegistry

__all__ = ["CallRoute", "RouteParts"]

log = logging.getLogger("callgate")


class RouteParts(Struct, frozen=True, kw_only=True):
    """What the route is made of."""

    ground: Ground
    desk: Desk
    entrance: Entrance
    executor: Executor
    endings: Endings
    unrouted: Unrouted
    life: Life
    tools: ToolRegistry
    activity: Activity


class CallRoute:
    """Takes calls along the route, in two halves: a message is prepared before its first effect starts.

    Args:
        timeout_s: How long a call waits for the same call that runs already.
        coerce: Put arguments of a wrong type right where nothing is lost.
        repair: Repair complete but malformed JSON arguments.
    """

    def __init__(self, parts: RouteParts, *, timeout_s: float, coerce: bool, repair: bool) -> None:
        ground = parts.ground
        self._desk = parts.desk
        self._entrance = parts.entrance
        self._executor = parts.executor
        self._endings = parts.endings
        self._unrouted = parts.unrouted
        self._life = parts.life
        self._tools = parts.tools
        self._activity = parts.activity
        self._control = ground.control
        self._host_code = ground.host_code
        self._journal = ground.journal
        self._limits = ground.limits
        self._log = ground.writer.log
        self._normaliser = ground.normaliser
        self._offload = ground.offload
        self._redactor = ground.redactor
        self._survives = ground.journal.strength != "memory"
        self._writer = ground.writer
        self._timeout_s = timeout_s
        self._coerce = coerce
        self._repair = repair

    def admit(self, raw: RawCall, scope: Scope, signal: AbortSignal, *, cause: int = 0, unfinished: Unfinished | None = None) -> Flight:
        """Give a call its place in its run, or the one it had before its run was cut off."""
        flight = self._entrance.admit(raw, scope, signal, cause, unfinished)
        flight.nest = self._nested
        return flight

    async def run(self, flight: Flight) -> Outcome:
        """Take an admitted call through both halves."""
        if has_large_arguments(flight.raw):
            await self.parse_large(flight)
        call = self.prepare(flight)
        return await self.complete(flight, call) if isinstance(call, ValidatedCall) else call

    async def parse_large(self, flight: Flight) -> None:
        """Parse large arguments in a thread; `prepare` uses what that returns or raises."""
        work = partial(parsed_or_error, flight.raw, flight.uid, self._limits, repair=self._repair)
        flight.parsed = await self._offload.run(work)

    def prepare(self, flight: Flight, refusal: CallFailed | None = None) -> ValidatedCall | Outcome:
        """The first half of the route, pure but for the record: what the call is, and whether it can be one.

        A call without a name ends its message first, then a stop that is pending does; nothing else of the call has been read by then.

        Args:
            refusal: Why the loop does not let the call run, where it does not.
        """
        name = flight.raw.name
        try:
            flight.received()
            if refusal is not None or flight.stopped or self._control.stops:
                check_name(flight.raw)
                self._desk.check_stop(flight)
            if refusal is not None:
                return self._endings.ended(flight, refusal, name)
            parsed, flight.parsed = flight.parsed or parse(flight.raw, flight.uid, self._limits, repair=self._repair), None
            if isinstance(parsed, BaseException):
                raise parsed
            for note in parsed.notes:
                self._log.warning("Tool call %s: %s", name, note.text)
            if log.isEnabledFor(logging.INFO):
                self._log.info("Tool call: %s - %s", name, flight.raw.reasoning)
            resolved = resolve(parsed, self._tools, flight.scope)
            name = resolved.tool.name
            call = validate(resolved, flight.scope, coerce=self._coerce)
            if call.notes and self._redactor is not None:
                again = partial(self._valid, scope=flight.scope)
                call = replace(call, notes=quoted_notes(flight.raw, call.notes, again, self._redactor))
            return call
        except FAILURES as error:
            if isinstance(error, CallFailed) and self._redactor is not None:
                again = partial(self._valid, scope=flight.scope)
                error = quoted_error(flight.raw, error, again, self._redactor, self._limits.arguments_bytes)
            return self._endings.ended(flight, error, name)
        except BaseException as error:
            self._endings.left(flight, error)
            raise

    def asked(self, raw: RawCall, scope: Scope) -> tuple[str, bytes] | None:
        """Which tool a call is for, and its valid arguments as canonical JSON; None where it is none. Records and runs nothing."""
        try:
            call = self._valid(raw, scope)
            return call.tool.name, canonical(call.arguments)
        except (CallFailed, CallAborted):
            return None

    def _valid(self, raw: RawCall, scope: Scope) -> ValidatedCall:
        """What `prepare` makes of a call, without a record."""
        resolved = resolve(parse(raw, "", self._limits, repair=self._repair), self._tools, scope)
        return validate(resolved, scope, coerce=self._coerce)

    async def complete(self, flight: Flight, call: ValidatedCall) -> Outcome:
        """The second half: a valid call to its outcome, at most once."""
        if self._life.ending:
            return self._unrouted.not_started(flight, "the engine was closed")
        self._life.running[flight.uid] = flight
        flight.state.under_way += 1
        try:
            if flight.stopped or self._control.stops:
                self._desk.check_stop(flight)
            if flight.first is not None:
                flight.encoded = canonical(call.arguments)
                return await self._replay(flight, Known(tool=call.tool.name, arguments="", uid=flight.first.uid, result=flight.first))
            if call.tool.effect == "none" and flight.raw.idempotency_key is None and not flight.doubtful:
                return await self._endings.answered(flight, await self._result(flight, call, flight.uid))
            return await self._once(flight, call)
        except (Exception, SystemExit) as error:
            return self._endings.ended(flight, error, call.tool.name, harmless=call.tool.effect == "none")
        except BaseException as error:
            self._endings.left(flight, error)
            raise
        finally:
            self._life.ended(flight)

    async def _once(self, flight: Flight, call: ValidatedCall) -> Outcome:
        """A call that is known again by its key: its stored result, that of the same call where it runs, or a run of its own."""
        flight.encoded = canonical(call.arguments)
        asked = arguments_hash(flight.encoded)
        key = call_key(call, asked, flight.occurrence)
        if flight.doubtful and flight.unfinished is not None and flight.unfinished.started is not None:
            key = flight.unfinished.started.key
            checked = await rule_out_second_start(flight, call, self._desk, self._executor.fence)
            if checked is not None:
                result = await self._verified(flight, call, checked)
                flight.state.known[key] = Known(tool=call.tool.name, arguments=asked, uid=call.uid, result=result)
                return await self._endings.answered(flight, result)
        known = flight.state.find(call, key, asked)
        if known is not None:
            return await self._replay(flight, known)
        with taking_on(flight, call, key, asked) as known:
            known.result = await self._result(flight, call, key)
            return await self._endings.answered(flight, known.result)

    async def _result(self, flight: Flight, call: ValidatedCall, key: str) -> ToolResult:
        hooks = self._desk.hooks(call.tool)
        flight.judged, flight.withholds = call, hooks.withholds
        gated = gate(call, hooks.before, self._desk, key, flight)
        approved = gated if isinstance(gated, ApprovedCall) else await self._host_code.unless_killed(gated, flight.kill, "gate")
        refuse_other_arguments(flight, approved)
        flight.approved(approved)
        try:
            if call.tool.cache_scope is not None:
                checked = await self._executor.cached(flight, approved, partial(self._hooked, flight, approved.call))  # cache → run → …
            else:
                checked = await self._executor.executed(flight, approved)  # run → check
                if hooks.after or flight.stopped or self._control.stops:
                    checked = await self._hooked(flight, approved.call, checked)  # hooks
            if checked.status == "ok" and checked.cached is None:
                self._activity.count(flight.scope.conversation)
            if exceeds(checked.value, LARGE_BYTES):
                return await self._offload.run(partial(self._normaliser.result, approved.call, approved.rule, checked))
            return self._normaliser.result(approved.call, approved.rule, checked)
        except CallFailed as error:
            self._desk.check_stop(flight)
            return self._endings.result_of(flight, error, call.tool.name, approved)

    async def _hooked(self, flight: Flight, call: ValidatedCall, checked: Checked) -> Checked:
        """What a call came to, as its hooks leave it."""
        if flight.stopped or self._control.stops:
            self._desk.check_stop(flight, checked)
        hooks = self._desk.hooks(call.tool).after
        return await hook_result(call, checked, hooks, self._desk) if hooks else checked

    async def _verified(self, flight: Flight, call: ValidatedCall, checked: Checked) -> ToolResult:
        """The result of a call that an earlier engine started, as its tool's `verify` gives it; hooks see it like any other."""
        try:
            return self._normaliser.result(call, "", await hook_result(call, checked, self._desk.hooks(call.tool).after, self._desk))
        except ResultRejected as error:
            return self._normaliser.refusal(flight.raw, flight.uid, call.tool.name, error, call.notes)

    async def _replay(self, flight: Flight, known: Known) -> Outcome:
        """Give the stored result of the same call, or wait for it while it runs; never start a second one."""
        result, why = await earlier_result(known, flight, self._journal, self._timeout_s)
        self._desk.check_stop(flight)
        flight.write("call.replayed", Reason(reason=why, details={"uid": known.uid}))
        return await self._endings.answered(flight, result)

    async def _nested(self, parent: Flight, name: str, arguments: Mapping[str, object]) -> ToolResult:
        """Run a tool's call of another tool: same scope, deadline and kill, caused by the parent.

        Known again by its parent: where that is started again, a call with an effect that it had made gives the stored result.
        The parent gives up its slots for good: a parent that waits for a child must not keep the child from running, and taking them
        back could wait for a sibling.
        """
        raw = RawCall(id=f"in:{parent.uid}", name=name, arguments=arguments, origin=f"tool:{parent.uid}")
        flight = self._desk.flight(raw, parent.scope, parent.kill, parent=parent, occurrence=parent.made_before(name, arguments))
        flight.nest = self._nested
        parent.give()
        match await self.run(flight):
            case Answered(result=result):
                return result
            case Suspended(question=question):
                why = f"a human has to decide first: {question}"
            case Aborted(reason=reason):
                why = reason
            case _:
                why = "its result was consumed"
        return self._normaliser.refusal(raw, flight.uid, name, CallNotStarted(f"{name} gave no result: {why}."))

    @property
    def crowded(self) -> bool:
        """Whether so many events wait to be written that a new call has to wait as well."""
        return self._survives and self._writer.crowded

    async def wait_for_capacity(self) -> None:
        """Wait until that is no longer so."""
        await self._writer.wait_for_capacity()
