"""A client that sends and receives messages of JSON-RPC as they are, through two pipes.

At their other ends is a gateway in this process, on the same event loop, or a program. Most of a short test's time would be the start of a
program, so only tests of what a process does, such as being killed, start one.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from asyncio.streams import FlowControlMixin
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Literal

from tests.cli.command_process import CommandProcess, start_module
from tests.gateway import stdio_gateway
from tests.waiting import HANGS_S

__all__ = ["Era", "RawClient", "Serve", "program", "raw_client", "raw_session", "served"]

Era = Literal["handshake", "stateless"]
Serve = Callable[[tuple[BinaryIO, BinaryIO]], Awaitable[None]]
"""Serves one client at an input and an output, as `serve_stdio` does."""
Message = dict[str, Any]
_LINE_BYTES = 64_000_000


def served(**settings: Any) -> Serve:
    """Return a gateway in this process; see `stdio_gateway.py`."""
    return partial(stdio_gateway.serve, settings)


def program(**settings: Any) -> list[str]:
    """Return the command of the same gateway as a program."""
    return [sys.executable, "-m", "tests.gateway.stdio_gateway", json.dumps(settings)]


@dataclass(frozen=True)
class _Server:
    """The client's ends of the pipes, and what waits until the server has ended."""

    output: asyncio.StreamReader
    input: asyncio.StreamWriter
    wait: Callable[[], Awaitable[object]]
    process: Process | CommandProcess | None = None


class RawClient:
    """A client of one era. `messages` has what the server has sent beside responses."""

    def __init__(self, server: _Server, era: Era, capabilities: Mapping[str, Any]) -> None:
        self._server = server
        self.era = era
        self.closed = False
        """Whether the server has closed its output."""
        self.about: Message = {}
        """What the server has said about itself."""
        self.messages: asyncio.Queue[Message] = asyncio.Queue()
        self._capabilities = capabilities
        self._waiting: dict[object, asyncio.Future[Message]] = {}
        self._number = 0
        self._reading = asyncio.get_running_loop().create_task(self._read())

    async def start(self) -> Message:
        """Begin the session; return the result that says what the server can do."""
        if self.era == "stateless":
            discovered: Message = (await self.request("server/discover", {}))["result"]
            return discovered
        about = {"protocolVersion": "2025-11-25", "capabilities": self._capabilities, "clientInfo": {"name": "raw", "version": "1"}}
        result: Message = (await self.request("initialize", about))["result"]
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return result

    async def call(self, name: str, arguments: Mapping[str, Any], **more: Any) -> Message:
        """Call a tool and return the response."""
        return await self.request("tools/call", {"name": name, "arguments": arguments, **more})

    async def request(self, method: str, params: Mapping[str, Any]) -> Message:
        return await self.begin(method, params)[1]

    def begin(self, method: str, params: Mapping[str, Any]) -> tuple[int, asyncio.Future[Message]]:
        """Send a request; return its id, and what will have the response."""
        self._number += 1
        if self.closed:
            raise ConnectionError("the server has ended")
        waiting = self._waiting[self._number] = asyncio.get_running_loop().create_future()
        self.send({"jsonrpc": "2.0", "id": self._number, "method": method, "params": self._with_meta(params)})
        return self._number, asyncio.ensure_future(asyncio.wait_for(waiting, HANGS_S))

    def send(self, message: Mapping[str, Any]) -> None:
        self.write(json.dumps(message).encode() + b"\n")

    def write(self, data: bytes) -> None:
        self._server.input.write(data)

    async def next_message(self) -> Message:
        """Return the next notification or request of the server."""
        return await asyncio.wait_for(self.messages.get(), HANGS_S)

    @property
    def process(self) -> Process | CommandProcess:
        """The server, which is a program."""
        assert self._server.process is not None
        return self._server.process

    async def kill(self) -> None:
        self.process.kill()
        await self.process.wait()

    async def close(self) -> None:
        self._server.input.close()
        await asyncio.wait_for(self._server.wait(), HANGS_S)
        await self._reading

    def _with_meta(self, params: Mapping[str, Any]) -> Mapping[str, Any]:
        if self.era == "handshake":
            return params
        prefix = "io.modelcontextprotocol/"
        meta = {f"{prefix}protocolVersion": "2026-07-28", f"{prefix}clientCapabilities": self._capabilities}
        return {**params, "_meta": {**meta, **params.get("_meta", {})}}

    async def _read(self) -> None:
        async for line in self._server.output:
            message = json.loads(line)
            waiting = None if "method" in message else self._waiting.pop(message.get("id"), None)
            if waiting is None:
                self.messages.put_nowait(message)
            elif not waiting.done():
                waiting.set_result(message)
        self.closed = True
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(ConnectionError("the server has ended without a response"))


@asynccontextmanager
async def raw_client(server: Serve | Sequence[str], era: Era, capabilities: Mapping[str, Any] | None = None) -> AsyncIterator[RawClient]:
    """Start a gateway in this process, or the program of a command, and begin a session with it."""
    started = await (_in_this_process(server) if callable(server) else _as_program(server))
    async with _session(started, era, capabilities) as client:
        yield client


def raw_session(
    process: Process | CommandProcess, era: Era, capabilities: Mapping[str, Any] | None = None
) -> AbstractAsyncContextManager[RawClient]:
    """Begin a session with a server that has been started, and end the server with it."""
    return _session(_of_process(process), era, capabilities)


@asynccontextmanager
async def _session(server: _Server, era: Era, capabilities: Mapping[str, Any] | None) -> AsyncIterator[RawClient]:
    client = RawClient(server, era, capabilities or {})
    try:
        client.about = await client.start()
        yield client
    finally:
        await client.close()


async def _in_this_process(serve: Serve) -> _Server:
    (its_input, our_output), (our_input, its_output) = _pipe(), _pipe()
    loop = asyncio.get_running_loop()
    serving = loop.create_task(_until_served(serve, (its_input, its_output)))
    reader = asyncio.StreamReader(limit=_LINE_BYTES)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), our_input)
    transport, protocol = await loop.connect_write_pipe(FlowControlMixin, our_output)
    return _Server(reader, asyncio.StreamWriter(transport, protocol, reader, loop), lambda: serving)


def _pipe() -> tuple[BinaryIO, BinaryIO]:
    reading, writing = os.pipe()
    return os.fdopen(reading, "rb", 0), os.fdopen(writing, "wb", 0)


async def _until_served(serve: Serve, streams: tuple[BinaryIO, BinaryIO]) -> None:
    """Serve, and close the streams at the end, as a process does."""
    try:
        await serve(streams)
    finally:
        for stream in streams:
            stream.close()


async def _as_program(command: Sequence[str]) -> _Server:
    root = Path(__file__).parents[2]
    if command[:2] == [sys.executable, "-m"]:
        return _of_process(await start_module(root, *command[2:], line_bytes=_LINE_BYTES))
    return _of_process(await asyncio.create_subprocess_exec(*command, cwd=root, stdin=PIPE, stdout=PIPE, limit=_LINE_BYTES))


def _of_process(process: Process | CommandProcess) -> _Server:
    assert process.stdin is not None
    assert process.stdout is not None
    return _Server(process.stdout, process.stdin, process.wait, process)
