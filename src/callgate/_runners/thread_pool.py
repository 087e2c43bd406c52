"""A bounded pool of daemon threads whose jobs may wait for calls that need threads of the same pool.

A job counts against the limit only while no call that its tool made is open, and the jobs of such calls are taken first: so no number of
jobs that wait can keep from running what they wait for. Must not know what a job does.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from typing import Any, Protocol

__all__ = ["PoolJob", "ThreadPool"]

_IDLE_S = 30.0


class PoolJob(Protocol):
    """What the pool runs. The attributes are guarded by the pool's lock."""

    nested: bool
    """A call that another tool made: it is taken before those that none waits for."""
    open_calls: int
    """How many calls that its tool made have not ended."""
    finished: bool
    """The tool has returned."""
    abandoned: bool
    """The caller no longer waits for the tool, which still runs."""

    def enter(self) -> bool:
        """True for the first who asks: the thread that will run it, or the caller who no longer wants it run."""
        ...

    def execute(self) -> Any:
        """Run it, in the thread; never raises."""
        ...

    def deliver(self, answer: Any) -> None:
        """Hand the answer over to the event loop; called in the thread."""
        ...

    def refuse(self, why: str) -> None:
        """It will not be run."""
        ...


class ThreadPool:
    """`submit` and the other public methods belong to the event loop's thread."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._wakeups: queue.SimpleQueue[bool] = queue.SimpleQueue()
        """One for each queued job: true; and for each thread that is to end: false."""
        self._queued: deque[PoolJob] = deque()
        self._nested: deque[PoolJob] = deque()
        self._threads = 0
        self._busy = 0
        """Jobs submitted and neither finished nor given up."""
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

    def withdrawn(self) -> None:
        """A job was given up before a thread took it."""
        with self._lock:
            self._busy -= 1

    def call_begins(self, job: PoolJob) -> None:
        """The job's tool has called another one and waits for it, as far as anybody knows."""
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
        """Give up the thread that runs `job`. False: it is through, and its answer is on the way."""
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
        """Start threads for queued jobs, as far as the limit allows."""
        while self._takes_thread():
            try:
                threading.Thread(target=self._work, name="callgate tool", daemon=True).start()
            except (RuntimeError, MemoryError) as error:
                self._unstarted(str(error) or type(error).__name__)
                return

    def _takes_thread(self) -> bool:
        with self._lock:
            grows = self._busy > self._threads and self._threads - self.waiting < self._limit
            self._threads += grows
            return grows

    def _unstarted(self, why: str) -> None:
        """The system has no thread to give: queued jobs wait for one of ours, and are refused where none will come to them."""
        with self._lock:
            self._threads -= 1
            if self._threads > self.waiting:
                return
            jobs = [*self._nested, *self._queued]
        for job in jobs:
            if job.enter():
                self.withdrawn()
                job.refuse(f"no thread could be started for it: {why}")

    # In a thread.

    def _work(self) -> None:
        while True:
            try:
                wanted = self._wakeups.get(timeout=_IDLE_S)
            except queue.Empty:
                if self._retires():
                    return
                continue
            if not wanted:
                return
            job = self._next()
            if job.enter() and not self._run(job):
                return
            del job  # or the last job and its result would live until the next one

    def _next(self) -> PoolJob:
        with self._lock:
            return (self._nested or self._queued).popleft()

    def _run(self, job: PoolJob) -> bool:
        """Run a job. False: this thread is to end, given up by the job's caller or one too many after a wait."""
        answer = job.execute()
        with self._lock:
            job.finished = True
            self._forget_calls(job)
            surplus = not job.abandoned and self._threads - self.waiting > self._limit
            self._threads -= surplus
        job.deliver(answer)
        return not (job.abandoned or surplus)

    def _retires(self) -> bool:
        with self._lock:
            if self._nested or self._queued:
                return False
            self._threads -= 1
            return True
