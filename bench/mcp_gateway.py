"""A gateway over stdio in front of MCP servers: `python -m bench.mcp_gateway JOURNAL COUNT COMMAND...`.

JOURNAL is a file, or `memory`; COUNT is how many servers to start with the command.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence

from callgate import Engine, SqliteJournal
from callgate.gateway import Gateway, serve_stdio
from callgate.mcp import mcp


async def main(journal: str, count: int, command: Sequence[str]) -> None:
    servers = [mcp(command, name=f"server{number}", prefix=count > 1) for number in range(count)]
    engine = Engine(servers=servers, journal=None if journal == "memory" else SqliteJournal(journal))
    async with Gateway(engine) as gateway:
        await serve_stdio(gateway)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), sys.argv[3:]))
