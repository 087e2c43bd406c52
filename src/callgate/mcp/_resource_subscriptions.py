"""The subscriptions to changes of one server's resources: which resource, for which client, and in which session of the server."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from callgate.mcp._supervised_session import SupervisedSession
from callgate.mcp.calling_client import CallingClient

__all__ = ["ResourceSubscription", "ResourceSubscriptions", "containing_uris"]

_END_OF_PART = re.compile("[/?#]")


class ResourceSubscription(Struct, frozen=True, kw_only=True, eq=False):
    """One subscription."""

    uri: str
    client: CallingClient | None
    """The client that is notified; None: the host."""
    session: SupervisedSession
    """Where the server is asked to tell the changes."""
    of_client: bool
    """Whether the session belongs to single clients."""

    def receives_from(self, key: str | None) -> bool:
        """Return whether a change reported in the session of clients with this key (None: the first session) is for this client."""
        if key is None:
            return not self.of_client
        return self.client is not None and self.client.key == key


class ResourceSubscriptions:
    """The subscriptions at one server."""

    def __init__(self) -> None:
        self._by_uri: dict[str, list[ResourceSubscription]] = {}

    def add(self, subscription: ResourceSubscription) -> bool:
        """Add a subscription; return whether it is the first one to this resource in its session."""
        self._by_uri.setdefault(subscription.uri, []).append(subscription)
        subscribed = subscription.session.subscribed
        subscribed[subscription.uri] = subscribed.get(subscription.uri, 0) + 1
        return subscribed[subscription.uri] == 1

    def find(self, uri: str, client: CallingClient | None) -> ResourceSubscription | None:
        """Return a subscription of a client; None if it has none to this resource."""
        return next((one for one in self._by_uri.get(uri, ()) if one.client is client), None)

    def remove(self, subscription: ResourceSubscription) -> bool:
        """Remove a subscription; return whether it was the last one to this resource in its session."""
        subscriptions, subscribed = self._by_uri[subscription.uri], subscription.session.subscribed
        subscriptions.remove(subscription)
        if not subscriptions:
            del self._by_uri[subscription.uri]
        left = subscribed.pop(subscription.uri) - 1
        if left:
            subscribed[subscription.uri] = left
        return not left

    def notify(self, params: Mapping[str, Any], key: str | None) -> None:
        """Tell the clients what the server says of a changed resource.

        Args:
            key: See `ResourceSubscription.receives_from`.
        """
        uri = params.get("uri")
        for containing in containing_uris(uri) if isinstance(uri, str) else ():
            for subscription in list(self._by_uri.get(containing, ())):
                if subscription.client is not None and subscription.receives_from(key):
                    subscription.client.receive_resource_update(params)


def containing_uris(uri: str) -> Iterator[str]:
    """Yield the URI of a resource, and those of the resources that it may be a part of, such as `files://a` and `files://a/` for `files://a/b`.

    Source: MCP 2025-11-25 and 2026-07-28, schema, `ResourceUpdatedNotificationParams`: a server may name a sub-resource of the one that its
    client has subscribed to.
    """
    yield uri
    for end in _END_OF_PART.finditer(uri):
        yield uri[: end.start()]
        if end.end() < len(uri):
            yield uri[: end.end()]
