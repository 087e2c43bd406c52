"""The connection to a server that is a child process: one JSON message in each line of its standard input and output.

One reader splits the output within bounds and gives each answer to the request that waits for it. Everything else that the server writes is
counted as noise, or passed on as a message of its own. A server that writes a longer line than a message may be is cut off.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from callgate.mcp._connection import ConnectionEvents, ConnectionLost, McpError, Message, NotSent, ProtocolError
from callgate.mcp._messages import MAX_MESSAGE_BYTES, UnreadableMessage, answer_id, encoded, notification, read_message, response_fault
from callgate.mcp._server_process import ProcessExit, ServerProcess
from callgate.mcp.server_config import McpServer

__all__ = ["StdioConnection"]

_UNSENT_BYTES = 1_048_576
"""The size of unsent messages above which requests wait until the server reads."""
_MOST_UNSENT_BYTES = 4_194_304
"""The size above which notifications are dropped."""
_ENDED_IDS = 1_000
_EXIT_S = 0.25
"""How long the end of the process is waited for after its output has ended, and the rest of its output after its end."""
_LEAVE_S = 1.0
"""How long a server may take to exit after its input was closed, before its processes get SIGTERM."""
_GRACE_S = 0.5
_NOISE_CHARS = 120


class StdioConnection:
    """The connection to one run of a server's process."""

    def __init__(self, server: McpServer, events: ConnectionEvents) -> None:
        self._server = server
        self._events = events
        self._loop = asyncio.get_running_loop()
        self.lost: asyncio.Future[str] = self._loop.create_future()
        self._process: ServerProcess | None = None
        self._writing: asyncio.WriteTransport | None = None
        self._reading: asyncio.ReadTransport | None = None
        self._input = _Input(self._loop, self._input_ended)
        self._waiting: dict[int, asyncio.Future[Message]] = {}
        self._ended: dict[int, None] = {}
        """Ids of requests that have ended, the latest last; an answer to one of them is late."""
        self._output_ended = False
        self._cut_off: McpError | None = None

    async def open(self) -> None:
        self._process = process = ServerProcess(self._server, self._events.log)
        process.exited.add_done_callback(self._on_exit)
        process.stderr_ended.add_done_callback(lambda _: self._end_after_exit())
        self._reading, self._writing = await process.connect(_Lines(self), self._input)
        self._writing.set_write_buffer_limits(high=_UNSENT_BYTES)
        problem = await asyncio.shield(process.begun)
        if problem:
            raise NotSent(f"The MCP server '{self._server.name}' cannot be started: {problem}.", code="cannot_start")

    def use(self, revision: str) -> None:
        """Lines are the same in all revisions."""

    async def request(self, message: Message, on_message: Callable[[Message], None]) -> Message:
        await self._input.drained()
        number: int = message["id"]
        waiting: asyncio.Future[Message] = self._loop.create_future()
        self._waiting[number] = waiting
        try:
            self._write(message)
            return await waiting
        except asyncio.CancelledError:
            if message["method"] != "initialize" and not self.lost.done():
                self._notify(notification("notifications/cancelled", {"requestId": number, "reason": "the caller no longer waits"}))
            raise
        finally:
            del self._waiting[number]
            self._ended[number] = None
            if len(self._ended) > _ENDED_IDS:
                del self._ended[next(iter(self._ended))]

    def _write(self, message: Message) -> None:
        """Write a request.

        Raises:
            NotSent: The server's input was closed before the request.
        """
        writing = self._writing
        if self.lost.done() or writing is None or writing.is_closing():
            raise NotSent(self._gone("the request was not sent"))
        unsent = writing.get_write_buffer_size()
        writing.write(encoded(message) + b"\n")
        if writing.is_closing() and not unsent:  # nobody reads the pipe any more
            raise NotSent(self._gone("the request was not sent"))

    async def notify(self, message: Message) -> None:
        self._notify(message)

    def _notify(self, message: Message) -> None:
        writing = self._writing
        if writing is None or writing.is_closing() or self.lost.done():
            return
        if writing.get_write_buffer_size() > _MOST_UNSENT_BYTES:
            self._events.log.debug("MCP server %s does not read; a notification was dropped", self._server.name)
            return
        writing.write(encoded(message) + b"\n")

    async def close(self) -> None:
        process = self._process
        if process is None:
            return
        if self._writing is not None:
            self._writing.close()
        try:
            if not process.exited.done():
                await asyncio.wait([process.exited], timeout=_LEAVE_S)
        finally:
            process.stop(_GRACE_S)
            await asyncio.shield(process.exited)
            await asyncio.shield(process.reaped)
            if self._reading is not None:
                self._reading.close()
            self._lose("it was closed")

    # What the server writes

    def line(self, data: bytes | bytearray) -> None:
        """Take one line of the server's output, without its end."""
        if not data.strip():
            return
        try:
            message = read_message(data)
        except UnreadableMessage as error:
            self._unreadable(data, error)
            return
        if "method" in message:
            self._events.on_message(message)
        else:
            self._answered(message)

    def _unreadable(self, data: bytes | bytearray, error: UnreadableMessage) -> None:
        waiting = [self._waiting[number] for number in error.answers if number in self._waiting]
        for one in waiting:
            self._fail(one, ProtocolError(self._said(f"an answer that cannot be used: {error}"), code=error.code))
        if not waiting:
            shown = bytes(data[:_NOISE_CHARS]).decode("utf-8", "backslashreplace")
            self._events.on_noise(f"a line that is no message ({error}): {shown}")

    def _answered(self, message: Message) -> None:
        number = answer_id(message)
        waiting = self._waiting.get(number) if number is not None else None
        if number is None or waiting is None or waiting.done():
            self._events.on_noise(f"a message that no request waits for, with the id {message.get('id')!r:.40}")
            if number is not None and (number in self._ended or waiting is not None):
                self._events.on_late(number, message)
            return
        fault = response_fault(message)
        if fault:
            self._fail(waiting, ProtocolError(self._said(f"an answer that cannot be used: {fault}")))
        else:
            waiting.set_result(message)

    def too_long(self) -> None:
        """Cut the server off, because it writes a line that is longer than a message may be."""
        text = self._said(f"a message of more than {MAX_MESSAGE_BYTES} bytes, so it was ended")
        self._cut_off = ProtocolError(text, code="output_too_large")
        self._lose("it wrote a message that is too long")
        if self._reading is not None:
            self._reading.close()
        if self._process is not None:
            self._process.stop(0.0)

    # The end

    def output_ended(self) -> None:
        """Handle that the server has closed its output; nothing more can be answered."""
        self._output_ended = True
        assert self._process is not None
        if self._process.exited.done():
            self._end_after_exit()
        else:
            self._loop.call_later(_EXIT_S, self._end_by_closed_pipe, "it closed its output")

    def _input_ended(self) -> None:
        """Handle that the server no longer reads its input; its last answers may still come."""
        self._loop.call_later(_EXIT_S, self._end_by_closed_pipe, "it closed its input")

    def _end_by_closed_pipe(self, why: str) -> None:
        if not self.lost.done():
            self._lose(why)
            if self._process is not None:
                self._process.stop(_GRACE_S)

    def _on_exit(self, exited: asyncio.Future[ProcessExit]) -> None:
        """Handle the end of the process; what it wrote before may still have to be read."""
        self._end_after_exit()
        self._loop.call_later(_EXIT_S, self._lose, str(exited.result()))

    def _end_after_exit(self) -> None:
        """End the connection once everything is read that the process wrote before its end."""
        process = self._process
        if process is not None and process.exited.done() and process.stderr_ended.done() and self._output_ended:
            self._lose(str(process.exited.result()))

    def _lose(self, why: str) -> None:
        if self.lost.done():
            return
        words = self._process.last_words if self._process is not None else ""
        self.lost.set_result(why if not words else f"{why}; the end of its stderr: {words}")
        for waiting in self._waiting.values():
            self._fail(waiting, self._cut_off or ConnectionLost(self._gone(f"it ended before it answered: {why}"), details={"end": why}))
        if self._writing is not None:
            self._writing.close()
        self._input.ended()

    @staticmethod
    def _fail(waiting: asyncio.Future[Message], error: McpError) -> None:
        if not waiting.done():
            with suppress(asyncio.InvalidStateError):
                waiting.set_exception(error)

    def _said(self, what: str) -> str:
        return f"The MCP server '{self._server.name}' sent {what}."

    def _gone(self, what: str) -> str:
        return f"The MCP server '{self._server.name}' is gone: {what}."


class _Input(asyncio.BaseProtocol):
    """The flow control of the server's input."""

    def __init__(self, loop: asyncio.AbstractEventLoop, on_broken: Callable[[], None]) -> None:
        self._loop = loop
        self._on_broken = on_broken
        self._room: asyncio.Future[None] | None = None

    def pause_writing(self) -> None:
        self._room = self._loop.create_future()

    def resume_writing(self) -> None:
        self.ended()

    def connection_lost(self, error: Exception | None) -> None:
        if error is not None:
            self._on_broken()

    def ended(self) -> None:
        """Wake everybody who waits, because there is room again or never will be."""
        if self._room is not None and not self._room.done():
            self._room.set_result(None)
        self._room = None

    async def drained(self) -> None:
        """Wait until the server has read enough of what was written."""
        while self._room is not None:
            await asyncio.shield(self._room)


class _Lines(asyncio.Protocol):
    """Splits the server's output into lines, with bounded memory."""

    def __init__(self, connection: StdioConnection) -> None:
        self._connection = connection
        self._rest = bytearray()
        self._closed = False

    def data_received(self, data: bytes) -> None:
        if self._closed:
            return
        start = 0
        while (end := data.find(b"\n", start)) >= 0:
            if self._rest:
                self._rest += data[start:end]
                whole, self._rest = self._rest, bytearray()
                if len(whole) > MAX_MESSAGE_BYTES:
                    self._overflow()
                    return
                self._connection.line(whole)
            else:
                self._connection.line(data[start:end])
            start = end + 1
        self._rest += data[start:]
        if len(self._rest) > MAX_MESSAGE_BYTES:
            self._overflow()

    def _overflow(self) -> None:
        self._closed = True
        self._rest = bytearray()
        self._connection.too_long()

    def connection_lost(self, error: Exception | None) -> None:
        self._connection.output_ended()
