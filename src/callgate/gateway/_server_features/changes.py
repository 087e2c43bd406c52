"""Tell the clients of a gateway what has changed: the lists of tools, prompts and resources, and single resources.

They are also told that an elicitation in URL mode is complete. Changes of a list that come close together are told once. Knows no era of
the protocol.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Literal

from callgate.gateway._client_calls import PROTOCOL_PREFIX
from callgate.gateway._redaction import ClientRedaction
from callgate.mcp._resource_subscriptions import RESOURCE_UPDATED
from callgate.mcp._server_messages import ELICITATION_COMPLETE

__all__ = ["SUBSCRIPTION_ID", "Change", "Changes", "ListKind", "without_subscription"]

SUBSCRIPTION_ID = f"{PROTOCOL_PREFIX}subscriptionId"
"""The key in `_meta` by which the stateless era names the subscription that a notification belongs to."""

ListKind = Literal["tools", "prompts", "resources"]
Change = Callable[[str, Mapping[str, Any]], None]
"""Called with the method of a notification, and its params, which are empty for one about a list."""

_COLLECT_S = 0.05


class Changes:
    """The listeners for changes of one gateway.

    Args:
        redaction: Removes secrets from what servers say of a resource.
    """

    def __init__(self, redaction: ClientRedaction) -> None:
        self._redaction = redaction
        self._listeners: dict[object, tuple[Change, asyncio.Future[None] | None]] = {}
        self._changed: set[ListKind] = set()
        self._timer: asyncio.TimerHandle | None = None

    def listen(self, change: Change, ended: asyncio.Future[None] | None = None) -> Callable[[], None]:
        """Call `change` for each change from now on; return a function that ends this.

        Args:
            ended: Set when the gateway closes; None if the caller need not know.
        """
        key = object()
        self._listeners[key] = change, ended

        def stop() -> None:
            self._listeners.pop(key, None)

        return stop

    def list_changed(self, kind: ListKind) -> None:
        """Tell that a list has changed. Must be called in the gateway's event loop."""
        self._changed.add(kind)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_COLLECT_S, self._tell_lists)

    def resource_updated(self, uri: str) -> None:
        """Tell that a resource may have changed, because another server has it now."""
        self._tell(RESOURCE_UPDATED, {"uri": uri})

    def take_notice(self, method: str, params: Mapping[str, Any]) -> None:
        """Take a notice of a server. Those about tools come from the engine, which knows which of them it offers. Those about a changed
        resource go only to the clients that have subscribed to it, by another way.
        """
        if method == ELICITATION_COMPLETE and isinstance(params.get("elicitationId"), str):
            self._tell(method, self._redaction.clean(params))
        elif method == "notifications/prompts/list_changed":
            self.list_changed("prompts")
        elif method == "notifications/resources/list_changed":
            self.list_changed("resources")

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self.end_subscriptions()
        self._listeners.clear()

    def end_subscriptions(self) -> None:
        """Set the `ended` of all listeners, because the gateway closes."""
        for _, ended in self._listeners.values():
            if ended is not None and not ended.done():
                ended.set_result(None)

    def _tell_lists(self) -> None:
        self._timer = None
        changed, self._changed = sorted(self._changed), set()
        for kind in changed:
            self._tell(f"notifications/{kind}/list_changed", {})

    def _tell(self, method: str, params: Mapping[str, Any]) -> None:
        for change, _ in list(self._listeners.values()):
            change(method, params)


def without_subscription(params: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the params of a server without the id of the gateway's subscription at the server."""
    meta = params.get("_meta")
    if not isinstance(meta, dict) or SUBSCRIPTION_ID not in meta:
        return params
    left = {key: value for key, value in meta.items() if key != SUBSCRIPTION_ID}
    return {key: left if key == "_meta" else value for key, value in params.items() if key != "_meta" or left}
