"""The resources whose changes one client wants to know, and their subscriptions at the servers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from typing import Any
from weakref import WeakValueDictionary

from callgate._option_checks import shown
from callgate.gateway._client_calls import ClientCall
from callgate.gateway._server_features.changes import without_subscription
from callgate.gateway._server_features.offered_content import OfferedContent
from callgate.mcp import McpError, ServerContent
from callgate.mcp._messages import INVALID_PARAMS, RpcError
from callgate.mcp._resource_subscriptions import containing_uris
from callgate.mcp.calling_client import on_behalf_of

__all__ = ["MOST_WATCHED", "WatchedResources"]

log = logging.getLogger("callgate")
MOST_WATCHED = 1_000
_MOST_URI_CHARS = 8_192
_UNSUBSCRIBE_S = 5.0
"""How long a server has to confirm the end of a subscription, for which a client or the end of its session waits."""


class WatchedResources:
    """The subscriptions of one session or stream.

    Args:
        tell: Called with what a server says of a changed resource.
    """

    def __init__(self, content: OfferedContent, tell: Callable[[Mapping[str, Any]], None]) -> None:
        self._content, self._tell = content, tell
        self._servers: dict[str, tuple[ServerContent, ClientCall]] = {}
        """The server of each resource, and the request that has subscribed to it."""
        self._changing: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """Held while a subscription to a resource begins or ends, so that requests for the same one take effect in their order."""

        content.watched.add(self)

    def __contains__(self, uri: object) -> bool:
        return uri in self._servers

    async def add(self, uri: str, call: ClientCall) -> None:
        """Subscribe to a resource, once, on behalf of a request.

        Raises:
            RpcError: No server takes the subscription, or there are too many, or the URI is too long.
        """
        if len(uri) > _MOST_URI_CHARS:
            text = f"The URI has {len(uri)} characters; {_MOST_URI_CHARS} is the limit for a subscription."
            raise RpcError(INVALID_PARAMS, f"{text} Read the resource again instead.")
        async with self._lock(uri):
            if uri in self._servers:
                return
            if len(self._servers.keys() | self._changing.keys()) > MOST_WATCHED:
                text = f"This client has subscribed to {MOST_WATCHED} resources, which is the limit."
                raise RpcError(INVALID_PARAMS, f"{text} Unsubscribe from one, then try again.")
            call.on_resource_updated = self._tell_update
            self._servers[uri] = await self._content.subscribe(uri, call), call

    async def remove(self, uri: str) -> None:
        """End a subscription; a server that does not answer is not an error."""
        async with self._lock(uri):
            found = self._servers.pop(uri, None)
            if found is None:
                return
            server, call = found
            try:
                with on_behalf_of(call):
                    await server.unsubscribe(uri, timeout_s=_UNSUBSCRIBE_S)
            except McpError as error:
                log.debug("The subscription to %s of the MCP server %s could not be ended: %s", uri[:200], server.name, error)

    async def renew(self, replaced: Collection[str]) -> list[str]:
        """Subscribe again to the resources of servers, given by name, that were removed or replaced; return their URIs."""
        uris = [uri for uri, (server, _) in self._servers.items() if server.name in replaced]
        for uri in uris:
            async with self._lock(uri):
                if uri in self._servers:  # its subscription may have ended meanwhile
                    await self._renew(uri, *self._servers[uri])
        return uris

    async def _renew(self, uri: str, server: ServerContent, call: ClientCall) -> None:
        try:
            self._servers[uri] = await self._content.subscribe_again(uri, server.name, call), call
        except RpcError as error:
            self._servers.pop(uri, None)
            log.warning("Changes of %s cannot be told to %s any longer: %s", shown(uri), call.client.principal.name, error)

    def _lock(self, uri: str) -> asyncio.Lock:
        return self._changing.setdefault(uri, asyncio.Lock())

    def _tell_update(self, params: Mapping[str, Any]) -> None:
        found = next((self._servers[uri] for uri in containing_uris(params["uri"]) if uri in self._servers), None)
        if found is None or self._content.is_offered_now(found[0].name, found[1].client.principal):
            self._tell(without_subscription(params))

    async def close(self) -> None:
        """End all subscriptions, in bounded time."""
        self._content.watched.discard(self)
        await asyncio.gather(*map(self.remove, list(self._servers)), return_exceptions=True)
