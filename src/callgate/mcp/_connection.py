"""The protocol of connections, which carry JSON-RPC messages to one server and back, and the errors of a connection.

An error says what is certain about its request: `NotSent` proves that the server never got it, the others do not. Knows no tool, no
revision of MCP and no transport.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from msgspec import Struct

from callgate._secret_redaction import RedactedLog
from callgate._server_processes.server_errors import ConnectionLost, NotSent, ProtocolError, ToolServerError

__all__ = ["LOOK_FIRST", "ConnectionEvents", "ConnectionLost", "McpError", "Message", "NotSent", "ProtocolError", "ServerConnection"]

Message = dict[str, Any]
"""One JSON-RPC message as it was parsed. It is passed on unchanged, so that unknown fields are kept."""


McpError = ToolServerError
"""A request to an MCP server has no valid answer."""

LOOK_FIRST = "It may have done what was asked: look at the server before you ask again."
"""The last sentence about a request that the server may have got."""


class ConnectionEvents(Struct, frozen=True, kw_only=True, eq=False):
    """The callbacks of a connection, beside the answers to its requests. All functions return at once and do not raise."""

    on_message: Callable[[Message], None]
    """Called with notifications and requests of the server that belong to no request of ours."""
    on_noise: Callable[[str], None]
    """Called once for each thing that was ignored, with a short text of what it was: a line that is not a message, an answer that no
    request waits for."""
    on_late: Callable[[int, Message], None]
    """Called with the id of a request that was cancelled or timed out, and the answer that came after that."""
    log: RedactedLog


class ServerConnection(Protocol):
    """Carries JSON-RPC messages to one server and back. Made with an `McpServer` and `ConnectionEvents`."""

    lost: asyncio.Future[str]
    """Done, with the reason as a sentence, when no further request can succeed on this connection."""

    @property
    def last_words(self) -> str:
        """The end of what the process has written to its standard error, once it is lost. For the operator, not for a model."""
        ...

    @property
    def can_ask(self) -> bool:
        """Whether the server can send requests after a handshake: over HTTP, only if it has opened a session."""
        ...

    async def open(self) -> None:
        """Start the server's process; do nothing for a server on the network.

        Raises:
            NotSent: The process cannot be started.
        """
        ...

    def use(self, revision: str) -> None:
        """Use this revision of the protocol from now on. Called once, after negotiation."""
        ...

    async def request(self, message: Message, on_message: Callable[[Message], None]) -> Message:
        """Send a request and return its response, which has `result` or `error`.

        Cancelling this coroutine sends the protocol's cancellation, and returns at once.

        Args:
            message: Its `id` is an int that is unique on this connection.
            on_message: Called with notifications and requests of the server that belong to this request.

        Raises:
            NotSent: The server certainly did not get the request.
            ConnectionLost: The request was sent, and no answer can come any more.
            ProtocolError: The request was sent, and the answer is not valid.
        """
        ...

    async def notify(self, message: Message) -> None:
        """Send a notification, or the answer to a request of the server, in bounded time. A lost connection is not an error."""
        ...

    async def close(self) -> None:
        """Close the connection and end the server's process with all its children, in bounded time. Idempotent."""
        ...
