"""The supervisor's main loop, and how it starts its worker."""

from __future__ import annotations

import os
import resource
import select
import signal
import time

from .frames import NO_WORKER, WORKER_FD, FrameChannel
from .process_tree import ProcessTree, adopt_orphans
from .worker_output import BACKLOG_BYTES, StreamOutput

__all__ = ["Supervisor", "main"]

HEARTBEAT_S = 1.0
STOPPING_S = 0.02
EXIT_S = 1.0
"""How long a worker that has closed its channel may take to exit; a busy machine needs some of it."""


class Supervisor:
    """Serves one worker until it exits, must stop, or the engine ends. Then it ends the whole process tree.

    running  --the engine requests it-->  stopping (all processes got SIGTERM; `_stop_by` is the end of the grace
        period)
    stopping --no process is left, or the grace period is over-->  ending
    running  --the worker exits or closes its channel, or the engine ends-->  ending
    """

    def __init__(self, engine: FrameChannel, worker: FrameChannel, pid: int, outputs: list[StreamOutput], wakeup: int) -> None:
        self._engine = engine
        self._worker = worker
        self._pid = pid
        self._outputs = outputs
        self._wakeup = wakeup
        self._tree = ProcessTree(os.getpid())
        self._parent = os.getppid()
        self._calling = False
        self._stop_by: float | None = None
        self._status: int | None = None

    def run(self) -> None:
        while not self._is_over():
            for fd in self._ready_descriptors():
                self._serve(fd)
            self._reap()
            if os.getppid() != self._parent:
                self._engine.ended = True
        self._end()

    def _is_over(self) -> bool:
        if self._engine.ended:
            return True
        if self._stop_by is not None:
            return time.monotonic() >= self._stop_by or not self._tree.alive()
        return self._status is not None or self._worker.ended

    def _ready_descriptors(self) -> list[int]:
        poll = select.poll()
        poll.register(self._wakeup, select.POLLIN)
        poll.register(self._engine.fd, select.POLLIN | (select.POLLOUT if self._engine.unsent else 0))
        if len(self._engine.unsent) < BACKLOG_BYTES and not self._worker.ended:
            poll.register(self._worker.fd, select.POLLIN | (select.POLLOUT if self._worker.unsent else 0))
        for output in self._outputs:
            poll.register(output.fd, select.POLLIN)
        return [fd for fd, _ in poll.poll(1000 * (HEARTBEAT_S if self._stop_by is None else STOPPING_S))]

    def _serve(self, fd: int) -> None:
        if fd == self._wakeup:
            os.read(fd, 512)
        elif fd == self._engine.fd:
            self._engine.flush()
            self._engine.fill()
            for kind, body in self._engine.take():
                self._from_engine(kind, body)
        elif fd == self._worker.fd:
            self._worker.flush()
            self._worker.fill()
            self._from_worker()
        else:
            self._outputs = [output for output in self._outputs if output.fd != fd or output.drain(self._calling)]

    def _from_engine(self, kind: bytes, body: bytes) -> None:
        if kind == b"K":
            self._stop_by = time.monotonic() + float(body)
            self._tree.signal(self._tree.alive(), signal.SIGTERM, signal.SIGCONT)
        else:
            self._calling = True
            self._worker.send(kind, body)

    def _from_worker(self) -> None:
        for kind, body in self._worker.take():
            if kind in b"EF":
                self._tree.kill(self._reap, spare=self._pid)
                self._show_rest()
                self._calling = False
            if kind in b"BEFP":  # a tool can write to the channel, too: it must not send frames that only the supervisor may send
                self._engine.send(kind, body)

    def _show_rest(self) -> None:
        """Send output that was written before the call's end; processes that still hold the pipe are not waited for."""
        for output in self._outputs:
            output.drain(self._calling)
            output.flush()

    def _reap(self) -> None:
        try:
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] == self._pid:
                    self._status = ended[1]
        except ChildProcessError:
            return

    def _wait_for_exit(self) -> bool:
        """Return whether the worker exits after its channel has closed: the kernel closes files before it notifies the parent."""
        until = time.monotonic() + EXIT_S
        while self._status is None and time.monotonic() < until:
            self._reap()
            time.sleep(0.0005)
        return self._status is not None

    def _end(self) -> None:
        """End the whole process tree and report how the worker ended."""
        lost = self._worker.ended and not self._engine.ended and self._stop_by is None and not self._wait_for_exit()
        left = self._tree.kill(self._reap)
        self._reap()
        if self._engine.ended:
            return
        while self._worker.fill():
            pass
        self._from_worker()
        self._show_rest()
        code = os.waitstatus_to_exitcode(self._status) if self._status is not None else 0
        self._engine.send(b"X", f"{code} {left} {int(lost)}".encode())
        self._send_last_frames()

    def _send_last_frames(self) -> None:
        os.set_blocking(self._engine.fd, True)
        signal.alarm(2)  # do not wait for an engine that does not read
        self._engine.flush()


def _start(channel: int, command: list[str], limits: str) -> tuple[int, int, int]:
    """Start the worker in a new session; return its pid and the read ends of its output pipes."""
    out, out_end = os.pipe()
    err, err_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            for number in (signal.SIGCHLD, *_IGNORED):
                signal.signal(number, signal.SIG_DFL)
            for fd, place in ((os.open(os.devnull, os.O_RDONLY), 0), (out_end, 1), (err_end, 2), (channel, WORKER_FD)):
                os.dup2(fd, place)
            os.set_inheritable(WORKER_FD, True)
            _limit(limits)
            os.execv(command[0], command)
        finally:
            os._exit(127)
    for fd in (channel, out_end, err_end):
        os.close(fd)
    return pid, out, err


def _limit(limits: str) -> None:
    """Set resource limits, given as `NUMBER=VALUE,...`."""
    for item in filter(None, limits.split(",")):
        number, _, value = item.partition("=")
        hard = resource.getrlimit(int(number))[1]
        ceiling = int(value) if hard == resource.RLIM_INFINITY else min(int(value), hard)
        resource.setrlimit(int(number), (ceiling, ceiling))


_IGNORED = (signal.SIGINT, signal.SIGHUP, signal.SIGTERM)


def main(engine: str, near: str, far: str, limits: str, *command: str) -> None:
    """Run with the descriptors of the engine's channel and of both ends of the worker's."""
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    for fd in (engine, near, far):
        os.set_inheritable(int(fd), False)
    adopt_orphans()
    wakeup, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    channel = FrameChannel(int(engine))
    channel.send(b"W")
    try:
        pid, out, err = _start(int(far), list(command), limits)
    except OSError:  # reports that no call has started
        channel.send(b"X", f"{NO_WORKER} 0 0".encode())
        return
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    outputs = [StreamOutput(out, b"1", channel), StreamOutput(err, b"2", channel)]
    Supervisor(channel, FrameChannel(int(near)), pid, outputs, wakeup).run()
