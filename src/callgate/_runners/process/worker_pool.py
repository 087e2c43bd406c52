"""Which worker takes which call: warm ones first, new ones up to the limit, then in turn. Must not know what a call is."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from functools import partial

from callgate._clock import Clock
from callgate._in_thread import in_thread
from callgate._runners.process.limits import ProcessLimits
from callgate._runners.process.worker_connection import WorkerConnection, import_path

__all__ = ["WorkerPool"]

Give = Callable[[WorkerConnection | OSError], bool]
_CLOSE_S = 1.2
_ORPHANS_S = 2.0
"""What the supervisors of all workers together get to end them, where their event loop is gone."""


class WorkerPool:
    """The workers of one runner. Each serves one call at a time."""

    def __init__(self, limits: ProcessLimits, clock: Clock) -> None:
        self._limits = limits
        self._clock = clock
        self._members: set[WorkerConnection] = set()
        """Those that count against the limit."""
        self._ending: set[WorkerConnection] = set()
        self._idle: dict[WorkerConnection, asyncio.TimerHandle] = {}
        self._waiting: deque[Give] = deque()
        self.closed = False

    def take(self) -> WorkerConnection | None:
        """A worker, the one used last if there is one; None if all are busy and no more may, or can, be started.

        Raises:
            OSError: There is none, and none can be started.
        """
        while self._idle:
            link, timer = self._idle.popitem()
            timer.cancel()
            if link.path == import_path():
                return link
            self.end(link)
        if len(self._members) >= self._limits.workers:
            return None
        try:
            return self._start()
        except OSError:
            if self._members:
                return None
            raise

    def _start(self) -> WorkerConnection:
        link = WorkerConnection(self._limits, self._clock.new_id(), self._gone)
        self._members.add(link)
        return link

    def wait(self, give: Give) -> Callable[[], None]:
        """Call `give` with the next free worker, or with why there will be none; it returns False if it does not want it any more.

        Returns how to leave the queue.
        """
        self._waiting.append(give)

        def leave() -> None:
            if give in self._waiting:
                self._waiting.remove(give)

        return leave

    def give_back(self, link: WorkerConnection) -> None:
        if link not in self._members:
            return
        link.listener = None
        while self._waiting:
            if self._waiting.popleft()(link):
                return
        loop = asyncio.get_running_loop()
        self._idle[link] = loop.call_later(self._limits.idle_s, self.end, link)

    def end(self, link: WorkerConnection, grace_s: float = 0.0) -> None:
        """End a worker; another may be started in its place at once."""
        self._leave(link)
        if not link.reaped.done():
            self._ending.add(link)
            link.reaped.add_done_callback(lambda _: self._ending.discard(link))
        link.stop(grace_s)

    def _gone(self, link: WorkerConnection) -> None:
        self.end(link)

    def _leave(self, link: WorkerConnection) -> None:
        timer = self._idle.pop(link, None)
        if timer is not None:
            timer.cancel()
        if link not in self._members:
            return
        self._members.discard(link)
        while self._waiting and not self.closed and len(self._members) < self._limits.workers:
            try:
                fresh = self._start()
            except OSError as error:
                self._refuse(error)
                return
            if not self._waiting.popleft()(fresh):
                self.give_back(fresh)

    def _refuse(self, error: OSError) -> None:
        """No worker can be started: whoever waits gets one that is busy now, or is told."""
        while self._waiting and not self._members:
            self._waiting.popleft()(error)

    async def close(self) -> None:
        """End all workers, in bounded time, also where the event loop that served them is gone."""
        self.closed = True
        orphans = [link for link in self._members | self._ending if link.is_orphaned]
        self._members.difference_update(orphans)
        self._ending.difference_update(orphans)
        for link in list(self._members):
            self.end(link)
        if self._ending:
            await asyncio.wait([link.reaped for link in self._ending], timeout=_CLOSE_S)
        if orphans:
            await in_thread(partial(_end_orphans, orphans))


def _end_orphans(links: list[WorkerConnection]) -> None:
    for link in links:
        link.hang_up()
    until = time.monotonic() + _ORPHANS_S
    for link in links:
        link.join(until)
