"""A gateway over stdio in front of MCP servers: `python -m bench.mcp_gateway COUNT COMMAND...` starts COUNT servers with the command."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence

from callgate import Engine
from callgate.gateway import Gateway, serve_stdio
from callgate.mcp import mcp


async def main(count: int, command: Sequence[str]) -> None:
    servers = [mcp(command, name=f"server{number}", prefix=True) for number in range(count)]
    async with Gateway(Engine(servers=servers)) as gateway:
        await serve_stdio(gateway)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), sys.argv[2:]))
