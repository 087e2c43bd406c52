"""A background thread for a memory's work; no call waits for it.

An exception ends only the current piece of work. It is logged, but only once until the next success. The thread starts on demand and ends
in bounded time.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from callgate._terminal_text import one_line
from callgate.memory.memory_limits import LOGGED_CHARS

__all__ = ["BackgroundThread"]

log = logging.getLogger("callgate")


class BackgroundThread:
    """Runs a function in a background thread whenever `wake` is called.

    Args:
        work: The function. It is called repeatedly until it returns True, and should check `stopping` between its
            steps.
        failing: A clause for the log message of a failure; says which work was not done.
        interrupt: Called when the thread has to stop; must end whatever the function is waiting for.
    """

    def __init__(self, work: Callable[[], bool], *, failing: str, interrupt: Callable[[], None] = lambda: None) -> None:
        self._run_work = work
        self._failing = failing
        self._interrupt = interrupt
        self._thread: threading.Thread | None = None
        self._guard = threading.Condition()
        self._woken = 0
        self._done = 0
        self._stopping = False
        self.failure = ""
        """The last error; empty after a success."""

    @property
    def stopping(self) -> bool:
        return self._stopping

    def wake(self) -> None:
        """Start the work if needed. Never waits or raises: if no thread can be started, the next call tries again."""
        with self._guard:
            if self._stopping:
                return
            self._woken += 1
            if self._thread is None:
                self._begin()
            self._guard.notify_all()

    def _begin(self) -> None:
        thread = threading.Thread(target=self._work, name="callgate-memory", daemon=True)
        try:
            thread.start()
        except (RuntimeError, MemoryError) as error:
            self._record_failure(error)
        else:
            self._thread = thread

    def wait_until_done(self, timeout_s: float) -> bool:
        """Wait until all current work is done. Return False if `timeout_s` passes first."""
        self.wake()
        with self._guard:
            asked = self._woken
            if self._thread is None:
                return self._done >= asked
            return self._guard.wait_for(lambda: self._done >= asked, timeout_s)

    def stop(self, timeout_s: float) -> bool:
        """Finish the work and stop the thread within `timeout_s` seconds; return whether all work was done. Idempotent."""
        deadline = time.monotonic() + timeout_s
        done = self.wait_until_done(timeout_s / 2) if self._thread is not None and not self._stopping else True
        with self._guard:
            self._stopping = True
            self._guard.notify_all()
        self._interrupt()
        if self._thread is not None:
            self._thread.join(max(0.0, deadline - time.monotonic()))
            return done and not self._thread.is_alive()
        return done

    def _work(self) -> None:
        while True:
            with self._guard:
                self._guard.wait_for(lambda: self._stopping or self._woken > self._done)
                if self._stopping:
                    return
                asked = self._woken
            self._try()
            with self._guard:
                self._done = asked
                self._guard.notify_all()

    def _try(self) -> None:
        try:
            while not self._stopping and not self._run_work():
                pass
            self.failure = ""
        except Exception as error:
            self._record_failure(error)

    def _record_failure(self, error: Exception) -> None:
        why = f"{type(error).__name__}: {error}"
        if not self.failure and not self._stopping:
            log.error("Memory: %s; it is tried again after the next call: %s", self._failing, one_line(why, LOGGED_CHARS))
        self.failure = why
