"""What clients of the stateless era are told while they listen: changes of lists, of resources and of their tasks.

Sources: MCP 2026-07-28, Subscriptions; Tasks extension, Task Status Notifications.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from msgspec import Struct

from callgate.gateway._access.token_expiry import end_at_expiry
from callgate.gateway._client_calls import ClientCall
from callgate.gateway._exchange import Exchange
from callgate.gateway._fronts.front_parts import FrontParts, object_of
from callgate.gateway._server_features.changes import SUBSCRIPTION_ID
from callgate.gateway._server_features.watched_resources import MOST_WATCHED, WatchedResources
from callgate.gateway._tasks.tasks import RunningTask
from callgate.mcp._connection import Message
from callgate.mcp._messages import INVALID_PARAMS, RpcError, notification
from callgate.mcp._resource_subscriptions import RESOURCE_UPDATED

__all__ = ["Subscription", "listen", "read_subscription"]

_LISTS = {f"{kind}ListChanged": f"notifications/{kind}/list_changed" for kind in ("tools", "prompts", "resources")}


class Subscription(Struct, frozen=True, kw_only=True, eq=False):
    """What one client wants to be told, and where."""

    request_id: object
    """The id of the request that listens."""
    exchange: Exchange
    methods: frozenset[str]
    """The notifications about lists."""
    uris: frozenset[str]
    task_ids: tuple[str, ...]

    def send(self, method: str, params: Mapping[str, Any]) -> bool:
        meta = {**object_of(params.get("_meta")), SUBSCRIPTION_ID: self.request_id}
        return self.exchange.send(notification(method, {**params, "_meta": meta}))


def read_subscription(request_id: object, params: Mapping[str, Any], exchange: Exchange) -> Subscription:
    """Return what a request `subscriptions/listen` asks for.

    Raises:
        RpcError: The params are not valid.
    """
    asked = params.get("notifications")
    if not isinstance(asked, dict):
        raise RpcError(INVALID_PARAMS, "subscriptions/listen needs notifications, an object.")
    return Subscription(
        request_id=request_id,
        exchange=exchange,
        methods=frozenset(method for key, method in _LISTS.items() if asked.get(key) is True),
        uris=frozenset(_texts(asked, "resourceSubscriptions", "URIs")),
        task_ids=tuple(dict.fromkeys(_texts(asked, "taskIds", "ids"))),
    )


async def listen(wanted: Subscription, parts: FrontParts, call: ClientCall, tasks: Sequence[RunningTask]) -> Message:
    """Tell a client of changes until it goes away or the gateway closes; return the result of its request.

    Args:
        call: The request.
        tasks: The tasks of the client among those that it has named.
    """
    listener = _Listener(wanted)
    listener.tell("notifications/subscriptions/acknowledged", {"notifications": _agreed_notifications(wanted, tasks)})
    stop = parts.changes.listen(listener.tell_change, listener.ended)
    watched = WatchedResources(parts.content, partial(listener.tell, RESOURCE_UPDATED))
    try:
        for task in tasks:
            task.watchers.add(listener.tell_task)
            listener.tell_task(task)
        for uri in sorted(wanted.uris):
            await watched.add(uri, call)
        with end_at_expiry(call.client.principal, listener.end):
            await listener.ended
    finally:
        stop()
        for task in tasks:
            task.watchers.discard(listener.tell_task)
        await watched.close()
    return {"_meta": {SUBSCRIPTION_ID: wanted.request_id}}


class _Listener:
    """Sends a client notifications of the changes that it has subscribed to, until one cannot be sent."""

    def __init__(self, wanted: Subscription) -> None:
        self._wanted = wanted
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the client no longer listens."""

    def end(self) -> None:
        if not self.ended.done():
            self.ended.set_result(None)

    def tell(self, method: str, params: Mapping[str, Any]) -> None:
        if not self._wanted.send(method, params):
            self.end()

    def tell_change(self, method: str, params: Mapping[str, Any]) -> None:
        """Tell of a change of a list, or of what a notification with params is about, if the client wants it."""
        if (params.get("uri") in self._wanted.uris) if params else (method in self._wanted.methods):
            self.tell(method, params)

    def tell_task(self, task: RunningTask) -> None:
        self.tell("notifications/tasks", task.describe())


def _agreed_notifications(wanted: Subscription, tasks: Sequence[RunningTask]) -> Message:
    """Return what the client will be told."""
    agreed: Message = {key: True for key, method in _LISTS.items() if method in wanted.methods}
    if wanted.uris:
        agreed["resourceSubscriptions"] = sorted(wanted.uris)
    if tasks:
        agreed["taskIds"] = [task.id for task in tasks]
    return agreed


def _texts(asked: Mapping[str, Any], key: str, what: str) -> list[str]:
    given = asked.get(key) or []
    if not isinstance(given, list) or not all(isinstance(one, str) for one in given) or len(given) > MOST_WATCHED:
        raise RpcError(INVALID_PARAMS, f"{key} must be a list of at most {MOST_WATCHED} {what}.")
    return given
