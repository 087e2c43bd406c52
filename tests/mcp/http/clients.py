"""Connections over HTTP as a session uses them, for tests that need no engine."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from callgate._secret_redaction import RedactedLog
from callgate.mcp import McpServer
from callgate.mcp._connection import ConnectionEvents, Message
from callgate.mcp._http_connection import HttpConnection
from callgate.mcp._messages import notification, request
from callgate.mcp._revisions import LATEST_HANDSHAKE, LATEST_STATELESS, request_meta

__all__ = ["Client", "connected", "handshaken"]


class Client:
    """One connection, with what it reported.

    Args:
        options: Options of `McpServer`.
    """

    def __init__(self, url: str, **options: Any) -> None:
        self.messages: list[Message] = []
        """The messages that belong to no request."""
        self.noise: list[str] = []
        events = ConnectionEvents(
            on_message=self.messages.append, on_noise=self.noise.append, on_late=lambda *_: None, log=RedactedLog(None)
        )
        self.connection = HttpConnection(McpServer(name="fake", url=url, **options), events)
        self.revision = LATEST_STATELESS
        self._numbers = itertools.count(1)

    async def ask(self, method: str, params: dict[str, Any] | None = None, on_message: Callable[[Message], None] | None = None) -> Message:
        """Send a request of this client's revision and return the answer."""
        params = dict(params or {})
        if self.revision == LATEST_STATELESS:
            params["_meta"] = {**params.get("_meta", {}), **request_meta(self.revision, {"elicitation": {}})}
        return await self.connection.request(request(next(self._numbers), method, params), on_message or (lambda _: None))

    async def call(self, tool: str, arguments: dict[str, Any] | None = None, on_message: Callable[[Message], None] | None = None) -> Any:
        """Call a tool, and return the text of its result."""
        params = {"name": tool, "arguments": arguments or {}, "_meta": {"progressToken": f"of {tool}"}}
        answer = await self.ask("tools/call", params, on_message)
        return answer["result"]["content"][0]["text"] if "result" in answer else answer["error"]

    async def shake_hands(self) -> Message:
        """Negotiate the newest revision with sessions, and return the server's answer."""
        self.revision = LATEST_HANDSHAKE
        params = {"protocolVersion": self.revision, "capabilities": {"elicitation": {}}, "clientInfo": {"name": "t", "version": "1"}}
        answer = await self.ask("initialize", params)
        self.connection.use(self.revision)
        await self.connection.notify(notification("notifications/initialized"))
        return answer


@asynccontextmanager
async def connected(url: str, **options: Any) -> AsyncIterator[Client]:
    """A client of revision 2026-07-28."""
    client = Client(url, **options)
    await client.connection.open()
    client.connection.use(client.revision)
    try:
        yield client
    finally:
        await client.connection.close()


@asynccontextmanager
async def handshaken(url: str, **options: Any) -> AsyncIterator[Client]:
    """A client of revision 2025-11-25, with a session."""
    client = Client(url, **options)
    await client.connection.open()
    try:
        await client.shake_hands()
        yield client
    finally:
        await client.connection.close()
