"""A server's child process: started once, its stderr kept, and ended with everything that it has started.

A supervisor process runs between the engine and the server (`_runners/process/supervisor/server_main.py`), so that no process of the server
outlives the engine, even if the engine is killed. The server's standard input and output are plain pipes of the engine. Knows no message.
"""

from __future__ import annotations

import asyncio
import errno
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from contextvars import Context
from functools import partial
from pathlib import Path

from msgspec import Struct

from callgate._run_in_thread import in_thread
from callgate._runners.process import supervisor
from callgate._runners.process.supervisor.frames import frame, split
from callgate._runners.process.worker_connection import kill_marked_processes
from callgate._secret_redaction import RedactedLog
from callgate._server_processes.server_errors import NotSent
from callgate._server_processes.shown_command import secrets_of, shown_text

__all__ = ["ProcessExit", "ServerCommand", "ServerProcess", "cannot_start"]

_SUPERVISOR = "import sys; sys.path.append(sys.argv[1]); from supervisor.server_main import main; main(*sys.argv[2:])"
_PASSED = frozenset({"HOME", "LANG", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "USER", "TZ", "SSL_CERT_FILE", "SSL_CERT_DIR"})
_STDERR_BYTES = 65_536
_STDERR_LINE = 4_096
_SAID_LINES = 3
_SAID_CHARS = 300
_SAID_BYTES = 16_384
_LASTING = frozenset(map(os.strerror, (errno.ENOENT, errno.EACCES, errno.ENOEXEC, errno.E2BIG, errno.ENOTDIR, errno.ELOOP)))
"""Error texts of programs that will not run later either. Others, such as `Text file busy`, may be temporary."""
_REAP_S = 0.002
_END_S = 0.5
"""Seconds after the grace period until the supervisor itself is killed."""


class ServerCommand(Struct, frozen=True, kw_only=True):
    """How a server's process is started."""

    kind: str
    """The kind of server, for texts: `MCP server` or `plugin`."""
    name: str
    command: tuple[str, ...]
    env: Mapping[str, str] = {}
    """Variables in addition to those that every server gets."""
    cwd: str = ""
    """The folder in which it starts; if empty, that of this process."""

    def __str__(self) -> str:
        return f"{self.kind} '{self.name}'"


class ProcessExit(Struct, frozen=True):
    """How a server's process ended."""

    code: int | None
    """The exit code, negative for a signal; None if it is not known."""
    survivors: int = 0

    def __str__(self) -> str:
        if self.code is None:
            return "its process is gone"
        if self.code < 0:
            with suppress(ValueError):
                return f"it was killed by {signal.Signals(-self.code).name}"
            return f"it was killed by signal {-self.code}"
        return f"it exited with code {self.code}"


class ServerProcess:
    """The process of one server, and its supervisor.

    Raises:
        NotSent: The program does not exist or cannot be started.
    """

    def __init__(self, server: ServerCommand, log: RedactedLog) -> None:
        self._server = server
        self._log = log
        self._loop = asyncio.get_running_loop()
        self.exited: asyncio.Future[ProcessExit] = self._loop.create_future()
        """Done when none of its processes runs any more."""
        self.begun: asyncio.Future[str] = self._loop.create_future()
        """Done when the program runs, with an empty text, or with why it could not be started."""
        self.reaped: asyncio.Future[None] = self._loop.create_future()
        """Done when the supervisor has ended, too."""
        self.stderr_ended: asyncio.Future[None] = self._loop.create_future()
        self._marker = secrets.token_hex(8)
        self._unread = bytearray()
        self._stderr = bytearray()
        self._line = b""
        """The beginning of a line of its standard error."""
        self._secrets = secrets_of(server.command, server.env.values())
        self._stderr_transport: asyncio.ReadTransport | None = None
        self._sweep: asyncio.Task[None] | None = None
        environment = _environment(server.env)
        command = _resolve_command(server, environment)
        try:
            self._channel, self._process = _spawn(command, server.cwd, environment | {"CALLGATE_WORKER": self._marker})
        except OSError as error:
            raise cannot_start(server, error.strerror or str(error)) from error
        except ValueError as error:  # a null character, half a surrogate pair, or "=" in a name
            raise cannot_start(server, f"its command, folder or environment cannot be passed on ({error})", lasting=True) from error
        self._loop.add_reader(self._channel, self._on_readable)

    async def connect(self, stdout: asyncio.Protocol, stdin: asyncio.BaseProtocol) -> tuple[asyncio.ReadTransport, asyncio.WriteTransport]:
        """Return transports of the server's output and input. `stdout` gets what the server writes."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self._stderr_transport, _ = await self._loop.connect_read_pipe(lambda: _Stderr(self._keep, self.stderr_ended), process.stderr)
        reading, _ = await self._loop.connect_read_pipe(lambda: stdout, process.stdout)
        writing, _ = await self._loop.connect_write_pipe(lambda: stdin, process.stdin)
        return reading, writing

    @property
    def last_words(self) -> str:
        """The last lines that the server wrote to its standard error, without credentials. For logs and the operator, not for a model."""
        text = shown_text(self._stderr[-_SAID_BYTES:].decode("utf-8", "replace"), self._secrets)
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return " | ".join(line[:_SAID_CHARS] for line in lines[-_SAID_LINES:])

    def stop(self, grace_s: float) -> None:
        """Ask all its processes to end, and kill them after the grace period. `exited` is done soon after that."""
        if self.exited.done() or self._channel.fileno() < 0:
            return
        with suppress(OSError):
            self._channel.send(frame(b"K", str(grace_s).encode()))
        self._loop.call_later(grace_s + _END_S, self._kill_supervisor)

    def _kill_supervisor(self) -> None:
        if not self.exited.done():
            self._process.kill()  # closes the channel, which calls `_on_end`

    def _on_readable(self) -> None:
        try:
            data = self._channel.recv(65_536)
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
        if kind == b"X":
            code, survivors = map(int, body.split())
            self._set_exited(ProcessExit(code, survivors))
        elif kind in b"SN" and not self.begun.done():
            self.begun.set_result(body.decode("utf-8", "replace") if kind == b"N" else "")

    def _on_end(self) -> None:
        """Handle that the supervisor has closed the channel: it is exiting, or was killed."""
        self._loop.remove_reader(self._channel)
        self._channel.close()
        if not self.begun.done():
            self.begun.set_result("its supervisor has ended")
        self._reap()
        if not self.exited.done():
            self._sweep = self._loop.create_task(self._end_rest(), context=Context())

    async def _end_rest(self) -> None:
        survivors = await in_thread(partial(kill_marked_processes, self._marker))
        self._set_exited(ProcessExit(None, survivors))

    def _set_exited(self, exit: ProcessExit) -> None:
        if self.exited.done():
            return
        if exit.survivors:
            self._log.error("%s: %s of its processes could not be ended", self._server, exit.survivors)
        self.exited.set_result(exit)

    def _reap(self) -> None:
        if self._process.poll() is None:
            self._loop.call_later(_REAP_S, self._reap)
            return
        if self._stderr_transport is not None:
            self._keep_rest_of_stderr()
            self._stderr_transport.close()
        if not self.reaped.done():
            self.reaped.set_result(None)

    def _keep_rest_of_stderr(self) -> None:
        """Keep what the event loop has not read yet. It is not read to its end: a process that could not be ended may hold it open."""
        pipe = self._process.stderr
        if pipe is not None and not pipe.closed:
            with suppress(BlockingIOError):
                self._keep(os.read(pipe.fileno(), _STDERR_BYTES))

    def _keep(self, data: bytes) -> None:
        self._stderr += data
        del self._stderr[:-_STDERR_BYTES]
        written, end, self._line = (self._line + data).rpartition(b"\n")  # whole lines, so that no credential is cut in two
        self._line = self._line[-_STDERR_LINE:]
        if end:
            text = shown_text(written.decode("utf-8", "replace"), self._secrets)
            self._log.debug("%s wrote to stderr: %s", self._server, text[:_STDERR_LINE].rstrip())


class _Stderr(asyncio.Protocol):
    def __init__(self, keep: Callable[[bytes], None], ended: asyncio.Future[None]) -> None:
        self._keep = keep
        self._ended = ended

    def data_received(self, data: bytes) -> None:
        self._keep(data)

    def connection_lost(self, error: Exception | None) -> None:
        if not self._ended.done():
            self._ended.set_result(None)


def _environment(more: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a server: not that of the engine, whose variables may be secrets."""
    return {name: value for name, value in os.environ.items() if name in _PASSED or name.startswith("LC_")} | dict(more)


def _resolve_command(server: ServerCommand, environment: Mapping[str, str]) -> list[str]:
    """Return the command with the path of its program.

    Raises:
        NotSent: There is no such folder or program.
    """
    folder = Path(server.cwd or ".")
    if not folder.is_dir():
        raise cannot_start(server, f"its folder {server.cwd!r:.200} does not exist", lasting=True)
    program = server.command[0]
    if os.sep in program:
        found = program if shutil.which((folder / program).absolute()) else None
    else:
        found = shutil.which(program, path=environment.get("PATH"))
    if found is None:
        where = "" if os.sep in program else " in PATH"
        step = "Install it, or give its full path"
        if " " in program:
            step = "A command is the program and its arguments, each for itself: give the program alone, and then its arguments"
        raise cannot_start(server, f"there is no program {program!r:.200}{where}. {step}", lasting=True)
    return [found, *server.command[1:]]


def cannot_start(server: ServerCommand, why: str, *, lasting: bool | None = None) -> NotSent:
    """Return the error for a process that cannot be started.

    Args:
        lasting: Whether it cannot be started later either, unless somebody changes something. None: `why`, a text of the system, shows it.
    """
    lasts = why in _LASTING if lasting is None else lasting
    return NotSent(f"The {server} cannot be started: {why}.", code="cannot_start", retryable=not lasts)


def _spawn(command: list[str], folder: str, environment: dict[str, str]) -> tuple[socket.socket, subprocess.Popen[bytes]]:
    with ExitStack() as failed, ExitStack() as theirs:
        ours, end = socket.socketpair()
        failed.enter_context(ours)
        theirs.enter_context(end)
        place = os.path.dirname(os.path.dirname(supervisor.__file__))
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _SUPERVISOR, place, str(end.fileno()), *command],
            pass_fds=[end.fileno()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            cwd=folder or None,
            start_new_session=True,  # signals of the engine's terminal must not reach the server
            env=environment,
        )
        ours.setblocking(False)
        failed.pop_all()
    return ours, process
