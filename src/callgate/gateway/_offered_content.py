"""Which servers' resources and prompts a principal is offered: those of the servers that it may use.

Principals with the same servers share what is known of them, such as the names of prompts. Knows no method.
"""

from __future__ import annotations

from fnmatch import fnmatchcase

from callgate.engine import Engine
from callgate.gateway._content import Content
from callgate.gateway._redaction import ClientRedaction
from callgate.gateway._startup import Startup
from callgate.gateway.principals import EVERY, Principal
from callgate.mcp import ServerContent
from callgate.mcp.mcp_tool import McpTool

__all__ = ["OfferedContent"]


class OfferedContent:
    """The resources, prompts and completions of one gateway, for each principal."""

    def __init__(self, engine: Engine, startup: Startup, redaction: ClientRedaction) -> None:
        self._engine, self._startup, self._redaction = engine, startup, redaction
        self._by_servers: dict[tuple[str, ...], Content] = {}

    def to(self, principal: Principal) -> Content:
        """Return what a principal is offered. Until the servers have started, this is what any principal may be offered then."""
        known = [server.name for server in self._engine.mcp_servers()]
        servers = tuple(name for name in known if not self._startup.ended or self._is_offered(name, principal))
        found = self._by_servers.get(servers)
        if found is None:
            found = self._by_servers[servers] = Content(self._engine, self._startup, self._redaction, servers)
        return found

    async def subscribe(self, uri: str, principal: Principal) -> ServerContent:
        """Ask the server of a resource to tell its changes; see `Content.subscribe`."""
        await self._startup.wait()
        return await self.to(principal).subscribe(uri)

    def _is_offered(self, server: str, principal: Principal) -> bool:
        if principal.servers is not None:
            return any(fnmatchcase(server, pattern) for pattern in principal.servers)
        if EVERY in principal.tools:
            return True
        tools = (bound.name for bound in self._engine.tools if isinstance(bound.tool, McpTool) and bound.tool.server == server)
        return any(principal.may_use(name) for name in tools)
