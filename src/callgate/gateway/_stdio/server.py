"""The stdio transport: one client at the other end of standard input and output, one message in each line.

The first request shows the era of the client; a later one may be of the other era, because a client may ask for the revision first. Nothing
but messages may be written to standard output, so what the process prints goes to standard error from then on. All answers are written
to it, so an id that a running request of either era has is refused. While the client leaves much unread, its requests wait; see
`held_requests.py`.
"""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from contextvars import Context
from typing import Any, BinaryIO, Literal

from callgate._server_processes.line_process import MAX_LINE_BYTES
from callgate._server_processes.protocol_streams import protocol_streams
from callgate.gateway._client_messages import RefusedMessage, kind_of, read_client_message, read_request_id, refusal
from callgate.gateway._exchange import Front
from callgate.gateway._requests.cancellable_requests import duplicate_id
from callgate.gateway._stdio.held_requests import HeldRequests
from callgate.gateway._stdio.input_lines import LongLine, next_line
from callgate.gateway.gateway import Gateway
from callgate.gateway.principals import LOCAL, Principal
from callgate.mcp._connection import Message
from callgate.mcp._messages import INVALID_REQUEST, RpcError, encoded, error_answer

__all__ = ["serve_stdio"]

_BUFFER_BYTES = 16_777_216
"""What may wait to be written; while a client has left more unread, it gets no notifications, and none of its requests is started."""
_LAST_ANSWERS_S = 1.0
"""Seconds for the answers that are not written yet when the client has closed its end; again as long as it reads `_PROGRESS_BYTES`."""
_HELD_ANSWERS_S = 10.0
"""The same if requests wait until it has read, because it has written them all at once and may only now begin to read."""
_PROGRESS_BYTES = 65_536
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
    """Shows when everything has been written, or the client is gone, and whether it leaves too much unread."""

    def __init__(self, held: HeldRequests) -> None:
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._held = held

    def pause_writing(self) -> None:
        self._held.pause()

    def resume_writing(self) -> None:
        self._held.resume()

    def connection_lost(self, exc: Exception | None) -> None:
        self._held.close()
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
        self._written_bytes = 0
        """The size of all messages to the client."""
        self._held = HeldRequests(self._start_held, lambda: self._output.get_write_buffer_size())

    async def run(self, reading: BinaryIO) -> None:
        lines = asyncio.StreamReader(limit=MAX_LINE_BYTES)
        await self._loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), reading)
        self._output, written = await self._loop.connect_write_pipe(lambda: _Written(self._held), self._writing)
        self._output.set_write_buffer_limits(high=_BUFFER_BYTES)
        written.closed.add_done_callback(lambda _: lines.feed_eof())
        is_patient = False
        try:
            while not written.closed.done() and (line := await next_line(lines)):
                self._take(line)
                await self._held.wait_for_room()
            await self._answer_last()
            is_patient = True
        finally:
            self._held.close()
            await self._handshake.close()
            await self._stateless.close()
            self._output.close()
            while await self._reads_on(written.closed, _LAST_ANSWERS_S) and is_patient and not written.closed.done():
                pass

    async def _answer_last(self) -> None:
        """Answer what the client has asked for before it closed its end, for a moment, or as long as it reads."""
        if self._tasks:
            await self._gateway.start()  # a script may close its end while its requests wait for the servers
        quiet_s = _HELD_ANSWERS_S if self._held else _LAST_ANSWERS_S
        answering = self._loop.create_task(self._wait_all_answered())
        while not answering.done() and await self._reads_on(answering, quiet_s):
            pass
        answering.cancel()

    async def _wait_all_answered(self) -> None:
        await self._held.none_left.wait()
        if self._tasks:
            await asyncio.wait(self._tasks.values())

    async def _reads_on(self, end: asyncio.Future[Any], quiet_s: float) -> bool:
        """Wait for this time, or until `end` is done. Return whether the client has read meanwhile."""
        read_bytes, held = self._read_bytes, len(self._held)
        await asyncio.wait((end,), timeout=quiet_s)
        return len(self._held) < held or self._read_bytes >= read_bytes + _PROGRESS_BYTES

    @property
    def _read_bytes(self) -> int:
        """How much the client has read until now, including what is in the pipe."""
        return self._written_bytes - self._output.get_write_buffer_size()

    def send(self, message: Message) -> bool:
        if self._output.is_closing() or self._output.get_write_buffer_size() > _BUFFER_BYTES:
            return False
        self._write(message)
        return True

    def _write(self, message: Message) -> None:
        if not self._output.is_closing():
            line = encoded(message) + b"\n"
            self._written_bytes += len(line)
            self._output.write(line)

    def _take(self, line: bytes | LongLine) -> None:
        """Take one line of the client."""
        if isinstance(line, bytes) and not line.strip():
            return
        try:
            message = read_client_message(line) if isinstance(line, bytes) else refusal(line.members(), _TOO_LONG)
        except RefusedMessage as error:
            self._refuse(error_answer(error.request_id, RpcError(error.code, f"The line is refused: {error}.")))
            return
        match kind_of(message):
            case "request":
                self._take_request(message, len(line) if isinstance(line, bytes) else MAX_LINE_BYTES)
            case "response":
                self._handshake.response(message)
            case "notification":
                self._take_notification(message)
            case _:
                invalid = RpcError(INVALID_REQUEST, "The line is not a JSON-RPC 2.0 message with a valid id.")
                self._refuse(error_answer(read_request_id(message), invalid))

    def _refuse(self, response: Message) -> None:
        self._held.note_small()
        self._write(response)

    def _take_request(self, message: Message, size_bytes: int) -> None:
        request_id = message["id"]
        if request_id in self._tasks or request_id in self._held:
            self._refuse(duplicate_id(request_id))
        elif message["method"] == "ping":
            self._held.note_small()
            self._start(message)
        else:
            self._held.take(message, size_bytes)

    def _take_notification(self, message: Message) -> None:
        params = message.get("params")
        request_id = params.get("requestId") if isinstance(params, dict) and message["method"] == "notifications/cancelled" else None
        if isinstance(request_id, (int, str)) and self._held.withdraw(request_id):
            return
        for front in (self._handshake, self._stateless):
            front.notification(message)

    def _start_held(self, message: Message) -> None:
        self._start(message).add_done_callback(lambda _: self._held.note_answered())

    def _start(self, message: Message) -> asyncio.Task[None]:
        front = self._stateless if _is_stateless(message) else self._handshake
        task = self._tasks[message["id"]] = self._loop.create_task(self._answer(message, front), context=Context())
        return task

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
