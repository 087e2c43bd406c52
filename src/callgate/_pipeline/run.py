"""Start the tool: attempts, per-attempt timeout, the call's deadline, the kill race, and the waits between attempts.

Takes only an `ApprovedCall`. The intent of an attempt is recorded before the tool's code is entered, and on disk before that where the
call has effects; where a worker process has to take it on first, that is a record of its own, the claim, and it is what waits for the disk.
A `once` call is never started again after it may have started. What a tool gave is read here, within the attempt's time: reading may run
code of the tool's author. What came of it is data; whether that is a success is for `check` to say. Only a returned failure that says of
itself that it passes is looked at here: it is tried again like an exception.
Knows nothing of policies, caches or hooks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from math import inf
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from callgate._abort_signals import AbortSignal
from callgate._clock import Clock
from callgate._json import small_jsonable
from callgate._runners.result_reader import ResultReader
from callgate.calls import Effect
from callgate.errors import RecordFailed
from callgate.protocols import Execution, RunRequest, Start
from callgate.route import ApprovedCall
from callgate.tools import BoundTool, ToolContext, is_retryable_error, validate_tool_result
from callgate.tools.result_format import declared_failure, has_standard_shape

__all__ = ["Attempts", "Ran", "run", "wait_before_retry"]


class Ran(Struct, frozen=True):
    """The last attempt, and how many there were."""

    execution: Execution
    attempts: int
    lost: bool = False
    """Whether an attempt before the last may have taken effect, because its reply was lost."""

    @property
    def may_have_happened(self) -> bool:
        """Whether the tool's effect may have happened, for all that the attempts prove."""
        if self.attempts == 0 or self.execution.evidence == "not_done":
            return False
        return self.lost or not _proves_nothing_happened(self.execution)

    def in_doubt(self, effect: Effect) -> bool:
        """Whether nobody knows if the tool's effect happened. What an idempotent tool raises is an answer, unless a reply was lost."""
        ended, happened = self.execution, effect != "none" and self.may_have_happened
        if ended.status != "raised" or ended.error_type == "ResultNotSerializable":
            return happened and ended.status != "raised"
        return happened and (effect == "once" or self.lost or ended.evidence == "reply_lost")


class Attempts(Protocol):
    """The call's own side of its attempts: what ends them, and where they are recorded."""

    kill: AbortSignal
    """Ends an attempt or a wait at once."""
    deadline: float
    """Of the whole call, on the engine's monotonic clock; retries and waits included."""
    started: bool
    """Whether the tool's code may have been entered."""

    def attempt_started(self, approved: ApprovedCall, attempt: int, timeout_s: float, *, claims: bool) -> int: ...
    async def claimed(self, attempt: int, worker: str = "") -> None: ...
    async def durable(self, position: int, within_s: float | None = None) -> None: ...
    def bounded(self, execution: Execution) -> Execution: ...
    def attempt_failed(self, attempt: int, execution: Execution, wait_s: float) -> None: ...


async def run(
    approved: ApprovedCall,
    context: ToolContext,
    start: Start,
    record: Attempts,
    clock: Clock,
    grace_s: float,
    reader: ResultReader,
    stopping: Callable[[], AbortSignal],
    *,
    claims: bool = False,
) -> Ran:
    """Run the call to its end: its attempts and the waits between them.

    Args:
        reader: Reads what an attempt gave.
        stopping: What fires when nothing further may start; a running attempt goes on. Asked where an attempt has failed.
        claims: Whether the runner claims each attempt before it enters the tool's code.
    """
    tool, kill, deadline = approved.call.tool, record.kill, record.deadline
    attempt, lost, ends = 1, False, inf
    while True:
        now = clock.monotonic()
        timeout_s = min(deadline, ends) - now
        if kill.reason is not None or timeout_s <= 0:
            return Ran(_not_started(kill), attempt - 1, lost)
        if attempt == 1 and tool.timeout_s is not None:
            timeout_s = min(timeout_s, tool.timeout_s)
        if tool.attempt_timeout_s is not None:
            timeout_s = min(timeout_s, tool.attempt_timeout_s)
        position = record.attempt_started(approved, attempt, timeout_s, claims=claims)
        if tool.effect != "none" and not claims:
            await _intend(record, position, deadline - now, "" if attempt > 1 else f"{tool.name} was not run. ")
            now = clock.monotonic()
            if kill.reason is not None or now >= deadline:
                return Ran(_not_started(kill), attempt - 1, lost)
            timeout_s = min(timeout_s, deadline - now)
        if attempt == 1 and tool.timeout_s is not None:
            ends = now + tool.timeout_s  # from the tool's first start: what the record took before that is not its own
        record.started = not claims
        if attempt > 1:  # an object of its own: what an earlier attempt left behind still has that one's
            context = replace(context, attempt=attempt)
        context.deadline = now + timeout_s
        request = RunRequest(approved=approved, context=context, attempt=attempt, timeout_s=timeout_s, grace_s=grace_s, kill=kill)
        if claims:
            request = replace(request, claim=partial(record.claimed, attempt))
        begun = start(request)
        execution = begun if isinstance(begun, Execution) else await begun
        if not execution.read and (execution.status == "returned" or execution.value is not None):
            execution = _read_small(execution, reader.max_bytes) or await _read_large(execution, request, reader, clock)
        if execution.status == "returned":
            failure = _passing_failure(tool, execution.value)
            if failure is None:
                return Ran(execution if not execution.error else record.bounded(execution), attempt, lost)
            execution = replace(execution, error=failure, retryable=True)
        if execution.error or execution.partial:
            execution = record.bounded(execution)
        wait_s = wait_before_retry(tool, execution, attempt, min(deadline, ends) - clock.monotonic(), clock.jitter())
        if wait_s is None:
            return Ran(execution, attempt, lost)
        if await _comes_again(record, attempt, execution, wait_s, clock, stopping()):
            attempt, lost = attempt + 1, lost or _lost_a_reply(execution)
        elif kill.aborted and execution.status != "returned":
            return Ran(_killed_between(kill, execution), attempt, lost)
        else:
            return Ran(execution, attempt, lost)


def _read_small(execution: Execution, max_bytes: int) -> Execution | None:
    """Read at once what is small and of plain types; None for everything else."""
    small = small_jsonable(execution.value, max_bytes) if execution.status == "returned" else None
    if small is None:
        return None
    value, changes = small
    return Execution(status="returned", value=value, read=True, changes=execution.changes + changes, tasks_left=execution.tasks_left)


async def _read_large(execution: Execution, request: RunRequest, reader: ResultReader, clock: Clock) -> Execution:
    """Read what takes time or code of the tool's, within what is left of the attempt."""
    rest = replace(request, timeout_s=max(0.0, request.context.deadline - clock.monotonic()))
    read = await reader.read(execution, rest)
    return replace(read, tasks_left=execution.tasks_left) if execution.tasks_left else read


def _passing_failure(tool: BoundTool, value: object) -> str | None:
    """What a tool that may be repeated returned as a failure that passes; None where it returned anything else.

    What is no valid result is for `check` to refuse, and not tried again.
    """
    if tool.effect == "once" or not isinstance(value, dict) or value.get("success") is True:
        return None
    if not has_standard_shape(value, wraps_result=tool.tool.wraps_result) or validate_tool_result(value):
        return None
    failure = declared_failure(value)
    return failure if failure is not None and is_retryable_error(failure) else None


async def _intend(record: Attempts, position: int, within_s: float, told: str) -> None:
    """Have an attempt on record before its code is entered.

    Args:
        told: Put before why it is not.

    Raises:
        RecordFailed: It is not, or not in time.
    """
    try:
        await record.durable(position, within_s)
    except RecordFailed as error:
        raise RecordFailed(f"{told}{error}", code=error.code) from error


def wait_before_retry(tool: BoundTool, execution: Execution, attempt: int, left_s: float, chance: float) -> float | None:
    """Seconds to wait before the next attempt, or None where there must not be one.

    A failure that passes is retried where the effect makes a repeat safe; a failure that proves nothing started, always.
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


async def _comes_again(record: Attempts, attempt: int, execution: Execution, wait_s: float, clock: Clock, stop: AbortSignal) -> bool:
    """Wait for the next attempt; False where the call is stopped or killed before that. Only one that is to come is recorded."""
    if record.kill.aborted or stop.aborted:
        return False
    record.attempt_failed(attempt, execution, wait_s)
    return await _wait(wait_s, clock, record.kill, stop)


def _proves_nothing_happened(execution: Execution) -> bool:
    return execution.not_started or execution.status == "not_started" or execution.evidence in ("not_done", "not_sent")


def _lost_a_reply(execution: Execution) -> bool:
    return execution.evidence == "reply_lost" or execution.status in ("timed_out", "crashed")


def _killed_between(kill: AbortSignal, execution: Execution) -> Execution:
    """What a call came to that was killed while it waited for its next attempt."""
    return Execution(status="killed", error=kill.reason or "", not_started=_proves_nothing_happened(execution))


def _not_started(kill: AbortSignal) -> Execution:
    if kill.reason is not None:
        return Execution(status="killed", error=kill.reason, not_started=True)
    return Execution(status="not_started", error="the call's deadline had passed before it could start")


def _cancel(future: asyncio.Future[None]) -> None:
    future.cancel()


async def _wait(seconds: float, clock: Clock, *ends: AbortSignal) -> bool:
    """Wait, unless one of the signals fires; tells whether the wait came to its end."""
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
