"""The protocols between the gateway's transports and its two eras.

A transport (stdio, HTTP) reads messages, and hands each to a `Front`, which answers it. During a request, the front sends the client
notifications and requests of its own through the request's `Exchange`. Neither knows how the other works.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Protocol, runtime_checkable

from callgate.gateway.principals import Principal
from callgate.mcp._connection import Message

__all__ = ["Exchange", "Front", "KnowsTransport", "SessionFront"]


class Exchange(Protocol):
    """The way back to the client while one of its requests is answered."""

    def send(self, message: Message) -> bool:
        """Send a notification or a request to the client before the response. Returns at once.

        Returns:
            Whether the message is accepted: False if the client is gone, or reads so slowly that its buffer is full.
        """
        ...


@runtime_checkable
class KnowsTransport(Protocol):
    """An exchange that knows how its client is connected, for traces."""

    transport: Literal["pipe", "tcp"]
    """`tcp`: over HTTP."""
    session_id: str
    """The session that the client names in its requests; empty if it names none."""


class Front(Protocol):
    """Answers the messages of one client connection, in one era of the protocol."""

    async def request(self, message: Mapping[str, Any], exchange: Exchange) -> Message | None:
        """Answer a request, which has a `method` and an `id`.

        If this coroutine is cancelled, the request is cancelled.

        Returns:
            The response, which has `result` or `error`; None if the client has cancelled the request, so that nothing may be sent.
        """
        ...

    def notification(self, message: Mapping[str, Any]) -> None:
        """Take a notification of the client. Returns at once."""
        ...

    def response(self, message: Mapping[str, Any]) -> None:
        """Take the client's response to a request that was sent through an exchange. Returns at once."""
        ...

    async def close(self) -> None:
        """Cancel what runs, because the client is gone. Idempotent."""
        ...


class SessionFront(Front, Protocol):
    """A front that lasts for a session, in which the rights of the principal may change."""

    def use_principal(self, principal: Principal) -> None:
        """Give the following requests the rights of `principal`, which has the same name as before."""
        ...
