"""The pool of workers: idle ones are reused first, new ones are started up to the limit, then calls queue. Must not know what a call is."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from functools import partial

from callgate._clock import Clock
from callgate._run_in_thread import in_thread
from callgate._runners.process.resource_limits import ProcessLimits
from callgate._runners.process.worker_connection import WorkerConnection, import_path

__all__ = ["WorkerPool"]

OnFree = Callable[[WorkerConnection | OSError], bool]
_CLOSE_S = 1.2
_ORPHANS_S = 2.0
"""How long the supervisors of all workers together may take to end them if their event loop is gone."""


class WorkerPool:
    """The workers of one runner. Each runs one call at a time."""

    def __init__(self, limits: ProcessLimits, clock: Clock) -> None:
        self._limits = limits
        self._clock = clock
        self._members: set[WorkerConnection] = set()
        """The workers that count against the limit."""
        self._ending: set[WorkerConnection] = set()
        self._idle: dict[WorkerConnection, asyncio.TimerHandle] = {}
        self._waiting: deque[OnFree] = deque()
        self.closed = False

    def take(self) -> WorkerConnection | None:
        """Return an idle worker, the most recently used first, or a new one; None if all are busy and no more may, or can, be started.

        Raises:
            OSError: There is no worker, and none can be started.
        """
        while self._idle:
            connection, timer = self._idle.popitem()
            timer.cancel()
            if connection.path == import_path():
                return connection
            self.end(connection)
        if len(self._members) >= self._limits.workers:
            return None
        try:
            return self._start()
        except OSError:
            if self._members:
                return None
            raise

    def _start(self) -> WorkerConnection:
        connection = WorkerConnection(self._limits, self._clock.new_id(), self.end)
        self._members.add(connection)
        return connection

    def wait(self, on_free: OnFree) -> Callable[[], None]:
        """Queue for the next free worker: call `on_free` with it, or with the error why there is none.

        `on_free` returns False if the worker is no longer needed. Returns a function that leaves the queue.
        """
        self._waiting.append(on_free)

        def leave() -> None:
            if on_free in self._waiting:
                self._waiting.remove(on_free)

        return leave

    def give_back(self, connection: WorkerConnection) -> None:
        if connection not in self._members:
            return
        connection.listener = None
        while self._waiting:
            if self._waiting.popleft()(connection):
                return
        loop = asyncio.get_running_loop()
        self._idle[connection] = loop.call_later(self._limits.idle_s, self.end, connection)

    def end(self, connection: WorkerConnection, grace_s: float = 0.0) -> None:
        """End a worker; another may be started in its place at once."""
        self._leave(connection)
        if not connection.reaped.done():
            self._ending.add(connection)
            connection.reaped.add_done_callback(lambda _: self._ending.discard(connection))
        connection.stop(grace_s)

    def _leave(self, connection: WorkerConnection) -> None:
        timer = self._idle.pop(connection, None)
        if timer is not None:
            timer.cancel()
        if connection not in self._members:
            return
        self._members.discard(connection)
        while self._waiting and not self.closed and len(self._members) < self._limits.workers:
            try:
                fresh = self._start()
            except OSError as error:
                self._refuse(error)
                return
            if not self._waiting.popleft()(fresh):
                self.give_back(fresh)

    def _refuse(self, error: OSError) -> None:
        """Handle that no worker can be started: queued calls wait for a busy worker; if there is none, they get the error."""
        while self._waiting and not self._members:
            self._waiting.popleft()(error)

    async def close(self) -> None:
        """End all workers in bounded time, even if the event loop that served them is gone."""
        self.closed = True
        orphans = [connection for connection in self._members | self._ending if connection.is_orphaned]
        self._members.difference_update(orphans)
        self._ending.difference_update(orphans)
        for connection in list(self._members):
            self.end(connection)
        if self._ending:
            await asyncio.wait([connection.reaped for connection in self._ending], timeout=_CLOSE_S)
        if orphans:
            await in_thread(partial(_end_orphans, orphans))


def _end_orphans(connections: list[WorkerConnection]) -> None:
    for connection in connections:
        connection.close_channel()
    until = time.monotonic() + _ORPHANS_S
    for connection in connections:
        connection.join(until)
