"""A gateway whose calls soon become tasks, for one client at standard input and output, or as a program:
`python -m tests.gateway.task_gateway '{"folder": "folder"}'`.

Its tools wait for the file `NAME.go` in the folder: `look` reads, `pay` writes a line to `paid` first, and `refuse` fails. A human has to
approve `order`. It writes the file `task` when a call has become a task. More keys: `journal` is a file, `servers` are commands, `without`
are names of tools that it has not, `secret` is a text that is not recorded, and the others are the limits of tasks.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

from callgate import Engine, SqliteJournal, Tool, tool
from callgate.gateway import Gateway, GatewayLimits, serve_stdio
from callgate.gateway._config.secret_values import SecretValues
from callgate.mcp import mcp


async def _go(folder: Path, name: str) -> None:
    (folder / f"{name}.began").touch()
    while not (folder / f"{name}.go").exists():
        await asyncio.sleep(0.01)


def _waiting_tools(folder: Path) -> list[Tool]:
    @tool(effect="none")
    async def look(name: str, more: str = "") -> dict[str, object]:
        """Wait, and return what was seen."""
        await _go(folder, name)
        return {"seen": name, "more": more} if more else {"seen": name}

    @tool(effect="once")
    async def pay(name: str, more: str = "") -> str:
        """Pay, and wait."""
        with (folder / "paid").open("a") as ledger:
            ledger.write(f"{name}\n")
        await _go(folder, name)
        return f"paid {name}"

    @tool(effect="none")
    async def refuse(name: str) -> str:
        """Wait, and fail."""
        await _go(folder, name)
        raise ValueError("the shop is closed")

    return [look, pay, refuse]


@tool(effect="once", requires_approval=True)
def order(article: str) -> str:
    """Order an article."""
    return f"ordered {article}"


async def _tell_first_task(gateway: Gateway, folder: Path) -> None:
    while b"callgate_tasks_running 1.0" not in gateway.metrics():
        await asyncio.sleep(0.01)
    (folder / "task").touch()


def _gateway(given: Mapping[str, Any]) -> Gateway:
    journal = SqliteJournal(given["journal"]) if "journal" in given else None
    servers = [mcp(command, name=f"server{n}") for n, command in enumerate(given.get("servers", []))]
    limits = GatewayLimits(
        task_after_s=given.get("after_s", 0.1),
        task_ttl_s=given.get("ttl_s", 3_600.0),
        tasks=given.get("tasks", 100),
        task_bytes=given.get("task_bytes", 1_000_000_000),
    )
    tools = [one for one in (*_waiting_tools(Path(given["folder"])), order) if one.name not in given.get("without", ())]
    redactor = SecretValues([given["secret"]]) if "secret" in given else None
    engine = Engine(tools, servers=servers, journal=journal, redactor=redactor)
    return Gateway(engine, secret=b"the secret of the tests, 32 bytes", limits=limits)


async def serve(given: Mapping[str, Any], streams: tuple[BinaryIO, BinaryIO] | None = None) -> None:
    async with _gateway(given) as gateway:
        telling = asyncio.create_task(_tell_first_task(gateway, Path(given["folder"])))
        await serve_stdio(gateway, streams=streams)
        telling.cancel()


if __name__ == "__main__":
    asyncio.run(serve(json.loads(sys.argv[1])))
