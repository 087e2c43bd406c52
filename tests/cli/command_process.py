"""`callgate` as a process that a test writes to, reads from and sends signals to while it runs."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from asyncio.streams import FlowControlMixin
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Final

from tests.cli.forked_commands import ForkedCommand
from tests.cli.shell import command, environment, forks

__all__ = ["CommandProcess", "start_command", "start_module"]

_LINE_BYTES: Final = 65_536


class CommandProcess:
    """A command in a forked process, used as a process of `asyncio.subprocess` is."""

    def __init__(self, forked: ForkedCommand) -> None:
        self.pid = forked.pid
        self.stdin: asyncio.StreamWriter | None = None
        self.stdout: asyncio.StreamReader | None = None
        self.stderr: asyncio.StreamReader | None = None
        self._ending = asyncio.ensure_future(self._end(forked.tells))

    @property
    def returncode(self) -> int | None:
        return self._ending.result() if self._ending.done() else None

    async def wait(self) -> int:
        return await asyncio.shield(self._ending)

    async def communicate(self, input: bytes = b"") -> tuple[bytes, bytes]:
        """Write the input and close it; return all output once the process has ended."""
        if self.stdin is not None:
            self.stdin.write(input)
            with suppress(ConnectionError):
                await self.stdin.drain()
            self.stdin.close()
        out, err = await asyncio.gather(_rest(self.stdout), _rest(self.stderr))
        await self.wait()
        return out, err

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            with suppress(ProcessLookupError):  # it has ended, and this loop does not know it yet
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    async def _end(self, tells: socket.socket) -> int:
        with tells:
            tells.setblocking(False)
            code = int(await asyncio.get_running_loop().sock_recv(tells, 16))
        if self.stdin is not None:
            self.stdin.close()
        return code


async def start_command(
    folder: Path,
    *words: str,
    stdin: int = DEVNULL,
    stdout: int = PIPE,
    stderr: int = PIPE,
    variables: Mapping[str, str] | None = None,
    constants: Mapping[str, float] | None = None,
) -> Process | CommandProcess:
    """Start `callgate` with these words in a folder, with streams as those of `asyncio.create_subprocess_exec`.

    Args:
        constants: Shorter waits, by the names of their constants. They are as long as for users where commands are not forked.
    """
    environ = environment(**(variables or {}))
    if sys.platform != "linux":
        line = command(words)
        return await asyncio.create_subprocess_exec(*line, cwd=folder, stdin=stdin, stdout=stdout, stderr=stderr, env=environ)
    start = partial(forks().start, words, folder, environ, constants=constants)
    return await _with_streams(start, (stdin, stdout, stderr))


async def start_module(folder: Path, *words: str, line_bytes: int) -> Process | CommandProcess:
    """Start `python -m` with these words in a folder, with pipes for its input and its output.

    Args:
        line_bytes: The longest line of its output.
    """
    if sys.platform != "linux":
        line = [sys.executable, "-m", *words]
        return await asyncio.create_subprocess_exec(*line, cwd=folder, stdin=PIPE, stdout=PIPE, limit=line_bytes)
    start = partial(forks().start, words, folder, dict(os.environ), program="python -m")
    return await _with_streams(start, (PIPE, PIPE, 2), line_bytes)


async def _with_streams(
    start: Callable[[Sequence[int]], ForkedCommand], kinds: tuple[int, int, int], line_bytes: int = _LINE_BYTES
) -> CommandProcess:
    ours: dict[int, int] = {}
    with ExitStack() as given:
        streams = [_given(given, ours, number, stream) for number, stream in enumerate(kinds)]
        process = CommandProcess(start(streams))
    if 0 in ours:
        process.stdin = await _writer(ours[0])
    process.stdout, process.stderr = [await _reader(ours[number], line_bytes) if number in ours else None for number in (1, 2)]
    return process


def _given(given: ExitStack, ours: dict[int, int], number: int, stream: int) -> int:
    """Return the file descriptor that becomes the command's standard stream of this number; add the other end of a pipe to `ours`."""
    if stream == PIPE and number == 0:
        stream, ours[0] = os.pipe()
    elif stream == PIPE:
        ours[number], stream = os.pipe()
    elif stream == DEVNULL:
        stream = os.open(os.devnull, os.O_RDWR)
    else:
        return stream
    given.callback(os.close, stream)
    return stream


async def _writer(stream: int) -> asyncio.StreamWriter:
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.connect_write_pipe(FlowControlMixin, os.fdopen(stream, "wb", 0))
    return asyncio.StreamWriter(transport, protocol, None, loop)


async def _reader(stream: int, line_bytes: int) -> asyncio.StreamReader:
    reader = asyncio.StreamReader(limit=line_bytes)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(stream, "rb", 0))
    return reader


async def _rest(stream: asyncio.StreamReader | None) -> bytes:
    return b"" if stream is None else await stream.read()
