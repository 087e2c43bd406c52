"""The resources whose changes one client wants to know, and their subscriptions at the servers."""

from __future__ import annotations

import logging
from contextlib import suppress

from callgate.errors import CallgateError
from callgate.gateway._offered_content import OfferedContent
from callgate.gateway.principals import Principal
from callgate.mcp import McpError, ServerContent

__all__ = ["WatchedResources"]

log = logging.getLogger("callgate")


class WatchedResources:
    """The subscriptions of one session or stream."""

    def __init__(self, content: OfferedContent, principal: Principal) -> None:
        self._content, self._principal = content, principal
        self._servers: dict[str, ServerContent] = {}

    def __contains__(self, uri: str) -> bool:
        return uri in self._servers

    async def add(self, uri: str) -> None:
        """Subscribe to a resource, once.

        Raises:
            RpcError: No server takes the subscription.
        """
        if uri not in self._servers:
            self._servers[uri] = await self._content.subscribe(uri, self._principal)

    async def remove(self, uri: str) -> None:
        """End a subscription; a server that does not answer is no error."""
        server = self._servers.pop(uri, None)
        if server is not None:
            try:
                await server.unsubscribe(uri)
            except McpError as error:
                log.debug("The subscription to %s of the MCP server %s could not be ended: %s", uri[:200], server.name, error)

    async def close(self) -> None:
        """End all subscriptions."""
        for uri in list(self._servers):
            with suppress(CallgateError):
                await self.remove(uri)
