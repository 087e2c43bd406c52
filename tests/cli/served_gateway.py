"""A `callgate serve` whose configuration is written anew and read again on SIGHUP."""

from __future__ import annotations

import asyncio
import json
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx2
from mcp.client.streamable_http import streamable_http_client

from mcp import Client
from tests.cli.command_process import CommandProcess, start_command
from tests.cli.mcp_server_programs import SHOP
from tests.waiting import COMMAND_S

__all__ = ["LISTEN", "RULE", "SLOW", "ServedGateway", "ended", "names", "principal", "server", "serving", "text_of", "write_config"]

LISTEN = '[http]\nlisten = "127.0.0.1:0"\n'
RULE = '[[rule]]\nid = "closed"\nverdict = "deny"\ntool = "{tool}"\nreason = "The shop is closed."\n'
SLOW = str(Path(__file__).parents[1] / "gateway" / "slow_start_server.py")
"""The program of a server that starts when it is allowed to."""


def server(name: str, **more: object) -> str:
    """Return the table of a shop."""
    lines = [f"{key} = {json.dumps(value)}" for key, value in {"command": list(SHOP), **more}.items()]
    return "\n".join([f"[servers.{name}]", *lines, ""])


def principal(name: str, **more: object) -> str:
    """Return the table of a principal, whose token is its name and `-token`."""
    digest = sha256(f"{name}-token".encode()).hexdigest()
    lines = [f"{key} = {json.dumps(value)}" for key, value in {"token_sha256": digest, **more}.items()]
    return "\n".join([f"[principals.{name}]", *lines, ""])


class ServedGateway:
    """A running `callgate serve` over HTTP, whose configuration can be written anew."""

    def __init__(self, folder: Path, process: Process | CommandProcess) -> None:
        self._folder = folder
        self._process = process
        self.start = ""
        """What the gateway has said until its servers had started."""

    @property
    def url(self) -> str:
        return self.start.partition("Listening on ")[2].split()[0]

    async def reload(self, *parts: str) -> str:
        """Write the configuration, have it read, and return what the gateway says about that."""
        self.ask_to_reload(*parts)
        return await self.told("The configuration was")

    def ask_to_reload(self, *parts: str) -> None:
        """Write the configuration and have it read."""
        write_config(self._folder, *parts)
        self._process.send_signal(signal.SIGHUP)

    async def shuts_out(self, name: str) -> None:
        """Wait until a principal is not served any longer."""
        async with asyncio.timeout(COMMAND_S):
            while await self.status(name) != 401:
                pass

    async def told(self, words: str) -> str:
        """Return standard error up to the next line that has these words."""
        assert self._process.stderr is not None
        said = ""
        while words not in said:
            line = (await asyncio.wait_for(self._process.stderr.readline(), COMMAND_S)).decode()
            assert line, f"the command has ended: {said}"
            said += line
        return said

    @asynccontextmanager
    async def client(self, name: str = "alice", mode: str = "auto", **more: Any) -> AsyncIterator[Client]:
        async with (
            httpx2.AsyncClient(headers={"Authorization": f"Bearer {name}-token"}) as http,
            Client(streamable_http_client(self.url, http_client=http), mode=mode, **more) as client,
        ):
            yield client

    async def status(self, name: str = "", *, token: str = "") -> int:
        """Return how a request of a principal, or with a token, is answered."""
        async with httpx2.AsyncClient(headers={"Authorization": f"Bearer {token or f'{name}-token'}"}) as http:
            return (await http.post(self.url, json={})).status_code


def write_config(folder: Path, *parts: str) -> None:
    (folder / "gate.toml").write_text("\n".join(parts), encoding="utf-8")


@asynccontextmanager
async def serving(folder: Path, *parts: str, until: str = "Journal:") -> AsyncIterator[ServedGateway]:
    """Serve with this configuration until the end of the block."""
    write_config(folder, *parts)
    process = await start_command(folder, "serve", "--http", stdin=PIPE)
    gateway = ServedGateway(folder, process)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(ended, process)
        gateway.start = await gateway.told(until)
        yield gateway


async def ended(process: Process | CommandProcess) -> None:
    process.terminate()
    await asyncio.wait_for(process.communicate(), COMMAND_S)
    assert process.returncode == 0


async def names(client: Client) -> set[str]:
    return {tool.name for tool in (await client.list_tools()).tools}


def text_of(result: Any) -> str:
    return str(result.content[0].text)
