"""The subscriptions to changes of one server's resources: which resource, for which client, and in which session of the server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from callgate.mcp._supervised_session import SupervisedSession
from callgate.mcp.calling_client import CallingClient

__all__ = ["RESOURCE_UPDATED", "ResourceWatches", "Watch"]

RESOURCE_UPDATED = "notifications/resources/updated"


class Watch(Struct, frozen=True, kw_only=True, eq=False):
    """One subscription."""

    uri: str
    client: CallingClient | None
    """The client that is notified; None: the host."""
    session: SupervisedSession
    """Where the server is asked to tell the changes."""
    of_client: bool
    """Whether the session belongs to single clients."""

    def hears(self, key: str | None) -> bool:
        """Return whether a change reported in the session of clients with this key (None: the first session) is for this client."""
        if key is None:
            return not self.of_client
        return self.client is not None and self.client.key == key


class ResourceWatches:
    """The subscriptions at one server."""

    def __init__(self) -> None:
        self._by_uri: dict[str, list[Watch]] = {}

    def add(self, watch: Watch) -> bool:
        """Add a subscription; return whether it is the first one to this resource in its session."""
        self._by_uri.setdefault(watch.uri, []).append(watch)
        subscribed = watch.session.subscribed
        subscribed[watch.uri] = subscribed.get(watch.uri, 0) + 1
        return subscribed[watch.uri] == 1

    def of(self, uri: str, client: CallingClient | None) -> Watch | None:
        """Return a subscription of a client; None if it has none to this resource."""
        return next((one for one in self._by_uri.get(uri, ()) if one.client is client), None)

    def remove(self, watch: Watch) -> bool:
        """Remove a subscription; return whether it was the last one to this resource in its session."""
        watches, subscribed = self._by_uri[watch.uri], watch.session.subscribed
        watches.remove(watch)
        if not watches:
            del self._by_uri[watch.uri]
        left = subscribed.pop(watch.uri) - 1
        if left:
            subscribed[watch.uri] = left
        return not left

    def tell(self, params: Mapping[str, Any], key: str | None) -> None:
        """Tell the clients what the server says of a changed resource.

        Args:
            key: See `Watch.hears`.
        """
        uri = params.get("uri")
        for watch in list(self._by_uri.get(uri, ())) if isinstance(uri, str) else ():
            if watch.client is not None and watch.hears(key):
                watch.client.receive_resource_update(params)
