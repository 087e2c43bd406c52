"""A gateway in front of ledger servers, as a program: `python -m tests.gateway.ledger_gateway SETTINGS`.

The settings: `folder`; `servers`, by name a command or an address; `http` to serve HTTP at a port that is printed. `act` of a server has an
effect that happens once; its key is `act:{what}` if the settings have `keyed`.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from callgate import Engine, SqliteJournal
from callgate.gateway import LOCAL, Gateway, serve_stdio
from callgate.gateway._http import HttpApp, HttpServer
from callgate.gateway.tokens import Anonymous
from callgate.mcp import McpServer, mcp
from tests.gateway.raw_client import Era, RawClient, raw_client
from tests.recovery.mcp_kills import server_command

__all__ = ["gateway_command", "ledger_gateway", "mark_of", "upstream"]


def mark_of(folder: Path) -> str:
    """Return what the environment of the processes of a folder contains."""
    return f"LEDGER_FOLDER={folder}"


def upstream(folder: Path, **settings: Any) -> list[str]:
    """Return the command of a ledger server with a folder of its own."""
    folder.mkdir(exist_ok=True)
    return server_command(folder, settings)


def gateway_command(folder: Path, servers: Mapping[str, object], **settings: Any) -> list[str]:
    return [sys.executable, "-m", "tests.gateway.ledger_gateway", json.dumps({**settings, "folder": str(folder), "servers": servers})]


@asynccontextmanager
async def ledger_gateway(folder: Path, servers: Mapping[str, object], era: Era = "handshake", **settings: Any) -> AsyncIterator[RawClient]:
    """Start a gateway at standard input and output, and begin a session with it."""
    async with raw_client(gateway_command(folder, servers, **settings), era) as client:
        yield client


def _server(name: str, target: Any, given: Mapping[str, Any]) -> McpServer:
    options: dict[str, Any] = {"prefix": True, "effects": {"act": given.get("effect", "once")}}
    if given.get("keyed"):
        options["options"] = {"act": {"key": "act:{what}"}}
    if isinstance(target, str):
        return mcp(target, name=name, **options)
    return mcp(target, name=name, env={"LEDGER_FOLDER": given["folder"]}, **options)


async def _serve_http(gateway: Gateway) -> None:
    app = HttpApp(gateway, Anonymous(LOCAL), health=dict, metrics=str)
    async with HttpServer(app) as server:
        print(server.port, flush=True)  # noqa: T201
        await asyncio.Event().wait()


async def main() -> None:
    given = json.loads(sys.argv[1])
    servers = [_server(name, target, given) for name, target in given["servers"].items()]
    journal = SqliteJournal(os.path.join(given["folder"], "journal.db"))
    async with Gateway(Engine(servers=servers, journal=journal)) as gateway:
        await (_serve_http(gateway) if given.get("http") else serve_stdio(gateway))


if __name__ == "__main__":
    asyncio.run(main())
