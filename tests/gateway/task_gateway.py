"""A gateway whose calls soon become tasks: `python -m tests.gateway.task_gateway '{"folder": "folder"}'`.

Its tools wait for the file `NAME.go` in the folder: `look` reads, `pay` writes a line to `paid` first, and `refuse` fails. A human has to
approve `order`. It writes the file `task` when a call has become a task. More keys: `journal` is a file, `servers` are commands, `without`
are names of tools that it has not, `secret` is a text that is not recorded, and the others are the limits of tasks.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from callgate import Engine, SqliteJournal, tool
from callgate.gateway import Gateway, GatewayLimits, serve_stdio
from callgate.gateway._config.secret_values import SecretValues
from callgate.mcp import mcp

_GIVEN = json.loads(sys.argv[1])
_FOLDER = Path(_GIVEN["folder"])


async def _go(name: str) -> None:
    (_FOLDER / f"{name}.began").touch()
    while not (_FOLDER / f"{name}.go").exists():
        await asyncio.sleep(0.01)


@tool(effect="none")
async def look(name: str, more: str = "") -> dict[str, object]:
    """Wait, and return what was seen."""
    await _go(name)
    return {"seen": name, "more": more} if more else {"seen": name}


@tool(effect="once")
async def pay(name: str, more: str = "") -> str:
    """Pay, and wait."""
    with (_FOLDER / "paid").open("a") as ledger:
        ledger.write(f"{name}\n")
    await _go(name)
    return f"paid {name}"


@tool(effect="none")
async def refuse(name: str) -> str:
    """Wait, and fail."""
    await _go(name)
    raise ValueError("the shop is closed")


@tool(effect="once", requires_approval=True)
def order(article: str) -> str:
    """Order an article."""
    return f"ordered {article}"


async def _tell_first_task(gateway: Gateway) -> None:
    while b"callgate_tasks_running 1.0" not in gateway.metrics():
        await asyncio.sleep(0.01)
    (_FOLDER / "task").touch()


async def main() -> None:
    journal = SqliteJournal(_GIVEN["journal"]) if "journal" in _GIVEN else None
    servers = [mcp(command, name=f"server{n}") for n, command in enumerate(_GIVEN.get("servers", []))]
    limits = GatewayLimits(
        task_after_s=_GIVEN.get("after_s", 0.1),
        task_ttl_s=_GIVEN.get("ttl_s", 3_600.0),
        tasks=_GIVEN.get("tasks", 100),
        task_bytes=_GIVEN.get("task_bytes", 1_000_000_000),
    )
    tools = [one for one in (look, pay, refuse, order) if one.name not in _GIVEN.get("without", ())]
    redactor = SecretValues([_GIVEN["secret"]]) if "secret" in _GIVEN else None
    engine = Engine(tools, servers=servers, journal=journal, redactor=redactor)
    async with Gateway(engine, secret=b"the secret of the tests, 32 bytes", limits=limits) as gateway:
        telling = asyncio.create_task(_tell_first_task(gateway))
        await serve_stdio(gateway)
        telling.cancel()


asyncio.run(main())
