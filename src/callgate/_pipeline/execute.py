"""Run an approved call: take a slot, start the tool, and check its result. Skipped if the `cache` stage has an answer.

Takes only an `ApprovedCall`. Between approval and start, the last checks may still prevent a call with an effect: the order of the
message's calls, an identical earlier call with an unknown outcome, the slots, and the limit of dangerous calls per tick (`Scope.tick`, a
time step of the host). Hooks that only observe see the call directly before it starts. Then follow the attempts, limited by the timeout of
each attempt, the call's deadline and the kill signal, with waits in between.

The intent of an attempt is recorded before the tool's code is entered; for a call with effects, it is on disk by then. If a worker process
has to accept the attempt first, its acceptance (the claim) is a record of its own, and the claim is on disk by then instead. A `once` call
is never started again after it may have started. The tool's result is read here, within the attempt's time, because reading may run code of
the tool's author. A returned failure is examined here only if it says that it is temporary: it is retried like an exception. Knows nothing
of how policies decide, of other hooks, or of the format of results.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from math import inf

from msgspec.structs import replace

from callgate._abort_signals import AbortSignal
from callgate._clock import Clock
from callgate._json import exceeds, small_jsonable
from callgate._pipeline.call_hooks import observe_start
from callgate._pipeline.call_state import CallState
from callgate._pipeline.engine_options import EngineContext
from callgate._pipeline.engine_policies import EnginePolicies
from callgate._pipeline.gate import PolicyRecheck
from callgate._pipeline.result_cache import Cache
from callgate._pipeline.result_check import Ran, check, proves_nothing_happened
from callgate._pipeline.tool_plan import ToolPlan
from callgate._pipeline.undo_capture import captured
from callgate._pipeline.unknown_outcomes import UnknownOutcomes
from callgate._runners import OWN_RUNNERS, Runners
from callgate._runners.offload_to_threads import LARGE_BYTES
from callgate.errors import RecordFailed
from callgate.protocols import Execution, RunRequest, WriteLog
from callgate.protocols.runners import CancelledUnstarted
from callgate.stage_types import ApprovedCall, Checked
from callgate.tools import BoundTool, ToolContext, is_retryable_error, validate_tool_result
from callgate.tools._human_time import HumanTime
from callgate.tools.result_format import declared_failure, has_standard_shape

__all__ = ["Executor"]

log = logging.getLogger("callgate")


class Executor:
    """Runs the approved calls of one engine.

    Args:
        unknown: Settles unknown outcomes of earlier calls.
        policies: Evaluated again for resources that a running call meets.
        undo: Captures what calls write; None: nothing is captured.
        own_files: The engine's own files, which no tool may use.
        timeout_s: The timeout of a whole call, including retries and waits.
    """

    def __init__(
        self,
        context: EngineContext,
        runners: Runners,
        cache: Cache,
        unknown: UnknownOutcomes,
        policies: EnginePolicies,
        undo: WriteLog | None,
        own_files: tuple[str, ...],
        timeout_s: float,
    ) -> None:
        self._runners = runners
        self._cache = cache
        self._unknown = unknown
        self._policies = policies
        self._undo = undo
        self._own_files = own_files
        self._timeout_s = timeout_s
        self._control = context.control
        self._clock = context.clock
        self._host = context.host
        self._recorder = context.recorder
        self._survives = context.journal.strength != "memory"
        self._grace_s = context.limits.grace_s
        self._human_answer_s = context.limits.human_answer_s
        self._soft_warn_iteration = context.limits.soft_warn_iteration
        self._reader = context.reader
        self._redactor = context.redactor
        self._offload = context.offload
        self._advised: set[str] = set()
        """The identities of tools whose authors were advised how to report failures more precisely."""

    async def execute(self, state: CallState, plan: ToolPlan, approved: ApprovedCall) -> Checked:
        """Take a slot, run the last checks and the attempts, and return the checked result."""
        began = self._clock.monotonic()
        try:
            if plan.slots.take_nowait():
                state.held = plan.slots
            else:
                await state.take(plan.slots, min(self._timeout_s, state.deadline - began))
            if plan.hooks.observers or state.run_state.uncertain or state.run_state.happened:
                earlier = await self._last_checks(state, plan, approved)
                if earlier is not None:
                    return earlier
            if state.stopped or self._control.stops:
                state.check_stop(self._control)
            if plan.counted:
                state.tick = self._policies.count_dangerous(approved.call)
            ran = await (self._attempts(state, plan, approved) if plan.reads_only else self._writing(state, plan, approved))
        finally:
            state.code_over = True
            if state.held is not None:
                held, state.held = state.held, None
                held.give()
        if ran.execution.status != "returned":
            state.started = ran.may_have_happened
        took_s = self._clock.monotonic() - began
        value = ran.execution.value
        if plan.tool.output is not None and (len(value) > LARGE_BYTES if type(value) is str else exceeds(value, LARGE_BYTES)):
            checked = await self._offload.run(partial(check, plan.tool, ran, took_s, self._redactor))
        else:
            checked = check(plan.tool, ran, took_s, self._redactor)
        return checked if checked.status != "unknown" else await self._in_doubt(state, approved, ran, checked)

    async def _last_checks(self, state: CallState, plan: ToolPlan, approved: ApprovedCall) -> Checked | None:
        """Return None if the call may start now, after its observers have seen it; else the result of an identical earlier call.

        Unknown outcomes are checked after the other waits, because another call may leave one while this one waits for a slot or for
        observers.
        """
        if plan.hooks.observers:
            earlier = await self._unknown.rule_out_repeat(state, approved)
            if earlier is not None:
                return earlier
            state.check_stop(self._control)
            await observe_start(approved, plan.hooks.observers, self._host)
        return await self._unknown.rule_out_repeat(state, approved)

    async def _writing(self, state: CallState, plan: ToolPlan, approved: ApprovedCall) -> Ran:
        """Run a call with an effect. Meanwhile, the cache does not store what the call may change, and its writes are captured for undo."""
        touched = approved.call.tool.touched(approved.call.arguments, state.scope) if plan.declares else None
        writes = self._cache.begin_writing(touched)
        try:
            if self._undo is None or not state.scope.workspace:
                return await self._attempts(state, plan, approved)
            async with captured(self._undo, state, approved, touched):
                return await self._attempts(state, plan, approved)
        finally:
            if state.uid in self._runners.behind:
                self._cache.keep_writing(state.uid, writes)
            else:
                self._cache.end_writing(writes)

    async def _attempts(self, state: CallState, plan: ToolPlan, approved: ApprovedCall) -> Ran:
        """Run the call to its end: its attempts and the waits between them."""
        tool, kill, clock = plan.tool, state.kill, self._clock
        now = began = clock.monotonic()
        deadline = state.deadline = min(state.deadline, now + self._timeout_s)  # never later than the parent's
        context = self._context(state, approved)
        start, claims = plan.start or self._runners.start(tool.runner), plan.claims
        attempt, lost, ends, human_s = 1, False, inf, 0.0
        while True:
            timeout_s = min(deadline, ends) - now
            if kill.reason is not None or timeout_s <= 0:
                return Ran(_not_started(kill), attempt - 1, lost)
            if attempt == 1 and tool.timeout_s is not None:
                timeout_s = min(timeout_s, tool.timeout_s)
            if tool.attempt_timeout_s is not None:
                timeout_s = min(timeout_s, tool.attempt_timeout_s)
            position = state.attempt_started(approved, attempt, timeout_s, claims=claims)
            if self._survives and not plan.reads_only and not claims:
                await self._intend(position, deadline - now, "" if attempt > 1 else f"{tool.name} was not run. ")
                now = clock.monotonic()
                if kill.reason is not None or now >= deadline:
                    return Ran(_not_started(kill), attempt - 1, lost)
                timeout_s = min(timeout_s, deadline - now)
            if attempt == 1 and tool.timeout_s is not None:
                ends = now + tool.timeout_s  # counted from the tool's first start, without the time that recording took before
            state.started = not claims
            if attempt > 1:  # a new object, because code left over from an earlier attempt still holds the old one
                context = replace(context, attempt=attempt)
            context.deadline = state.attempt_ends = now + timeout_s
            claim = partial(state.claimed, attempt) if claims else None
            request = RunRequest(
                approved=approved, context=context, attempt=attempt, timeout_s=timeout_s, grace_s=self._grace_s, kill=kill, claim=claim
            )
            begun = start(request)
            try:
                execution = begun if isinstance(begun, Execution) else await begun
            except CancelledUnstarted:
                state.started = attempt > 1
                raise
            if context.human_time is not None and context.human_time.asked and (asked_s := context.human_time.passed_s - human_s):
                human_s += asked_s
                deadline, ends, context.deadline = deadline + asked_s, ends + asked_s, context.deadline + asked_s
                state.deadline = deadline
            if not execution.read and (execution.status == "returned" or execution.value is not None):
                small = small_jsonable(execution.value, self._reader.max_bytes) if execution.status == "returned" else None
                if small is None:
                    execution = await self._read_large(execution, request)
                else:
                    changes, left = execution.changes + small[1], execution.tasks_left
                    execution = Execution(status="returned", value=small[0], read=True, changes=changes, tasks_left=left)
            if execution.status == "returned":
                failure = None if type(execution.value) is not dict else _passing_failure(tool, execution.value)
                if failure is None:
                    return Ran(execution if not execution.error else self._recorder.bounded(execution), attempt, lost)
                execution = replace(execution, error=failure, retryable=True)
            if execution.status == "raised":
                state.raised(attempt, execution)
            elif execution.status == "timed_out" and attempt > 1 and timeout_s != tool.attempt_timeout_s:
                execution = _call_overdue(
                    execution, tool.timeout_s if tool.timeout_s is not None and ends <= deadline else deadline - began
                )
            if execution.error or execution.partial:
                execution = self._recorder.bounded(execution)
            wait_s = _wait_before_retry(tool, execution, attempt, min(deadline, ends) - clock.monotonic(), clock.jitter())
            if wait_s is None:
                return Ran(execution, attempt, lost)
            if await self._comes_again(state, attempt, execution, wait_s):
                attempt, lost = attempt + 1, lost or _lost_a_reply(execution)
            elif kill.aborted and execution.status != "returned":
                return Ran(_killed_between(kill, execution), attempt, lost)
            else:
                return Ran(execution, attempt, lost)
            now = clock.monotonic()

    def _context(self, state: CallState, approved: ApprovedCall) -> ToolContext:
        """Return the context of the running call for its tool."""
        scope, soft_warn, policies = state.scope, self._soft_warn_iteration, self._policies
        judged = policies.policies or approved.judgments or approved.call.tool.approval is not None
        return ToolContext(
            scope=scope,
            call_id=state.raw.id,
            uid=state.uid,
            tool=approved.call.tool.name,
            idempotency_key=approved.effect_key or approved.key,
            signal=state.kill,
            report=state.report,
            nested=state.nested,
            own_files=self._own_files,
            human_time=HumanTime(self._human_answer_s, self._clock.monotonic) if approved.call.tool.runner == "inline" else None,
            policies=PolicyRecheck(approved.call, policies) if judged else None,
            show_kill_hint=soft_warn is not None and scope.iteration >= soft_warn,
        )

    async def _intend(self, position: int, within_s: float, told: str) -> None:
        """Wait until an attempt is on disk, before its code is entered.

        Args:
            told: Put before the error message.

        Raises:
            RecordFailed: The attempt could not be recorded, or not in time.
        """
        try:
            await self._recorder.durable(position, within_s)
        except RecordFailed as error:
            raise RecordFailed(f"{told}{error}", code=error.code) from error

    async def _read_large(self, execution: Execution, request: RunRequest) -> Execution:
        """Read a result that is large or whose reading runs the tool's code, within the rest of the attempt's time."""
        rest = replace(request, timeout_s=max(0.0, request.context.deadline - self._clock.monotonic()))
        read = await self._reader.read(execution, rest, request.context.scope.workspace)
        return replace(read, tasks_left=execution.tasks_left) if execution.tasks_left else read

    async def _comes_again(self, state: CallState, attempt: int, execution: Execution, wait_s: float) -> bool:
        """Record the failure and wait for the next attempt. Return False if the call is stopped or killed before the next attempt."""
        stop = self._control.stopping(state.scope.conversation)
        if state.kill.aborted or stop.aborted:
            return False
        state.attempt_failed(attempt, execution, wait_s)
        return await _wait(wait_s, self._clock, state.kill, stop)

    async def _in_doubt(self, state: CallState, approved: ApprovedCall, ran: Ran, checked: Checked) -> Checked:
        """Ask the tool's `verify` about a call with an unknown outcome. If it does not know, prevent identical calls from starting."""
        execution, runner = ran.execution, approved.call.tool.runner
        gone = execution.status == "raised" or (runner in OWN_RUNNERS and not (runner == "process" and execution.abandoned))
        if execution.status == "raised" and not execution.code:  # a code is of a runner, whose failures the tool's code cannot declare
            self._advise_author(approved.call.tool, execution.error_type)
        if execution.status in ("raised", "crashed", "not_started"):
            within_s = min(self._host.hook_timeout_s, state.deadline - self._clock.monotonic())
            checked = await self._unknown.settle_by_verify(state, approved, checked, within_s, gone=gone)
        if checked.status == "unknown":
            state.run_state.now_uncertain(approved.call, approved.encoded, approved.key, approved.tool_key, gone=gone)
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


def _passing_failure(tool: BoundTool, value: object) -> str | None:
    """Return the error if a tool that may be repeated returned a temporary failure; else None.

    Invalid results are refused by `check` and are not retried.
    """
    if tool.effect == "once" or not isinstance(value, dict) or value.get("success") is True:
        return None
    if not has_standard_shape(value, wraps_result=tool.tool.wraps_result) or validate_tool_result(value):
        return None
    failure = declared_failure(value)
    return failure if failure is not None and is_retryable_error(failure) else None


def _wait_before_retry(tool: BoundTool, execution: Execution, attempt: int, left_s: float, chance: float) -> float | None:
    """Return the seconds to wait before the next attempt, or None if there must not be one.

    A temporary failure is retried if the tool's effect makes a repetition safe; a failure that proves that nothing started, always.
    """
    if execution.status == "killed" or attempt >= tool.retry.attempts:
        return None
    unstarted = execution.not_started or execution.status == "not_started"
    if tool.effect == "once" and not unstarted:
        return None
    if not (execution.retryable or execution.status == "timed_out" or unstarted):
        return None
    wait_s = max(tool.retry.delay_s(attempt, chance), execution.retry_after_s or 0.0)
    return wait_s if wait_s < left_s else None


def _lost_a_reply(execution: Execution) -> bool:
    return execution.evidence == "reply_lost" or execution.status in ("timed_out", "crashed")


def _call_overdue(execution: Execution, timeout_s: float) -> Execution:
    """Return the timeout of a later attempt with the limit of the call. Nobody has set the rest of it that this attempt had."""
    return replace(execution, error=f"the call's timeout of {timeout_s:.6g} s is over")


def _killed_between(kill: AbortSignal, execution: Execution) -> Execution:
    """Return the result of a call that was killed while it waited for its next attempt."""
    return Execution(status="killed", error=kill.reason or "", not_started=proves_nothing_happened(execution))


def _not_started(kill: AbortSignal) -> Execution:
    if kill.reason is not None:
        return Execution(status="killed", error=kill.reason, not_started=True)
    return Execution(status="not_started", error="the call's deadline had passed before it could start")


def _cancel(future: asyncio.Future[None]) -> None:
    future.cancel()


async def _wait(seconds: float, clock: Clock, *ends: AbortSignal) -> bool:
    """Wait unless one of the signals fires. Return whether the full time has passed."""
    sleeping = asyncio.ensure_future(clock.sleep(seconds))
    removes = [signal.on_abort(partial(_cancel, sleeping)) for signal in ends]
    try:
        await sleeping
    except asyncio.CancelledError:
        if not any(signal.aborted for signal in ends):
            raise
    finally:
        for remove in removes:
            remove()
        sleeping.cancel()
    return not any(signal.aborted for signal in ends)
