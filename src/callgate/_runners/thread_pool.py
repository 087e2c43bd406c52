"""A bounded pool of daemon threads whose jobs may wait for calls that need threads of the same pool.

A job counts against the limit only while none of the calls that its tool made is open, and the jobs of such calls are taken first: so
waiting jobs can never block the jobs that they wait for. Must not know what a job does.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from typing import Any, Protocol

__all__ = ["PoolJob", "ThreadPool"]

_IDLE_S = 30.0


class PoolJob(Protocol):
    """A job of the pool. The attributes are guarded by the pool's lock."""

    nested: bool
    """Whether the call was made by another tool. Such a job is taken before jobs that no tool waits for."""
    open_calls: int
    """The number of open calls that its tool made."""
    finished: bool
    """Whether the tool has returned."""
    abandoned: bool
    """Whether the caller no longer waits for the tool, which still runs."""

    def enter(self) -> bool:
        """Return True on the first call, and False after that.

        It is called by the thread that will run the job, or by the caller to prevent that.
        """
        ...

    def execute(self) -> Any:
        """Run the job in the thread; never raises."""
        ...

    def deliver(self, answer: Any) -> None:
        """Deliver the result to the event loop; called in the thread."""
        ...

    def refuse(self, why: str) -> None:
        """Report that the job will not run."""
        ...


class ThreadPool:
    """Runs jobs in threads. `submit` and the other public methods must be called in the event loop's thread."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._wakeups: queue.SimpleQueue[bool] = queue.SimpleQueue()
        """True for each queued job; False for each thread that must end."""
        self._queued: deque[PoolJob] = deque()
        self._nested: deque[PoolJob] = deque()
        self._threads = 0
        self._busy = 0
        """Jobs that were submitted and have neither finished nor been abandoned."""
        self.waiting = 0
        """Jobs with open calls: their threads do not count against the limit."""
        self.abandoned = 0
        self.closed = False

    def submit(self, job: PoolJob) -> None:
        with self._lock:
            self._busy += 1
            (self._nested if job.nested else self._queued).append(job)
        self._wakeups.put(True)
        self._grow()

    def withdraw(self) -> None:
        """Record that a job was given up before a thread took it."""
        with self._lock:
            self._busy -= 1

    def call_begins(self, job: PoolJob) -> None:
        """Record that the job's tool has called another tool and is assumed to wait for it."""
        with self._lock:
            if job.finished or job.abandoned:
                return
            job.open_calls += 1
            self.waiting += job.open_calls == 1
        self._grow()

    def call_ends(self, job: PoolJob) -> None:
        with self._lock:
            if job.open_calls:
                job.open_calls -= 1
                self.waiting -= job.open_calls == 0

    def abandon(self, job: PoolJob) -> bool:
        """Abandon the thread that runs `job`; return False if the tool has returned and its result is on the way."""
        with self._lock:
            if job.finished:
                return False
            job.abandoned = True
            self._forget_calls(job)
            self._busy -= 1
            self._threads -= 1
            self.abandoned += 1
        self._grow()
        return True

    def finished(self, job: PoolJob) -> None:
        with self._lock:
            if job.abandoned:
                self.abandoned -= 1
            else:
                self._busy -= 1

    def close(self) -> None:
        with self._lock:
            self.closed = True
            for _ in range(self._threads):
                self._wakeups.put(False)

    def _forget_calls(self, job: PoolJob) -> None:
        self.waiting -= job.open_calls > 0
        job.open_calls = 0

    def _grow(self) -> None:
        """Start threads for queued jobs, within the limit."""
        while self._may_start_thread():
            try:
                threading.Thread(target=self._work, name="callgate tool", daemon=True).start()
            except (RuntimeError, MemoryError) as error:
                self._handle_no_thread(str(error) or type(error).__name__)
                return

    def _may_start_thread(self) -> bool:
        with self._lock:
            grows = self._busy > self._threads and self._threads - self.waiting < self._limit
            self._threads += grows
            return grows

    def _handle_no_thread(self, why: str) -> None:
        """Handle that no thread could be started: queued jobs wait for an existing thread; they are refused if none can take them."""
        with self._lock:
            self._threads -= 1
            if self._threads > self.waiting:
                return
            jobs = [*self._nested, *self._queued]
        for job in jobs:
            if job.enter():
                self.withdraw()
                job.refuse(f"no thread could be started for it: {why}")

    # Runs in a thread.

    def _work(self) -> None:
        while True:
            try:
                wanted = self._wakeups.get(timeout=_IDLE_S)
            except queue.Empty:
                if self._may_retire():
                    return
                continue
            if not wanted:
                return
            job = self._next_job()
            if job.enter() and not self._run(job):
                return
            del job  # frees the job and its result before the next job arrives

    def _next_job(self) -> PoolJob:
        with self._lock:
            return (self._nested or self._queued).popleft()

    def _run(self, job: PoolJob) -> bool:
        """Run a job; return False if this thread must end, because it was abandoned or exceeds the limit after a wait."""
        answer = job.execute()
        with self._lock:
            job.finished = True
            self._forget_calls(job)
            surplus = not job.abandoned and self._threads - self.waiting > self._limit
            self._threads -= surplus
        job.deliver(answer)
        return not (job.abandoned or surplus)

    def _may_retire(self) -> bool:
        with self._lock:
            if self._nested or self._queued:
                return False
            self._threads -= 1
            return True
