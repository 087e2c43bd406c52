"""The MCP client on whose behalf a call is made.

A gateway makes calls for clients of its own. What a server asks during such a call (questions to the user, requests to a language model,
the folders to work in) goes to that client, and only what that client can do is offered to the server. The gateway sets the client with
`on_behalf_of`; the tools of MCP servers read it. Without a client, the server's own configuration answers. Knows no connection.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar, Token
from typing import Any, Protocol

__all__ = ["CAPABILITY_OF", "CallingClient", "calling_client", "on_behalf_of"]


CAPABILITY_OF: Mapping[str, str] = {"elicitation/create": "elicitation", "sampling/createMessage": "sampling", "roots/list": "roots"}
"""The capability by which a client declares that it answers a request of a server, by the method of the request."""


class CallingClient(Protocol):
    """The client of one call. Its functions, except `answer`, return at once and do not raise."""

    @property
    def key(self) -> str:
        """Clients with the same key may share sessions with servers that keep state; empty: shared by all clients."""
        ...

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """The client's capabilities as it declared them: `elicitation`, `sampling`, `roots`, and the `extensions` that pass a gateway."""
        ...

    @property
    def meta(self) -> Mapping[str, Any]:
        """Fields for the `_meta` of the request, such as `traceparent`. Those that the protocol itself defines for a hop are not in it."""
        ...

    @property
    def log_level(self) -> str:
        """The least level of log messages that the client wants; empty: none."""
        ...

    @property
    def wants_progress(self) -> bool:
        """Whether the client has asked for the progress of this call. Calls of tools report it in any case, for their record."""
        ...

    @property
    def own_session(self) -> object | None:
        """The session in which the client can be asked for the sake of any of its calls; calls with the same one are of the same client.
        None: a question reaches the client only as part of the call that it belongs to."""
        ...

    async def answer(self, method: str, params: Mapping[str, Any], name: str = "") -> Mapping[str, Any]:
        """Return the result of a request of the server: `elicitation/create`, `sampling/createMessage` or `roots/list`.

        Args:
            name: The server's name of the request, if it asks within the result of a call; empty if it has none.

        Raises:
            RpcError: The client refuses it or cannot be asked.
        """
        ...

    def receive_progress(self, params: Mapping[str, Any]) -> None:
        """Receive the `params` of a progress notification of this call, without its token."""
        ...

    def receive_log(self, params: Mapping[str, Any]) -> None:
        """Receive the `params` of a log notification that belongs to this call."""
        ...

    def receive_resource_update(self, params: Mapping[str, Any]) -> None:
        """Receive the `params` of a notification that a resource has changed to which this client has subscribed."""
        ...

    def receive_response(self, response: Mapping[str, Any]) -> None:
        """Receive the server's response to this call, as it was sent: a message with `result` or `error`."""
        ...


_client: ContextVar[CallingClient | None] = ContextVar("callgate_calling_client", default=None)


def calling_client() -> CallingClient | None:
    """Return the client on whose behalf the running code makes calls; None if there is none."""
    return _client.get()


def on_behalf_of(client: CallingClient) -> AbstractContextManager[None]:
    """Make the calls of a `with` block on behalf of a client."""
    return _OnBehalfOf(client)


class _OnBehalfOf:
    """A class, because a generator takes twice as long, in each call of a gateway."""

    __slots__ = ("_client", "_token")

    def __init__(self, client: CallingClient) -> None:
        self._client = client

    def __enter__(self) -> None:
        self._token: Token[CallingClient | None] = _client.set(self._client)

    def __exit__(self, *exception: object) -> None:
        _client.reset(self._token)
