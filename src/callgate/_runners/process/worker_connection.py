"""The engine's connection to one supervised worker: start it, exchange frames, and reliably end it.

Everything here runs in callbacks of the event loop, so that a worker is ended even if its user was cancelled. Must not know of
requests, tools or the pool.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from contextvars import Context
from functools import partial
from typing import Protocol

from callgate._process_identity import process_identity
from callgate._run_in_thread import in_thread
from callgate._runners.process.resource_limits import ProcessLimits, worker_environment
from callgate._runners.process.supervisor.frames import WORKER_FD, frame, split
from callgate._runners.process.worker_protocol import WorkerExit

__all__ = ["WorkerConnection", "WorkerListener", "import_path", "kill_marked_processes"]

_READ_BYTES = 262_144
_FORCE_S = 0.5
"""How long after the grace period the supervisor itself is killed."""
_REAP_S = 0.002
_SUPERVISOR = "import sys; sys.path.append(sys.argv[1]); from supervisor.main import main; main(*sys.argv[2:])"
_WORKER = (
    "import sys; fd = int(sys.argv[1]); sys.path[:] = sys.argv[2:]; sys.argv[1:] = [];"
    " from callgate._runners.process.worker_main import main; main(fd)"
)


class WorkerListener(Protocol):
    """Receives the frames of one call's worker."""

    def receive_frame(self, kind: bytes, body: bytes) -> None: ...

    def handle_loss(self, exit: WorkerExit | None) -> None:
        """Called when the worker and all its processes have ended; None: its supervisor died first, so the exit status is unknown."""
        ...


def import_path() -> tuple[str, ...]:
    """Return the import path for a worker: the same as this process's."""
    return tuple(os.path.abspath(entry) for entry in sys.path)


class WorkerConnection:
    """A worker with its supervisor.

    Raises:
        OSError: The process or its channel cannot be created.
    """

    def __init__(self, limits: ProcessLimits, marker: str, on_gone: Callable[[WorkerConnection], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_gone = on_gone
        self._marker = marker
        self.path = import_path()
        self.listener: WorkerListener | None = None
        self.gone: asyncio.Future[None] = self._loop.create_future()
        """Done when none of its processes runs any more."""
        self.reaped: asyncio.Future[None] = self._loop.create_future()
        self.exit: WorkerExit | None = None
        self.has_worker = False
        """Whether the supervisor has begun to start the worker. Before that, no part of a call can have run."""
        self.survivors = 0
        self.stopping = False
        self._unread = bytearray()
        self._unsent = bytearray()
        self._sweep: asyncio.Task[None] | None = None
        self._socket, self._process = _start(limits, marker, self.path)
        self.name = f"{process_identity(self._process.pid)} {marker}"
        """Identifies this worker to other processes; see `end_worker`."""
        self._loop.add_reader(self._socket, self._on_readable)

    def send(self, kind: bytes, body: bytes = b"") -> None:
        if self._socket.fileno() < 0:
            return  # it has ended; `gone` will be set
        self._unsent += frame(kind, body)
        self._flush()

    def _flush(self) -> None:
        try:
            while self._unsent:
                del self._unsent[: self._socket.send(self._unsent)]
        except BlockingIOError:
            self._loop.add_writer(self._socket, self._flush)
            return
        except OSError:
            self._unsent.clear()  # the reader detects the cause
        self._loop.remove_writer(self._socket)

    def _on_readable(self) -> None:
        try:
            data = self._socket.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._unread += data
        for kind, body in split(self._unread):
            self._receive(kind, body)
        if not data:
            self._on_end()

    def _receive(self, kind: bytes, body: bytes) -> None:
        if kind == b"W":
            self.has_worker = True
        elif kind == b"X":
            self.exit = WorkerExit.read(body)
            self._set_gone(self.exit.survivors)
        elif self.listener is not None:
            self.listener.receive_frame(kind, body)

    def stop(self, grace_s: float) -> None:
        """Signal all its processes to stop, and end them after the grace period. `gone` is set at most half a second later."""
        if self.stopping or self.gone.done():
            return
        self.stopping = True
        self.send(b"K", str(max(0.0, grace_s)).encode())
        self._loop.call_later(grace_s + _FORCE_S, self._kill_supervisor)

    @property
    def is_orphaned(self) -> bool:
        """Whether the event loop that serves it has ended, so that nothing would notice its end."""
        return not self._loop.is_running()

    def close_channel(self) -> None:
        """Close the channel, which makes the supervisor end everything and exit. For an orphaned connection; call `join` next."""
        with suppress(Exception):  # a closed loop has no readers
            self._loop.remove_reader(self._socket)
            self._loop.remove_writer(self._socket)
        self._socket.close()

    def join(self, until: float) -> None:
        """Wait for the supervisor until `until` (`time.monotonic`); then kill it and the rest. For an orphaned connection."""
        try:
            self._process.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            kill_marked_processes(self._marker)

    def _kill_supervisor(self) -> None:
        if not self.gone.done():
            self._process.kill()  # closes the channel, which calls `_on_end`

    def _on_end(self) -> None:
        """Handle that the supervisor has closed the channel: it is exiting, or was killed."""
        self._loop.remove_reader(self._socket)
        self._loop.remove_writer(self._socket)
        self._socket.close()
        self._reap()
        if not self.gone.done():
            self._sweep = self._loop.create_task(self._end_rest(), context=Context())  # must not count as a task of the current tool

    async def _end_rest(self) -> None:
        self._set_gone(await in_thread(partial(kill_marked_processes, self._marker)))

    def _set_gone(self, survivors: int) -> None:
        if self.gone.done():
            return
        self.survivors = survivors
        self.gone.set_result(None)
        self._on_gone(self)
        if self.listener is not None:
            self.listener.handle_loss(self.exit)

    def _reap(self) -> None:
        if self._process.poll() is None:
            self._loop.call_later(_REAP_S, self._reap)
        elif not self.reaped.done():
            self.reaped.set_result(None)


def _start(limits: ProcessLimits, marker: str, path: tuple[str, ...]) -> tuple[socket.socket, subprocess.Popen[bytes]]:
    worker = [sys.executable, "-P", "-c", _WORKER, str(WORKER_FD), *path]
    with ExitStack() as failed, ExitStack() as theirs:
        ours, end = socket.socketpair()
        failed.enter_context(ours)
        theirs.enter_context(end)
        channel = [theirs.enter_context(one) for one in socket.socketpair()]
        passed = [str(one.fileno()) for one in (end, *channel)]
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _SUPERVISOR, os.path.dirname(__file__), *passed, limits.resources(), *worker],
            pass_fds=[int(fd) for fd in passed],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # signals of the engine's terminal must not reach the tools
            env=worker_environment(limits, marker),
        )
        ours.setblocking(False)
        failed.pop_all()
    return ours, process


def kill_marked_processes(marker: str) -> int:
    """Kill every process that carries the marker, if the supervisor no longer can; return how many survived."""
    import psutil

    left = 0
    for _ in range(50):
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error, OSError):
                if process.environ().get("CALLGATE_WORKER") == marker:
                    found.append(process)
        left = len(found)
        for process in found:
            with suppress(psutil.Error):
                process.send_signal(signal.SIGKILL)
        if not left:
            break
        time.sleep(0.01)  # on a busy machine, killed processes need a moment to exit
    return left
