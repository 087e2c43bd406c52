"""Run the attempts of a call: record each, start the tool, read its result, and wait before the next.

Each attempt is limited by its timeout, the call's deadline and the kill signal. The intent of an attempt is recorded before the tool's code
is entered; for a call with effects, it is on disk by then. If a worker process has to accept the attempt first, its acceptance (the claim)
is a record of its own, and the claim is on disk by then instead. A `once` call is never started again after it may have started. The
tool's result is read here, within the attempt's time, because reading may run code of the tool's author. A returned failure is examined
here only if it says that it is temporary: it is retried like an exception. Knows nothing of approvals, slots, caches, and of what a result
means.
"""

from __future__ import annotations

import asyncio
from functools import partial
from math import inf

from msgspec import Struct
from msgspec.structs import replace

from callgate._abort_signals import AbortSignal
from callgate._clock import Clock
from callgate._json import small_jsonable
from callgate._pipeline.call_events import record_attempt, record_claim, record_exception, record_failed_attempt
from callgate._pipeline.call_state import CallState
from callgate._pipeline.engine_context import EngineContext
from callgate._pipeline.engine_policies import EnginePolicies
from callgate._pipeline.policy_recheck import PolicyRecheck
from callgate._pipeline.result_check import AttemptsResult, proves_nothing_happened
from callgate._pipeline.tool_plan import ToolPlan
from callgate._runners import Runners
from callgate._runners.content_blocks import DATA_URL, may_be_blocks
from callgate.errors import RecordFailed
from callgate.protocols import Execution, RunRequest
from callgate.protocols.runners import CancelledUnstarted
from callgate.stage_types import ApprovedCall
from callgate.tools import BoundTool, ToolContext, is_retryable_error, validate_tool_result
from callgate.tools._human_time import HumanTime
from callgate.tools.result_format import declared_failure, has_standard_shape

__all__ = ["Attempts"]

_CONTAINERS = frozenset({dict, list, tuple})


class Attempts:
    """Runs the attempts of one engine's calls.

    Args:
        policies: Evaluated again for resources that a running call meets.
        own_files: The engine's own files, which no tool may use.
    """

    def __init__(self, context: EngineContext, runners: Runners, policies: EnginePolicies, own_files: tuple[str, ...]) -> None:
        self._runners = runners
        self._policies = policies
        self._own_files = own_files
        self._timeout_s = context.timeout_s
        self._control = context.control
        self._clock = context.clock
        self._recorder = context.recorder
        self._survives = context.survives
        self._grace_s = context.limits.grace_s
        self._human_answer_s = context.limits.human_answer_s
        self._soft_warn_iteration = context.limits.soft_warn_iteration
        self._reader = context.reader

    async def run(self, state: CallState, plan: ToolPlan, approved: ApprovedCall) -> AttemptsResult:
        """Run the call to its end: its attempts and the waits between them."""
        tool, began = plan.tool, self._clock.monotonic()
        state.deadline = min(state.deadline, began + self._timeout_s)  # never later than the parent's
        time = _CallTime(tool=tool, began=began, deadline=state.deadline)
        context = self._context(state, approved)
        start = plan.start or self._runners.start(tool.runner)
        attempt, lost = 1, False
        while True:
            if attempt > 1:  # a new object, because code left over from an earlier attempt still holds the old one
                context = replace(context, attempt=attempt)
            timeout_s = self._record_intent(state, plan, approved, attempt, time)
            if timeout_s > 0 and self._survives and not plan.reads_only and not plan.claims:
                timeout_s = await self._wait_for_intent(state, tool, attempt, timeout_s, time)
            if timeout_s <= 0:
                return AttemptsResult(_not_started(state.kill), attempt - 1, lost)
            request = self._request(state, plan, approved, context, timeout_s, time)
            try:
                execution = begun if isinstance(begun := start(request), Execution) else await begun
            except CancelledUnstarted:
                state.started = attempt > 1
                raise
            if context.human_time is not None and context.human_time.asked:
                time.leave_out_human_time(context.human_time.passed_s, context, state)
            if not execution.read and (execution.status == "returned" or execution.value is not None):
                value = execution.value
                blocks = value.startswith(DATA_URL) if type(value) is str else type(value) in _CONTAINERS and may_be_blocks(value)
                at_once = execution.status == "returned" and (execution.is_only_data or not blocks)
                small = small_jsonable(value, self._reader.max_bytes) if at_once else None
                execution = await self._read_large(execution, request) if small is None else _set_value(execution, *small)
            if execution.status == "returned":
                failure = None if type(execution.value) is not dict else _temporary_failure(tool, execution.value)
                if failure is None:
                    return AttemptsResult(execution if not execution.error else self._recorder.limit_texts(execution), attempt, lost)
                execution = replace(execution, error=failure, retryable=True)
            execution = self._record_failure(state, request, time, execution)
            wait_s = _wait_before_retry(
                tool, execution, attempt, min(time.deadline, time.ends) - self._clock.monotonic(), self._clock.jitter()
            )
            if wait_s is None or not await self._wait_for_retry(state, attempt, execution, wait_s):
                killed = wait_s is not None and state.kill.aborted and execution.status != "returned"
                return AttemptsResult(_kill_before_retry(state.kill, execution) if killed else execution, attempt, lost)
            attempt, lost = attempt + 1, lost or _is_reply_lost(execution)

    def _record_intent(self, state: CallState, plan: ToolPlan, approved: ApprovedCall, attempt: int, time: _CallTime) -> float:
        """Record the intent of an attempt, and return its timeout in seconds; 0 or less if the call was killed or its time is over."""
        tool, timeout_s = plan.tool, min(time.deadline, time.ends) - self._clock.monotonic()
        if state.kill.reason is not None or timeout_s <= 0:
            return 0.0
        if attempt == 1 and tool.timeout_s is not None:
            timeout_s = min(timeout_s, tool.timeout_s)
        if tool.attempt_timeout_s is not None:
            timeout_s = min(timeout_s, tool.attempt_timeout_s)
        record_attempt(state, approved, attempt, timeout_s, claims=plan.claims)
        return timeout_s

    async def _wait_for_intent(self, state: CallState, tool: BoundTool, attempt: int, timeout_s: float, time: _CallTime) -> float:
        """Wait until the intent is on disk, before the tool's code is entered. Return the timeout that is left, as `_record_intent` does.

        Raises:
            RecordFailed: The intent could not be recorded, or not in time.
        """
        try:
            await self._recorder.durable(state.last, time.deadline - self._clock.monotonic())
        except RecordFailed as error:
            prefix = "" if attempt > 1 else f"{tool.name} was not run. "
            raise RecordFailed(f"{prefix}{error}", code=error.code, told=f"{prefix}{error.told} Tell the operator.") from error
        return 0.0 if state.kill.reason is not None else min(timeout_s, time.deadline - self._clock.monotonic())

    def _request(
        self, state: CallState, plan: ToolPlan, approved: ApprovedCall, context: ToolContext, timeout_s: float, time: _CallTime
    ) -> RunRequest:
        """Return the request to the runner for an attempt that starts now."""
        now, attempt = self._clock.monotonic(), context.attempt
        if attempt == 1 and plan.tool.timeout_s is not None:
            time.ends = now + plan.tool.timeout_s  # counted from the first start, without the time that recording took before
        state.started = not plan.claims
        context.deadline = state.attempt_ends = now + timeout_s
        return RunRequest(
            approved=approved,
            context=context,
            attempt=attempt,
            timeout_s=timeout_s,
            grace_s=self._grace_s,
            kill=state.kill,
            claim=partial(record_claim, state, attempt) if plan.claims else None,
        )

    async def _read_large(self, execution: Execution, request: RunRequest) -> Execution:
        """Read a result that is large or whose reading runs the tool's code, within the rest of the attempt's time."""
        rest = replace(request, timeout_s=max(0.0, request.context.deadline - self._clock.monotonic()))
        read = await self._reader.read(execution, rest, request.context.scope.workspace)
        return replace(read, tasks_left=execution.tasks_left) if execution.tasks_left else read

    def _record_failure(self, state: CallState, request: RunRequest, time: _CallTime, execution: Execution) -> Execution:
        """Record an exception, and return the failure with bounded texts."""
        if execution.status == "raised":
            record_exception(state, request.attempt, execution)
        elif execution.status == "timed_out" and request.attempt > 1 and request.timeout_s != time.tool.attempt_timeout_s:
            # this attempt was limited by what was left for the call, so name the limit of the call
            execution = replace(execution, error=f"the call's timeout of {time.of_call_s:.6g} s is over")
        return self._recorder.limit_texts(execution) if execution.error or execution.partial else execution

    async def _wait_for_retry(self, state: CallState, attempt: int, execution: Execution, wait_s: float) -> bool:
        """Record the failure and wait for the next attempt. Return False if the call is stopped or killed before the next attempt."""
        stop = self._control.stopping(state.scope.conversation)
        if state.kill.aborted or stop.aborted:
            return False
        record_failed_attempt(state, attempt, execution, wait_s)
        return await _wait(wait_s, self._clock, state.kill, stop)

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
            nested=state.call_nested,
            own_files=self._own_files,
            human_time=HumanTime(self._human_answer_s, self._clock.monotonic) if approved.call.tool.runner == "inline" else None,
            policies=PolicyRecheck(approved.call, policies) if judged else None,
            show_kill_hint=soft_warn is not None and scope.iteration >= soft_warn,
        )


class _CallTime(Struct, kw_only=True):
    """How long a call and its attempts may run."""

    tool: BoundTool
    began: float
    deadline: float
    """When the engine's timeout of the call is over, or that of the call around it."""
    ends: float = inf
    """When the tool's own timeout of a whole call is over."""
    human_s: float = 0.0
    """The seconds in which the tool has waited for a human. They are not counted."""

    def leave_out_human_time(self, passed_s: float, context: ToolContext, state: CallState) -> None:
        """Move the ends of the call by the time in which its tool has waited for a human, of which there is now `passed_s` in all."""
        more_s, self.human_s = passed_s - self.human_s, passed_s
        self.ends += more_s
        self.deadline = state.deadline = self.deadline + more_s
        context.deadline += more_s

    @property
    def of_call_s(self) -> float:
        """The limit in seconds of the whole call that applies."""
        timeout_s = self.tool.timeout_s
        return timeout_s if timeout_s is not None and self.ends <= self.deadline else self.deadline - self.began


def _set_value(execution: Execution, value: object, changes: tuple[str, ...]) -> Execution:
    """Return the execution with its value read."""
    return Execution(status="returned", value=value, read=True, changes=execution.changes + changes, tasks_left=execution.tasks_left)


def _temporary_failure(tool: BoundTool, value: object) -> str | None:
    """Return the error if a tool that may be repeated returned a temporary failure; else None.

    Invalid results are refused by `check` and are not retried.
    """
    if tool.effect == "once" or not isinstance(value, dict) or value.get("success") is True:
        return None
    if not has_standard_shape(value, tool.tool) or validate_tool_result(value):
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


def _is_reply_lost(execution: Execution) -> bool:
    return execution.evidence == "reply_lost" or execution.status in ("timed_out", "crashed")


def _kill_before_retry(kill: AbortSignal, execution: Execution) -> Execution:
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
