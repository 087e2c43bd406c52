"""A connection to an MCP server over streamable HTTP, of both eras.

Up to revision 2025-11-25 there is a session, see `_http_session.py`. In revision 2026-07-28 each request is a POST of its own, and closing
its response cancels it. A request itself says which of the two it is, because the newer one is tried first. A connection that breaks ends
only the request that was on it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextvars import Context
from typing import Any

from callgate.mcp._connection import ConnectionEvents, McpError, Message, ProtocolError
from callgate.mcp._http_answers import EVENT_STREAM, PendingAnswer, RequestRefused
from callgate.mcp._http_exchange import HttpExchange
from callgate.mcp._http_headers import ArgumentHeaders, routing_headers
from callgate.mcp._http_session import POST_HEADERS, HttpSession
from callgate.mcp._messages import encoded, notification
from callgate.mcp._revisions import era_of
from callgate.mcp.server_config import McpServer

__all__ = ["HttpConnection"]

_REVISION = "io.modelcontextprotocol/protocolVersion"
_CREDENTIALS = frozenset({401, 403, 407, 429})
_OLD_TRANSPORT_S = 5.0


class HttpConnection:
    """Implements `ServerConnection` for a server with a `url`. Bound to one event loop; any number of requests may run at the same time."""

    def __init__(self, server: McpServer, events: ConnectionEvents) -> None:
        self.last_words = ""
        self.lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._events = events
        self._exchange = HttpExchange(server.name, server.url, server.headers, server.auth)
        self._session = HttpSession(self._exchange, events, server.start_timeout_s, self._lose)
        self._argument_headers = ArgumentHeaders()
        self._cancellations: set[asyncio.Task[None]] = set()

    @property
    def can_ask(self) -> bool:
        return self._session.is_open

    async def open(self) -> None:
        """Prepare for requests; connections are opened for them."""
        self._exchange.open()

    def use(self, revision: str) -> None:
        if era_of(revision) == "handshake":
            self._session.revision = revision

    async def request(self, message: Message, on_message: Callable[[Message], None]) -> Message:
        params = message.get("params") or {}
        revision = params.get("_meta", {}).get(_REVISION)
        if revision is None:
            return await self._request_in_session(message, on_message)
        headers = {"mcp-protocol-version": revision, **routing_headers(message["method"], params)}
        match message["method"]:
            case "tools/call":
                return await self._post(message, headers | self._argument_headers.headers_of_call(params), on_message)
            case "tools/list":
                return self._without_refused_tools(await self._post(message, headers, on_message))
            case "server/discover":
                return await self._probe(message, headers, on_message)
            case _:
                return await self._post(message, headers, on_message)

    async def notify(self, message: Message) -> None:
        if self._session.revision or message.get("method") == "notifications/initialized":
            await self._session.notify(message)

    async def close(self) -> None:
        for task in self._cancellations:
            task.cancel()
        await asyncio.gather(*self._cancellations, return_exceptions=True)
        await self._session.close()
        await self._exchange.close()
        self._lose(f"{self._exchange.label} cannot be asked any more: the connection is closed.")

    def _lose(self, reason: str) -> None:
        if not self.lost.done():
            self.lost.set_result(reason)

    async def _post(self, message: Message, headers: Mapping[str, str], on_message: Callable[[Message], None]) -> Message:
        """Send a request of the stateless era and return its answer."""
        answer = PendingAnswer(self._exchange, message["id"], on_message, self._events)
        response = await self._exchange.send("POST", {**POST_HEADERS, **headers}, encoded(message))
        try:
            found = await answer.read(response)
        except BaseException:
            await response.release()
            raise
        await response.release_after_end()
        if found is None:
            raise answer.missing_answer_error()
        return found

    async def _probe(self, message: Message, headers: Mapping[str, str], on_message: Callable[[Message], None]) -> Message:
        """Ask whether the server is of the stateless era. An older one refuses the request in one of many ways, which is an answer, too."""
        try:
            return await self._post(message, headers, on_message)
        except RequestRefused as refused:
            if refused.status in _CREDENTIALS:
                raise
            raise ProtocolError(str(refused), details=refused.details) from refused

    def _without_refused_tools(self, answer: Message) -> Message:
        """Return the answer to `tools/list` without tools whose declared headers are invalid: the specification forbids their use."""
        result: Any = answer.get("result")
        if not isinstance(result, dict) or not isinstance(tools := result.get("tools"), list):
            return answer
        accepted, reasons = self._argument_headers.read_tools(tools)
        if not reasons:
            return answer
        for reason in reasons:
            self._events.log.warning("%s: %s.", self._exchange.label, reason)
        return {**answer, "result": {**result, "tools": accepted}}

    async def _request_in_session(self, message: Message, on_message: Callable[[Message], None]) -> Message:
        """Send a request of the handshake era and return its answer. If this is cancelled, so is the request on the server."""
        try:
            return await self._session.request(message, on_message)
        except asyncio.CancelledError:
            if message["method"] != "initialize":
                self._cancel(message["id"])
            raise
        except RequestRefused as refused:
            if message["method"] == "initialize" and await self._speaks_old_transport(refused.status):
                refused.args = (f"{self._exchange.label} at {self._exchange.shown_url} {_OLD_TRANSPORT}",)
            raise

    def _cancel(self, request_id: int) -> None:
        """Tell the server, in a task of its own, that a request is cancelled: the end of its stream does not."""
        told = notification("notifications/cancelled", {"requestId": request_id, "reason": "The caller has stopped waiting."})
        task = asyncio.get_running_loop().create_task(self._session.notify(told), context=Context())
        self._cancellations.add(task)
        task.add_done_callback(self._cancellations.discard)

    async def _speaks_old_transport(self, status: int) -> bool:
        """Whether a server that refuses `initialize` has the transport of revision 2024-11-05, which is found by GET."""
        if status not in (400, 404, 405):
            return False
        try:
            async with asyncio.timeout(_OLD_TRANSPORT_S):
                response = await self._exchange.send("GET", {"accept": EVENT_STREAM})
                await response.release()
        except (McpError, TimeoutError):
            return False
        return response.status == 200 and response.content_type == EVENT_STREAM


_OLD_TRANSPORT = (
    "has the transport of revision 2024-11-05 (HTTP+SSE), which callgate does not speak. Ask its operator for an address with streamable "
    "HTTP, which often ends in /mcp."
)
