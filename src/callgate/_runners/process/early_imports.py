"""Import slow tools in a worker before their next call.

The import of a tool's module belongs to the first call in a worker, and counts against its timeout. If it takes longer, that call ends
without having started, and its worker with it. So the tool is imported in another worker, without a call, which is then ready for the next
one. Must not know how calls are run.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial

from callgate._runners.process.worker_connection import WorkerConnection
from callgate._runners.process.worker_pool import WorkerPool
from callgate._runners.process.worker_protocol import WorkerExit

__all__ = ["EarlyImports"]

log = logging.getLogger("callgate")
_LONGEST_S = 60.0
"""How long an import may take."""


class EarlyImports:
    """The imports that run in the workers of one pool, at most one for each tool."""

    def __init__(self, pool: WorkerPool) -> None:
        self._pool = pool
        self._running: set[str] = set()
        self._told: set[str] = set()

    def runs(self, target: str) -> bool:
        """Return whether a tool is being imported, so that it is better to wait for that worker than to start another one."""
        return target in self._running

    def begin(self, target: str, timeout_s: float) -> None:
        """Import a tool whose import took longer than the timeout of its call. Nothing happens if all workers are busy."""
        if target in self._running or self._pool.closed:
            return
        try:
            connection = self._pool.take()
        except OSError:  # the next call reports it
            return
        if connection is None:
            return
        self._running.add(target)
        end = asyncio.get_running_loop().call_later(_LONGEST_S, self._pool.end, connection)
        began = time.monotonic()

        connection.listener = _Importing(partial(self._finish, connection, target, timeout_s, began, end))
        connection.send(b"L", target.encode())

    def _finish(
        self, connection: WorkerConnection, target: str, timeout_s: float, began: float, end: asyncio.TimerHandle, usable: bool
    ) -> None:
        end.cancel()
        self._running.discard(target)
        if usable:
            self._pool.give_back(connection)
        self._tell(target, time.monotonic() - began, timeout_s)

    def _tell(self, target: str, took_s: float, timeout_s: float) -> None:
        """Tell the operator, once for each tool."""
        if target in self._told or took_s <= timeout_s:
            return
        self._told.add(target)
        module, _, name = target.rpartition(":")
        log.warning(
            "A worker process needs %.1f s to import %s for the tool %s, which is longer than the %.1f s that its call may take. A call"
            " that meets a new worker ends without having started. Move the tool to a module that imports less, or give it a longer"
            " timeout_s.",
            took_s,
            module,
            name,
            timeout_s,
        )


class _Importing:
    """Receives the frames of a worker that imports a tool. Implements `WorkerListener`.

    Args:
        on_end: Called once at the end, with whether the worker can be used.
    """

    def __init__(self, on_end: Callable[[bool], None]) -> None:
        self._on_end: Callable[[bool], None] | None = on_end

    def receive_frame(self, kind: bytes, body: bytes) -> None:
        if kind in (b"E", b"F"):
            self._end(True)

    def handle_loss(self, exit: WorkerExit | None) -> None:
        self._end(False)

    def _end(self, usable: bool) -> None:
        on_end, self._on_end = self._on_end, None
        if on_end is not None:
            on_end(usable)
