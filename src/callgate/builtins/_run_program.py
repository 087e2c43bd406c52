"""Run one program and read its output until the program itself ends, even if its child processes still run.

Child processes may hold the pipes open after the program has ended. The pipes are then read for at most a short moment.
Only the beginning and the end of a long output are kept. At the timeout, the program and its process group are ended;
processes that have left the group are ended by the process runner.
"""

from __future__ import annotations

import codecs
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from msgspec import Struct

__all__ = ["ProgramEnd", "ProgramRun"]

KEPT_HEAD = 2_097_152
KEPT_TAIL = 2_097_152
_DRAIN_S = 0.2
_GRACE_S = 0.2
_POLL_S = 0.05
_CHUNK = 65_536


class ProgramEnd(Struct, frozen=True, kw_only=True):
    """The exit code and the output of a program."""

    exit_code: int | None
    """A negative number is the signal that ended the program. None: the timeout was reached."""
    stdout: str
    stderr: str
    left_out: int
    """The number of bytes of output that were not kept."""
    seconds: float


class _ProgramOutput:
    """One output stream.

    Passes whole lines to `show` as they arrive, and keeps the beginning and the end of the output.
    """

    def __init__(self, show: Callable[[str], None]) -> None:
        self._show = show
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._line = ""
        self._head = bytearray()
        self._tail = bytearray()
        self.left_out = 0

    def add(self, data: bytes) -> None:
        self._keep(data)
        lines, newline, rest = (self._line + self._decode(data)).rpartition("\n")
        if newline:
            self._show(lines + newline)
        self._line = rest
        if len(rest) > _CHUNK:  # limits memory for a line without an end
            self.flush()

    def flush(self) -> None:
        if self._line:
            self._show(self._line)
        self._line = ""

    def _keep(self, data: bytes) -> None:
        room = KEPT_HEAD - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        extra = len(self._tail) - KEPT_TAIL
        if extra > 0:
            del self._tail[:extra]
            self.left_out += extra

    def text(self) -> str:
        head, tail = (part.decode("utf-8", "replace") for part in (bytes(self._head), bytes(self._tail)))
        if not self.left_out:
            return (bytes(self._head) + bytes(self._tail)).decode("utf-8", "replace")
        return f"{head}\n… {self.left_out:,} bytes left out …\n{tail}"


class ProgramRun:
    """One running program and its three pipes.

    Args:
        process: Started with output pipes, in its own process group.
        stdin: The input, if the program has an input pipe.
        show: Called with `(lines, stream)` as lines arrive.
    """

    def __init__(self, process: subprocess.Popen[bytes], *, stdin: bytes, show: Callable[[str, str], None]) -> None:
        self._process = process
        self._rest = memoryview(stdin)
        self._outputs = {
            "stdout": _ProgramOutput(lambda text: show(text, "stdout")),
            "stderr": _ProgramOutput(lambda text: show(text, "stderr")),
        }

    def run(self, timeout_s: float) -> ProgramEnd:
        """Write the input and read the output until the program ends or the timeout is reached.

        Then end the program's process group and close the pipes.
        """
        started = time.monotonic()
        try:
            with selectors.DefaultSelector() as selector, _exit_of(self._process, selector):
                self._register(selector)
                in_time = self._until_exit(selector, started + timeout_s)
                if not in_time:
                    _end(self._process)
                self._drain(selector)
        finally:
            _end(self._process)
            for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
                if pipe is not None:
                    with suppress(OSError):
                        pipe.close()
        out, err = self._outputs["stdout"], self._outputs["stderr"]
        out.flush()
        err.flush()
        return ProgramEnd(
            exit_code=self._process.returncode if in_time else None,
            stdout=out.text(),
            stderr=err.text(),
            left_out=out.left_out + err.left_out,
            seconds=time.monotonic() - started,
        )

    def _register(self, selector: selectors.BaseSelector) -> None:
        for name, pipe in (("stdout", self._process.stdout), ("stderr", self._process.stderr)):
            assert pipe is not None
            os.set_blocking(pipe.fileno(), False)
            selector.register(pipe, selectors.EVENT_READ, name)
        if self._process.stdin is not None:
            os.set_blocking(self._process.stdin.fileno(), False)
            selector.register(self._process.stdin, selectors.EVENT_WRITE, "stdin")

    def _until_exit(self, selector: selectors.BaseSelector, deadline: float) -> bool:
        while not _has_ended(self._process):
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            self._turn(selector, min(left, _POLL_S))
        return True

    def _drain(self, selector: selectors.BaseSelector) -> None:
        """Read the remaining output, for at most a short moment if a child process holds the pipes open."""
        deadline = time.monotonic() + _DRAIN_S
        while any(key.data in self._outputs for key in selector.get_map().values()) and time.monotonic() < deadline:
            self._turn(selector, max(0.0, deadline - time.monotonic()))

    def _turn(self, selector: selectors.BaseSelector, wait_s: float) -> None:
        for key, _ in selector.select(wait_s):
            if key.data == "stdin":
                done = self._feed(key.fd)
            elif key.data == "exit":
                done = True
            else:
                done = self._read(key.fd, self._outputs[key.data])
            if done:
                selector.unregister(key.fileobj)
                if key.data == "stdin" and self._process.stdin is not None:
                    with suppress(OSError):
                        self._process.stdin.close()

    def _feed(self, fd: int) -> bool:
        try:
            self._rest = self._rest[os.write(fd, self._rest[:_CHUNK]) :] if self._rest else self._rest
        except BlockingIOError:
            return False
        except OSError:  # the program does not read its input, which is not an error
            return True
        return not self._rest

    def _read(self, fd: int, output: _ProgramOutput) -> bool:
        try:
            data = os.read(fd, _CHUNK)
        except BlockingIOError:
            return False
        output.add(data)
        return not data


@contextmanager
def _exit_of(process: subprocess.Popen[bytes], selector: selectors.BaseSelector) -> Iterator[None]:
    """Register the program's end with the selector, if the system supports it.

    Otherwise `_until_exit` polls every 50 ms.
    """
    opener = getattr(os, "pidfd_open", None)
    if opener is None:
        yield
        return
    fd = opener(process.pid)
    try:
        selector.register(fd, selectors.EVENT_READ, "exit")
        yield
    finally:
        os.close(fd)


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Return whether the program has ended.

    The program is not reaped if the system allows it, so that its pid and process group id are not reused.
    """
    if process.returncode is not None or not hasattr(os, "waitid"):
        return process.poll() is not None
    try:
        return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the program's process group and reap the program.

    If the program still runs, send SIGTERM first, else only SIGKILL.
    """
    if process.returncode is not None:
        return
    if not _has_ended(process):
        _signal(process, signal.SIGTERM)
        deadline = time.monotonic() + _GRACE_S
        while not _has_ended(process) and time.monotonic() < deadline:
            time.sleep(0.01)
    _signal(process, signal.SIGKILL)
    process.wait()


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)
