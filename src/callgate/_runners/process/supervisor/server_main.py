"""The supervisor of one server: a program that keeps the descriptors 0, 1 and 2 that its engine gave it, and must not outlive the engine.

The server reads and writes the engine's pipes directly, so that its messages cost nothing here. The channel to the engine carries only the
order to stop (`K`), whether the program could be started (`S`, `N`), and its exit (`X`). If the engine ends in any way, the channel ends,
and the whole process tree is killed.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time

from .frames import FrameChannel
from .process_tree import ProcessTree, adopt_orphans

__all__ = ["main"]

HEARTBEAT_S = 1.0
STOPPING_S = 0.02
PR_SET_PDEATHSIG = 1
_IGNORED = (signal.SIGINT, signal.SIGHUP, signal.SIGTERM)


class ServerSupervisor:
    """Waits until the server exits, must stop, or the engine ends. Then it ends the whole process tree."""

    def __init__(self, engine: FrameChannel, pid: int, wakeup: int) -> None:
        self._engine = engine
        self._pid = pid
        self._wakeup = wakeup
        self._tree = ProcessTree(os.getpid())
        self._parent = os.getppid()
        self._stop_by: float | None = None
        self._status: int | None = None

    def run(self) -> None:
        while not self._is_over():
            poll = select.poll()
            poll.register(self._wakeup, select.POLLIN)
            poll.register(self._engine.fd, select.POLLIN)
            for fd, _ in poll.poll(1000 * (HEARTBEAT_S if self._stop_by is None else STOPPING_S)):
                self._serve(fd)
            self._reap()
            if os.getppid() != self._parent:
                self._engine.ended = True
        left = self._tree.kill(self._reap)
        code = os.waitstatus_to_exitcode(self._status) if self._status is not None else 0
        self._engine.send(b"X", f"{code} {left}".encode())

    def _is_over(self) -> bool:
        if self._engine.ended or self._status is not None:
            return True
        return self._stop_by is not None and (time.monotonic() >= self._stop_by or not self._tree.alive())

    def _serve(self, fd: int) -> None:
        if fd == self._wakeup:
            os.read(fd, 512)
            return
        self._engine.fill()
        for kind, body in self._engine.take():
            if kind == b"K":
                self._stop_by = time.monotonic() + float(body)
                self._tree.signal(self._tree.alive(), signal.SIGTERM, signal.SIGCONT)

    def _reap(self) -> None:
        try:
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] == self._pid:
                    self._status = ended[1]
        except ChildProcessError:
            return


def _start(command: list[str]) -> tuple[int, str]:
    """Start the server in a new session; return its pid, and why it could not be started."""
    told, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            for number in (signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ, *_IGNORED):
                signal.signal(number, signal.SIG_DFL)
            _die_with_parent()
            os.execvp(command[0], command)
        except OSError as error:
            os.write(tell, (error.strerror or str(error)).encode())
        finally:
            os._exit(127)
    os.close(tell)
    with open(told, "rb") as file:
        return pid, file.read().decode("utf-8", "replace")


def _die_with_parent() -> None:
    """Request SIGKILL for this process if the supervisor is killed. Supported on Linux only."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _close_pipes() -> None:
    """Close this process's ends of the server's pipes, so that the engine sees when the server closes them."""
    empty = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(empty, fd)
    os.close(empty)


def main(engine: str, *command: str) -> None:
    """Run with the descriptor of the engine's channel and the server's command."""
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    os.set_inheritable(int(engine), False)
    adopt_orphans()
    wakeup, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    channel = FrameChannel(int(engine))
    pid, problem = _start(list(command))
    _close_pipes()
    if problem:
        channel.send(b"N", problem.encode())
        return
    channel.send(b"S", str(pid).encode())
    ServerSupervisor(channel, pid, wakeup).run()
