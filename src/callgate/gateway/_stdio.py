"""The stdio transport: one client at the other end of standard input and output, one message in each line.

The first request shows the era of the client; a later one may be of the other era, because a client may ask for the revision first. Nothing
but messages may be written to standard output, so what the process prints goes to standard error from then on. All answers are written
to it, so an id that a running request of either era has is refused.
"""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from contextvars import Context
from typing import Any, BinaryIO, Literal

from callgate._server_processes.line_process import MAX_LINE_BYTES
from callgate._server_processes.protocol_streams import protocol_streams
from callgate.gateway._client_messages import RefusedMessage, kind_of, read_client_message, refusal, request_id
from callgate.gateway._exchange import Front
from callgate.gateway._input_lines import LongLine, next_line
from callgate.gateway._request_tasks import duplicate_id
from callgate.gateway.gateway import Gateway
from callgate.gateway.principals import LOCAL, Principal
from callgate.mcp._connection import Message
from callgate.mcp._messages import INVALID_REQUEST, RpcError, encoded, error_answer

__all__ = ["serve_stdio"]

_BUFFER_BYTES = 16_777_216
"""What may wait to be written; a client that reads so slowly gets no more notifications."""
_LAST_ANSWERS_S = 1.0
"""Seconds for the answers that are not written yet when the client has closed its end."""
_TOO_LONG = f"it has more than {MAX_LINE_BYTES} bytes, which is the limit"
_REVISION = "io.modelcontextprotocol/protocolVersion"


async def serve_stdio(gateway: Gateway, principal: Principal = LOCAL, *, streams: tuple[BinaryIO, BinaryIO] | None = None) -> None:
    """Serve the client at standard input and output, until it closes its end.

    Args:
        streams: The input and the output, if `protocol_streams` has taken them already, so that what was printed since then is not between
            the messages. None: take them now.
    """
    with protocol_streams() if streams is None else nullcontext(streams) as (reading, writing):
        await _StdioServer(gateway, principal, writing).run(reading)


class _Written(asyncio.BaseProtocol):
    """Shows when everything has been written, or the client is gone."""

    def __init__(self) -> None:
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed.set_result(None)


class _StdioServer:
    """Serves one client. Implements `Exchange`: all requests share standard output."""

    def __init__(self, gateway: Gateway, principal: Principal, writing: BinaryIO) -> None:
        self.transport: Literal["pipe"] = "pipe"
        self.session_id = ""
        self._gateway = gateway
        self._handshake = gateway.handshake(principal, self)
        self._stateless = gateway.stateless(principal)
        self._writing = writing
        self._loop = asyncio.get_running_loop()
        self._tasks: dict[object, asyncio.Task[None]] = {}
        """The tasks that answer requests, by the id of the request."""

    async def run(self, reading: BinaryIO) -> None:
        lines = asyncio.StreamReader(limit=MAX_LINE_BYTES)
        await self._loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), reading)
        self._output, written = await self._loop.connect_write_pipe(_Written, self._writing)
        written.closed.add_done_callback(lambda _: lines.feed_eof())
        try:
            while line := await next_line(lines):
                self._take(line)
            if self._tasks:
                await self._gateway.start()  # a script may close its end while its requests wait for the servers
            if self._tasks:
                await asyncio.wait(self._tasks.values(), timeout=_LAST_ANSWERS_S)
        finally:
            await self._handshake.close()
            await self._stateless.close()
            self._output.close()
            await asyncio.wait((written.closed,), timeout=_LAST_ANSWERS_S)

    def send(self, message: Message) -> bool:
        if self._output.is_closing() or self._output.get_write_buffer_size() > _BUFFER_BYTES:
            return False
        self._write(message)
        return True

    def _write(self, message: Message) -> None:
        if not self._output.is_closing():
            self._output.write(encoded(message) + b"\n")

    def _take(self, line: bytes | LongLine) -> None:
        """Take one line of the client."""
        if isinstance(line, bytes) and not line.strip():
            return
        try:
            message = read_client_message(line) if isinstance(line, bytes) else refusal(line.members(), _TOO_LONG)
        except RefusedMessage as error:
            self._write(error_answer(error.number, RpcError(error.code, f"The line is refused: {error}.")))
            return
        match kind_of(message):
            case "request":
                self._start(message, self._stateless if _is_stateless(message) else self._handshake)
            case "response":
                self._handshake.response(message)
            case "notification":
                for front in (self._handshake, self._stateless):
                    front.notification(message)
            case _:
                told = RpcError(INVALID_REQUEST, "The line is no JSON-RPC 2.0 message with a valid id.")
                self._write(error_answer(request_id(message), told))

    def _start(self, message: Message, front: Front) -> None:
        number = message["id"]
        if number in self._tasks:
            self._write(duplicate_id(number))
            return
        self._tasks[number] = self._loop.create_task(self._answer(message, front), context=Context())

    async def _answer(self, message: Message, front: Front) -> None:
        try:
            response = await front.request(message, self)
            if response is not None:
                self._write(response)
        finally:
            del self._tasks[message["id"]]


def _is_stateless(message: Message) -> bool:
    """Return whether a request is of the stateless era, in which each names its revision."""
    params = message.get("params")
    meta: Any = params.get("_meta") if isinstance(params, dict) else None
    return message["method"] in ("server/discover", "subscriptions/listen") or (isinstance(meta, dict) and _REVISION in meta)
