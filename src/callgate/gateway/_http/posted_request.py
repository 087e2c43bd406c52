"""Answer one request over HTTP: as JSON, or as an event stream if the front sends something before its response. Knows no era."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextvars import Context
from typing import Any, Literal

from callgate.gateway._exchange import Front
from callgate.gateway._http.streams import EventBuffer, Receive, Send, send_body, send_events
from callgate.gateway._http.watched_clients import watch_client
from callgate.gateway._http_limits import HttpLimits
from callgate.gateway._requests.cancellable_requests import WHY_ENDED
from callgate.gateway.principals import Principal
from callgate.mcp._connection import Message
from callgate.mcp._messages import INTERNAL_ERROR, RpcError, encoded, error_answer

__all__ = ["PostedRequest"]

_LOG = logging.getLogger("callgate.gateway")
_STATUS = {-32700: 400, -32600: 400, -32602: 400, -32601: 404, -32020: 400, -32021: 400, -32022: 400}


class PostedRequest:
    """A request that is being answered. Its `Exchange`: the first message that is sent makes an event stream of the response.

    Args:
        stateless: Whether the client cancels by closing the stream, and errors have their own status.
        session_id: The session of the handshake era; empty if there is none.
    """

    def __init__(
        self,
        front: Front,
        principal: Principal,
        message: Mapping[str, Any],
        receive: Receive,
        send: Send,
        limits: HttpLimits,
        *,
        stateless: bool,
        session_id: str = "",
    ) -> None:
        self.principal = principal
        self.transport: Literal["tcp"] = "tcp"
        self.session_id = session_id
        self._front, self._message, self._stateless = front, message, stateless
        self._receive, self._send, self._limits = receive, send, limits
        self._buffer = EventBuffer(limits)
        self._stream: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None

    def send(self, message: Message) -> bool:
        if self._stream is None:
            sending = send_events(self._send, self._buffer, self._limits)
            # A context of its own: inherited from a tool that reports progress, the task would count as one that the tool has left running.
            self._stream = asyncio.get_running_loop().create_task(sending, context=Context())
        return self._buffer.send(message)

    async def answer(self) -> None:
        """Answer the request with the front, and send the response."""
        watch = watch_client(self._receive, self._client_gone)
        try:
            response = await self._response()
            if self._stream is None:
                await send_body(self._send, self._status(response), b"" if response is None else encoded(response))
            else:
                self._buffer.close(response)
                await self._stream
        finally:
            watch.cancel()
            for task in (self._closing, self._stream):
                if task is not None:
                    task.cancel()

    async def cancel(self) -> None:
        """Cancel the request, because the server stops. Its client is told."""
        await self._front.close()

    async def _response(self) -> Message | None:
        request_id = self._message["id"]
        try:
            return await self._front.request(self._message, self)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            while task is not None and task.uncancel():
                pass
            return error_answer(request_id, RpcError(INTERNAL_ERROR, f"The request was ended, {WHY_ENDED}."))
        except Exception:
            _LOG.exception("a request failed inside of the gateway")
            return error_answer(request_id, RpcError(INTERNAL_ERROR, "The gateway failed to answer. Its log says why."))

    def _client_gone(self) -> None:
        self._buffer.close()
        if self._stateless:
            self._closing = asyncio.create_task(self._front.close())

    def _status(self, response: Message | None) -> int:
        if response is None:
            return 202
        error = response.get("error")
        if response["id"] is None:
            return 400
        return _STATUS.get(error["code"], 200) if self._stateless and error is not None else 200
