"""Run sync tools in threads, so that they do not hold up the event loop.

A pool of our own: a thread is started only where none is free, and an answer costs one wake-up of the loop. A thread cannot be stopped:
at the deadline or the kill the caller goes on, and the thread is counted as abandoned until its tool returns. Must not know of processes.
"""

from __future__ import annotations

import asyncio
import inspect
import queue
import threading
from collections.abc import Awaitable
from contextlib import suppress
from contextvars import Context, copy_context

from msgspec.structs import replace

from callgate._json import decode
from callgate._limits import Limits
from callgate._runners.alarms import Alarms
from callgate._runners.failure import failed, not_started
from callgate._runners.inline import drive
from callgate._runners.reading import read
from callgate._runners.relay import Relay
from callgate._runners.strays import Behind, OnLate, Strays
from callgate._runners.waiting import Wait
from callgate.protocols import Execution, RunRequest

__all__ = ["ThreadRunner"]

_IDLE_S = 30.0


class ThreadRunner:
    """Runs a tool in a thread of a bounded pool. An awaitable that the tool returns is awaited on the event loop."""

    def __init__(self, limits: Limits, on_late: OnLate | None = None, behind: Behind | None = None) -> None:
        self._pool = _Pool(limits.parallel_threads)
        self._max_bytes = limits.result_bytes
        self._limit = limits.abandoned_threads
        self._strays = Strays(on_late, behind)
        self._alarms = Alarms()

    @property
    def abandoned(self) -> int:
        """Threads and coroutines that would not stop and still run."""
        return self._pool.abandoned + len(self._strays)

    @property
    def late(self) -> int:
        """Answers that came after their call had ended."""
        return self._strays.late

    async def run(self, request: RunRequest) -> Execution:
        why = self._refusal(request)
        if why is not None:
            return not_started(why)
        loop = asyncio.get_running_loop()
        begun_at = loop.time()
        job = _Job(request, loop, self._pool, self._strays, self._alarms, self._max_bytes)
        self._pool.submit(job)
        try:
            answer = await self._answer(job)
            if isinstance(answer, Execution):
                return answer
            rest = replace(request, timeout_s=max(0.0, request.timeout_s - (loop.time() - begun_at)))
            return await drive(answer, rest, job.context, self._strays, self._alarms)
        finally:
            job.relay.stop()

    async def _answer(self, job: _Job) -> Execution | Awaitable[object]:
        try:
            answer = await job.wait.get()
        except BaseException:
            if job.wait.value is None:
                self._leave(job)
            else:
                job.came_late(job.wait.value)
            raise
        return self._leave(job) if answer is None else answer

    def _refusal(self, request: RunRequest) -> str | None:
        if request.kill.reason is not None:
            return request.kill.reason
        if self._pool.closed:
            return "the engine is closed"
        if self._pool.abandoned < self._limit:
            return None
        return (
            f"{self._pool.abandoned} threads are held by tools that never returned; {self._limit} is the limit."
            " Run such tools with runner='process', where they can be stopped, and restart this program."
        )

    def _leave(self, job: _Job) -> Execution:
        """Go on without the job."""
        if job.enter():
            self._pool.withdrawn()
            ended = job.wait.overdue()
            return not_started(f"no thread was free in time: {ended.error}")
        abandoned = self._pool.abandon(job)
        if abandoned:
            self._strays.behind.left(job.request.context.uid)
        return job.wait.overdue(abandoned=abandoned, partial=job.relay.text())

    async def close(self) -> None:
        """End the threads that wait for work; those inside a tool are not waited for."""
        self._pool.close()
        self._alarms.close()
        await self._strays.close()


class _Job:
    """One attempt on its way through the pool."""

    def __init__(
        self, request: RunRequest, loop: asyncio.AbstractEventLoop, pool: _Pool, strays: Strays, alarms: Alarms, max_bytes: int
    ) -> None:
        self.request = request
        self.context: Context = copy_context()
        self.wait: Wait[Execution | Awaitable[object]] = Wait(request, alarms)
        self.relay = Relay(request.context, loop)
        self.finished = False
        """The tool has returned. Guarded by the pool's lock, as is `abandoned`."""
        self.abandoned = False
        self._loop = loop
        self._pool = pool
        self._strays = strays
        self._max_bytes = max_bytes
        self._ticket = threading.Lock()

    def enter(self) -> bool:
        """True for the first who asks: the thread that will run the tool, or the caller who no longer wants it run."""
        return self._ticket.acquire(blocking=False)

    # In the thread.

    def execute(self) -> Execution | Awaitable[object]:
        request = self.request
        approved = request.approved
        try:
            context = request.context.for_thread(self.relay.take, self._loop)
            value = self.context.run(approved.call.tool.tool.invoke, context, decode(approved.encoded))
            if inspect.isawaitable(value):
                return value
        except BaseException as error:
            return failed(error, request.not_done)
        return self.context.run(read, Execution(status="returned", value=value), self._max_bytes)

    def deliver(self, answer: Execution | Awaitable[object]) -> None:
        with suppress(RuntimeError):  # the event loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._finish, answer)

    # On the event loop.

    def _finish(self, answer: Execution | Awaitable[object]) -> None:
        self.relay.flush()
        self._pool.finished(self)
        if self.abandoned:
            self._strays.behind.gone(self.request.context.uid)
        if isinstance(answer, Execution) and answer.status != "returned":
            answer = replace(answer, partial=self.relay.text())
        if not self.wait.finish(answer):
            self.came_late(answer)

    def came_late(self, answer: Execution | Awaitable[object]) -> None:
        if isinstance(answer, Execution):
            self._strays.came_late(self.request.context.uid, answer)
        elif inspect.iscoroutine(answer):
            answer.close()


class _Pool:
    """Threads that take jobs from one queue. `submit` and the counters belong to the event loop's thread."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._queue: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._threads = 0
        self._busy = 0
        """Jobs submitted and neither finished nor given up."""
        self.abandoned = 0
        self.closed = False

    def submit(self, job: _Job) -> None:
        with self._lock:
            self._busy += 1
            grow = self._busy > self._threads and self._threads < self._limit
            self._threads += grow
            self._queue.put(job)
        if grow:
            threading.Thread(target=self._work, name="callgate tool", daemon=True).start()

    def withdrawn(self) -> None:
        """A job was given up before a thread took it."""
        with self._lock:
            self._busy -= 1

    def abandon(self, job: _Job) -> bool:
        """Give up the thread that runs `job`. False: it is through, and its answer is on the way."""
        with self._lock:
            if job.finished:
                return False
            job.abandoned = True
            self._busy -= 1
            self._threads -= 1
            self.abandoned += 1
            return True

    def finished(self, job: _Job) -> None:
        with self._lock:
            if job.abandoned:
                self.abandoned -= 1
            else:
                self._busy -= 1

    def close(self) -> None:
        with self._lock:
            self.closed = True
            for _ in range(self._threads):
                self._queue.put(None)

    # In a thread.

    def _work(self) -> None:
        while True:
            try:
                job = self._queue.get(timeout=_IDLE_S)
            except queue.Empty:
                if self._retire():
                    return
                continue
            if job is None or (job.enter() and not self._run(job)):
                return
            del job  # or the last job and its result would live until the next one

    def _run(self, job: _Job) -> bool:
        """Run a job. False: its caller has given this thread up, and another has taken its place."""
        answer = job.execute()
        with self._lock:
            job.finished = True
        job.deliver(answer)
        return not job.abandoned

    def _retire(self) -> bool:
        with self._lock:
            if not self._queue.empty():
                return False
            self._threads -= 1
            return True
