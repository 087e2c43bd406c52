"""One MCP server of an engine, kept running."""

from __future__ import annotations

from typing import Literal

from callgate.mcp.server_config import McpServer
from callgate.protocols import ToolCatalogue

__all__ = ["SupervisedServer"]


class SupervisedServer:
    """An MCP server that is started, restarted and closed for one engine."""

    layer: Literal["mcp"] = "mcp"

    def __init__(self, server: McpServer) -> None:
        self.name = server.name

    async def start(self, catalogue: ToolCatalogue) -> None:
        raise NotImplementedError

    async def close(self) -> None:
        raise NotImplementedError
