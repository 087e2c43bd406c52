"""A client that sends and receives messages of JSON-RPC as they are, to a server that is a child process."""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

from tests.cli.command_process import CommandProcess
from tests.waiting import HANGS_S

__all__ = ["Era", "RawClient", "raw_client", "raw_session", "served"]

Era = Literal["handshake", "stateless"]
Message = dict[str, Any]
_LINE_BYTES = 64_000_000


def served(**settings: Any) -> list[str]:
    """Return the command of a gateway; see `stdio_gateway.py`."""
    return [sys.executable, "-m", "tests.gateway.stdio_gateway", json.dumps(settings)]


class RawClient:
    """A client of one era. `messages` has what the server has sent beside responses."""

    def __init__(self, process: Process | CommandProcess, era: Era, capabilities: Mapping[str, Any]) -> None:
        self.process = process
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
        assert self.process.stdin is not None
        self.process.stdin.write(data)

    async def next_message(self) -> Message:
        """Return the next notification or request of the server."""
        return await asyncio.wait_for(self.messages.get(), HANGS_S)

    async def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        await asyncio.wait_for(self.process.wait(), HANGS_S)
        await self._reading

    def _with_meta(self, params: Mapping[str, Any]) -> Mapping[str, Any]:
        if self.era == "handshake":
            return params
        prefix = "io.modelcontextprotocol/"
        meta = {f"{prefix}protocolVersion": "2026-07-28", f"{prefix}clientCapabilities": self._capabilities}
        return {**params, "_meta": {**meta, **params.get("_meta", {})}}

    async def _read(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
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
async def raw_client(command: list[str], era: Era, capabilities: Mapping[str, Any] | None = None) -> AsyncIterator[RawClient]:
    """Start a server, and begin a session with it."""
    root = Path(__file__).parents[2]
    process = await asyncio.create_subprocess_exec(*command, cwd=root, stdin=PIPE, stdout=PIPE, limit=_LINE_BYTES)
    async with raw_session(process, era, capabilities) as client:
        yield client


@asynccontextmanager
async def raw_session(
    process: Process | CommandProcess, era: Era, capabilities: Mapping[str, Any] | None = None
) -> AsyncIterator[RawClient]:
    """Begin a session with a server that has been started, and end the server with it."""
    client = RawClient(process, era, capabilities or {})
    try:
        client.about = await client.start()
        yield client
    finally:
        if process.returncode is None:
            await client.close()
