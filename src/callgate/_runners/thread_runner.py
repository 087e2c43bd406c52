"""Run sync tools in threads, so that they do not block the event loop.

Uses its own pool: a thread is started only if none is free, and a result costs one wake-up of the loop. A thread cannot be stopped: at the
deadline or the kill the caller continues, and the thread is counted as abandoned until its tool returns. If no thread can be started, the
call is refused before its tool runs. Must not know of processes.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable, Mapping
from contextvars import Context, ContextVar, copy_context
from functools import partial
from typing import TypeVar

from msgspec.structs import replace

from callgate._deadlines import Deadlines
from callgate._engine_limits import Limits
from callgate._json import decode
from callgate._runners.abandoned_code import AbandonedCalls, AbandonedCode, OnLate
from callgate._runners.coroutine_driver import drive
from callgate._runners.exception_results import execution_not_started, execution_of_exception
from callgate._runners.interruptible_wait import BoundedWait
from callgate._runners.progress_relay import ProgressRelay
from callgate._runners.return_values import read_result
from callgate._runners.started_tasks import RUNNING_TOOLS
from callgate._runners.thread_pool import ThreadPool
from callgate.calls import ToolResult
from callgate.protocols import Execution, RunRequest

__all__ = ["ThreadRunner", "while_thread_waits"]

T = TypeVar("T")
_ATTEMPT: ContextVar[_ThreadAttempt | None] = ContextVar("callgate_thread_attempt", default=None)
"""The attempt whose tool's thread runs in this context."""


async def while_thread_waits(work: Callable[[], Awaitable[T]]) -> T:
    """Run work that another thread has handed to this event loop and waits for.

    If it is the thread of a tool of this loop, it does not count against its pool's limit meanwhile.
    """
    attempt = _ATTEMPT.get()
    if attempt is None or attempt.loop is not asyncio.get_running_loop():
        return await work()
    return await attempt.wait_for(work)


class ThreadRunner:
    """Runs a tool in a thread of a bounded pool. An awaitable that the tool returns is awaited on the event loop."""

    def __init__(self, limits: Limits, on_late: OnLate | None = None, abandoned_calls: AbandonedCalls | None = None) -> None:
        self._pool = ThreadPool(limits.parallel_threads)
        self._max_bytes = limits.result_bytes
        self._most_abandoned = limits.abandoned_threads
        self._most_waiting = limits.waiting_threads
        self._abandoned_code = AbandonedCode(on_late, abandoned_calls)
        self._deadlines = Deadlines()

    @property
    def abandoned(self) -> int:
        """The number of abandoned threads, coroutines and tasks that still run."""
        return self._pool.abandoned + len(self._abandoned_code)

    @property
    def late(self) -> int:
        """The number of results that arrived after their call had ended."""
        return self._abandoned_code.late

    async def run(self, request: RunRequest) -> Execution:
        why = self._refusal(request)
        if why is not None:
            return execution_not_started(why)
        self._abandoned_code.watch()
        loop = asyncio.get_running_loop()
        begun_at = loop.time()
        job = _ThreadAttempt(request, loop, self._pool, self._abandoned_code, self._deadlines, self._max_bytes)
        self._pool.submit(job)
        left = 0
        try:
            answer = await self._answer(job)
            if not isinstance(answer, Execution):
                rest = replace(request, timeout_s=max(0.0, request.timeout_s - (loop.time() - begun_at)))
                answer = await drive(answer, rest, job.context, self._abandoned_code, self._deadlines)
        finally:
            job.relay.stop()
            if self._abandoned_code.started and not job.abandoned:
                left = self._abandoned_code.tasks_left(request)
        return replace(answer, tasks_left=answer.tasks_left + left) if left else answer

    async def _answer(self, job: _ThreadAttempt) -> Execution | Awaitable[object]:
        try:
            answer = await job.wait.get()
        except BaseException:
            if job.wait.value is None:
                self._stop_waiting(job)
            else:
                job.report_late(job.wait.value)
            raise
        return self._stop_waiting(job) if answer is None else answer

    def _refusal(self, request: RunRequest) -> str | None:
        if request.kill.reason is not None:
            return request.kill.reason
        if self._pool.closed:
            return "the engine is closed"
        if self._pool.waiting >= self._most_waiting:
            return (
                f"{self._pool.waiting} threads wait for calls that their tools made; {self._most_waiting} is the limit."
                " Send fewer calls at once, or make the tools that call others async functions."
            )
        if self._pool.abandoned < self._most_abandoned:
            return None
        return (
            f"{self._pool.abandoned} threads are held by tools that never returned; {self._most_abandoned} is the limit."
            " Run such tools with runner='process', where they can be stopped, and restart this program."
        )

    def _stop_waiting(self, job: _ThreadAttempt) -> Execution:
        """Stop waiting for the job and return how its call ended."""
        if job.enter():
            self._pool.withdraw()
            ended = job.wait.execution_overdue()
            return execution_not_started(f"no thread was free in time: {ended.error}")
        abandoned = self._pool.abandon(job)
        if abandoned:
            self._abandoned_code.abandoned_calls.add(job.request.context.uid)
        return job.wait.execution_overdue(abandoned=abandoned, partial=job.relay.text())

    async def close(self) -> None:
        """End the idle threads; threads that run a tool are not waited for."""
        self._pool.close()
        self._deadlines.close()
        await self._abandoned_code.close()


class _ThreadAttempt:
    """One attempt, run as a job of the pool."""

    def __init__(
        self,
        request: RunRequest,
        loop: asyncio.AbstractEventLoop,
        pool: ThreadPool,
        abandoned_code: AbandonedCode,
        deadlines: Deadlines,
        max_bytes: int,
    ) -> None:
        self.request = request
        self.context: Context = copy_context()
        self.nested = bool(RUNNING_TOOLS.get())
        self.open_calls = 0
        self.wait: BoundedWait[Execution | Awaitable[object]] = BoundedWait(request, deadlines)
        self.relay = ProgressRelay(request.context, loop)
        self.finished = False
        self.abandoned = False
        self.loop = loop
        self._pool = pool
        self._abandoned_code = abandoned_code
        self._max_bytes = max_bytes
        self._entered = threading.Lock()

    def enter(self) -> bool:
        """Return True on the first call, and False after that.

        It is called by the thread that will run the tool, or by the caller to prevent that.
        """
        return self._entered.acquire(blocking=False)

    # Runs in the thread.

    def execute(self) -> Execution | Awaitable[object]:
        try:
            value = self.context.run(self._invoke)
            if inspect.isawaitable(value):
                return value
        except BaseException as error:
            return execution_of_exception(error, self.request.not_done)
        workspace = self.request.context.scope.workspace
        return self.context.run(read_result, Execution(status="returned", value=value), self._max_bytes, workspace)

    def _invoke(self) -> object:
        RUNNING_TOOLS.set((*RUNNING_TOOLS.get(), self.request))
        _ATTEMPT.set(self)
        approved, context = self.request.approved, self.request.context
        nested = None if context.nested is None else self._call
        return approved.call.tool.tool.invoke(context.for_thread(self.relay.take, self.loop, nested), decode(approved.arguments_json))

    def deliver(self, answer: Execution | Awaitable[object]) -> None:
        try:
            self.loop.call_soon_threadsafe(self._finish, answer)
        except RuntimeError:  # the event loop is closed: nothing waits for the result
            _close_unstarted(answer)

    # Runs on the event loop.

    def refuse(self, why: str) -> None:
        self.wait.finish(execution_not_started(why))

    async def _call(self, attempt: int, name: str, arguments: Mapping[str, object]) -> ToolResult:
        """Call another tool."""
        call = self.request.context.nested
        assert call is not None
        return await self.wait_for(partial(call, attempt, name, arguments))

    async def wait_for(self, work: Callable[[], Awaitable[T]]) -> T:
        """Run work that the tool waits for; until it ends, this job's thread does not count against the pool's limit."""
        self._pool.call_begins(self)
        try:
            return await work()
        finally:
            self._pool.call_ends(self)

    def _finish(self, answer: Execution | Awaitable[object]) -> None:
        self.relay.flush()
        self._pool.finished(self)
        if self.abandoned:
            self._abandoned_code.abandoned_calls.remove(self.request.context.uid)
            self._abandoned_code.tasks_left(self.request)
        if isinstance(answer, Execution) and answer.status != "returned":
            answer = replace(answer, partial=self.relay.text())
        if not self.wait.finish(answer):
            self.report_late(answer)

    def report_late(self, answer: Execution | Awaitable[object]) -> None:
        if isinstance(answer, Execution):
            self._abandoned_code.report_late(self.request.context.uid, answer)
        else:
            _close_unstarted(answer)


def _close_unstarted(answer: Execution | Awaitable[object]) -> None:
    """Close a coroutine that will not be awaited, so that Python does not warn of it."""
    if inspect.iscoroutine(answer):
        answer.close()
