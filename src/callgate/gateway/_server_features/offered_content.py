"""Which servers' resources and prompts a principal is offered: those of the servers that it may use.

Principals with the same servers share what is known of them, such as the names of prompts. Knows no method.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from fnmatch import fnmatchcase
from typing import Protocol

from callgate._option_checks import shown
from callgate.engine import Engine
from callgate.gateway._client_calls import ClientCall
from callgate.gateway._redaction import ClientRedaction
from callgate.gateway._server_features.content import Content
from callgate.gateway._server_features.startup import Startup
from callgate.gateway.principals import EVERY, Principal
from callgate.mcp import McpError, RequestRejected, ServerContent
from callgate.mcp._messages import RpcError
from callgate.mcp.calling_client import on_behalf_of
from callgate.mcp.mcp_tool import McpTool

__all__ = ["OfferedContent"]

log = logging.getLogger("callgate")

_START_S = 4.0
"""How long a client that asks what the gateway is waits for servers that still start; less than clients wait before they give up."""


class RenewsSubscriptions(Protocol):
    async def renew(self, replaced: Collection[str]) -> list[str]:
        """Subscribe again to the resources of servers that were removed or replaced; return their URIs."""
        ...


class OfferedContent:
    """The resources, prompts and completions of one gateway, for each principal.

    Args:
        current: Returns a principal with its present rights.
    """

    def __init__(self, engine: Engine, startup: Startup, redaction: ClientRedaction, current: Callable[[Principal], Principal]) -> None:
        self._engine, self._startup, self._redaction = engine, startup, redaction
        self._current = current
        self._by_servers: dict[tuple[str, ...], Content] = {}
        self.watched: set[RenewsSubscriptions] = set()
        """The subscriptions of clients to resources."""

    def to(self, principal: Principal) -> Content:
        """Return what a principal is offered. Until the servers have started, this is what any principal may be offered then."""
        known = [server.name for server in self._engine.mcp_servers()]
        servers = tuple(name for name in known if not self._startup.ended or self._is_offered(name, principal))
        found = self._by_servers.get(servers)
        if found is None:
            found = self._by_servers[servers] = Content(self._engine, self._startup, self._redaction, servers)
        return found

    async def refresh_tools(self) -> None:
        """List the tools again that servers may have changed without telling it; see `ServerContent.refresh_tools`."""
        await asyncio.gather(*(server.refresh_tools() for server in self._engine.mcp_servers()))

    async def instructions(self, own: str, principal: Principal) -> str:
        """Return what a client may tell its model about the tools that a principal is offered.

        That is the text of the gateway, then those of the servers, each below the server's name. The text of an only server is unchanged.
        Waits a moment for servers that start, because most clients ask once.

        Args:
            own: The text of the gateway; may be empty.
        """
        await self._startup.wait_at_most(_START_S)
        servers = [one for one in self._engine.mcp_servers() if self._startup.ended and self._is_offered(one.name, principal)]
        texts = {one.name: self._clean(one.instructions) for one in servers}
        if len(texts) == 1 and not own:
            return next(iter(texts.values()))
        return "\n\n".join(filter(None, (own, *(f"## {name}\n\n{text}" for name, text in texts.items() if text))))

    def _clean(self, text: str) -> str:
        return str(self._redaction.clean({"instructions": text}).get("instructions", "")) if text else ""

    async def subscribe(self, uri: str, call: ClientCall) -> ServerContent:
        """Ask the server of a resource to tell a client its changes; see `Content.subscribe`."""
        await self._startup.wait()
        with on_behalf_of(call):
            return await self.to(call.client.principal).subscribe(uri)

    async def subscribe_again(self, uri: str, server: str, call: ClientCall) -> ServerContent:
        """Ask the successor of a server, given by name, to tell the changes of a resource; if there is none, another server that has it.

        A successor that cannot be asked now is asked when it starts.

        Raises:
            RpcError: No server takes the subscription.
        """
        for successor in self._engine.mcp_servers():
            if successor.name == server:
                try:
                    with on_behalf_of(call):
                        await successor.subscribe(uri, lasting=True)
                except RequestRejected as error:
                    raise RpcError(error.rpc_code, error.server_message) from error
                except McpError as error:
                    log.info("Changes of %s can be told when its server has started: %s", shown(uri), error)
                return successor
        return await self.subscribe(uri, call)

    async def renew(self, replaced: Collection[str]) -> set[str]:
        """Subscribe again to the resources of servers, given by name, that were removed or replaced; return their URIs."""
        found = await asyncio.gather(*(one.renew(replaced) for one in list(self.watched)))
        return {uri for uris in found for uri in uris}

    def is_offered_now(self, server: str, principal: Principal) -> bool:
        """Return whether a principal may be told of a server's resources, by its rights of now, which may be others than at its request."""
        return self._is_offered(server, self._current(principal))

    def _is_offered(self, server: str, principal: Principal) -> bool:
        if principal.servers is not None:
            return any(fnmatchcase(server, pattern) for pattern in principal.servers)
        if EVERY in principal.tools:
            return True
        tools = (bound.name for bound in self._engine.tools if isinstance(bound.tool, McpTool) and bound.tool.server == server)
        return any(principal.may_use(name) for name in tools)
