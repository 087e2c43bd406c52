"""A server's process that exchanges lines: one message in each line of its standard input and output.

The output is split within bounds, and a server that writes a longer line than a message may be is cut off. What it wrote before its end is
read before its end is reported. Knows no message: a receiver gets the lines.
"""

from __future__ import annotations

import asyncio
from codecs import BOM_UTF8
from collections.abc import Callable
from typing import Protocol

from callgate._secret_redaction import RedactedLog
from callgate._server_processes.child_process import ProcessExit, ServerCommand, ServerProcess, cannot_start
from callgate._server_processes.server_errors import ConnectionLost, NotSent, ProtocolError, ToolServerError

__all__ = ["MAX_LINE_BYTES", "LineProcess", "ReceivesLines"]

MAX_LINE_BYTES = 10_485_760
"""The longest line of a server."""
_UNSENT_BYTES = 1_048_576
"""The size of unsent lines above which requests wait until the server reads."""
_MOST_UNSENT_BYTES = 4_194_304
"""The size of unsent lines above which notifications are dropped."""
_EXIT_S = 0.25
"""How long the end of the process is waited for after its output has ended, and the rest of its output after its end."""
_LEAVE_S = 1.0
"""How long a server may take to exit after its input was closed, before its processes get SIGTERM."""
_GRACE_S = 0.5


class ReceivesLines(Protocol):
    """What gets the lines that a server writes."""

    def receive_line(self, data: bytes | bytearray) -> None:
        """Process one line of the server's output: not empty, and without its end."""
        ...

    def handle_end(self, error: ToolServerError) -> None:
        """Handle that nothing more can be answered, called once. `error` is for the requests that wait."""
        ...


class LineProcess:
    """One run of a server's process."""

    def __init__(self, server: ServerCommand, log: RedactedLog, receiver: ReceivesLines) -> None:
        self._server = server
        self._log = log
        self._receiver = receiver
        self._loop = asyncio.get_running_loop()
        self.lost: asyncio.Future[str] = self._loop.create_future()
        """Done, with the reason as a sentence, when nothing more can be answered."""
        self.last_words = ""
        """The end of its standard error once it is lost, for the log and the operator, not for a model."""
        self._process: ServerProcess | None = None
        self._writing: asyncio.WriteTransport | None = None
        self._reading: asyncio.ReadTransport | None = None
        self._input = _Input(self._loop, self._on_input_end)
        self._output_ended = False
        self._cut_off: ToolServerError | None = None

    async def open(self) -> None:
        """Start the process.

        Raises:
            NotSent: It cannot be started.
        """
        self._process = process = ServerProcess(self._server, self._log)
        process.exited.add_done_callback(self._on_exit)
        process.stderr_ended.add_done_callback(lambda _: self._end_after_exit())
        self._reading, self._writing = await process.connect(
            _Lines(self._receive_line, self._cut_off_server, self._handle_output_end), self._input
        )
        self._writing.set_write_buffer_limits(high=_UNSENT_BYTES)
        problem = await asyncio.shield(process.begun)
        if problem:
            raise cannot_start(self._server, problem)

    async def wait_until_drained(self) -> None:
        """Wait until the server has read enough of what was written."""
        await self._input.wait_until_drained()

    def write(self, data: bytes) -> None:
        """Write a line, whose end is added.

        Raises:
            NotSent: The server's input was closed before.
        """
        writing = self._writing
        if self.lost.done() or writing is None or writing.is_closing():
            raise NotSent(self._gone_text("the request was not sent"))
        unsent = writing.get_write_buffer_size()
        writing.write(data + b"\n")
        if writing.is_closing() and not unsent:  # the pipe has no reader any more
            raise NotSent(self._gone_text("the request was not sent"))

    def notify(self, data: bytes) -> None:
        """Write a line that needs no answer. It is dropped if the server does not read or is gone."""
        writing = self._writing
        if writing is None or writing.is_closing() or self.lost.done():
            return
        if writing.get_write_buffer_size() > _MOST_UNSENT_BYTES:
            self._log.debug("%s does not read; a notification was dropped", self._server)
            return
        writing.write(data + b"\n")

    async def close(self, leave_s: float = _LEAVE_S) -> None:
        """Close the input, and end the process with all that it has started, in bounded time. Idempotent.

        Args:
            leave_s: How long it may take to exit, before its processes get SIGTERM.
        """
        process = self._process
        if process is None:
            return
        if self._writing is not None:
            self._writing.close()
        try:
            if not process.exited.done():
                await asyncio.wait([process.exited], timeout=leave_s)
        finally:
            process.stop(_GRACE_S)
            await asyncio.shield(process.exited)
            await asyncio.shield(process.reaped)
            if self._reading is not None:
                self._reading.close()
            self._lose("it was closed")

    # Output of the process

    def _receive_line(self, data: bytes | bytearray) -> None:
        if data.strip():
            self._receiver.receive_line(data)

    def _cut_off_server(self) -> None:
        """Cut the server off, because it writes a line that is longer than a message may be."""
        text = f"The {self._server} sent a message of more than {MAX_LINE_BYTES} bytes, so it was ended."
        self._cut_off = ProtocolError(text, code="output_too_large")
        self._lose("it wrote a message that is too long")
        if self._reading is not None:
            self._reading.close()
        if self._process is not None:
            self._process.stop(0.0)

    def _handle_output_end(self) -> None:
        """Handle that the server has closed its output; nothing more can be answered."""
        self._output_ended = True
        assert self._process is not None
        if self._process.exited.done():
            self._end_after_exit()
        else:
            self._loop.call_later(_EXIT_S, self._end_by_closed_pipe, "it closed its output")

    # The end

    def _on_input_end(self) -> None:
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
        self.last_words = self._process.last_words if self._process is not None else ""
        details: dict[str, object] = {"end": why}
        if self.last_words:
            details["stderr"] = self.last_words
        self.lost.set_result(why)
        self._receiver.handle_end(self._cut_off or ConnectionLost(self._gone_text(f"it ended before it answered: {why}"), details=details))
        if self._writing is not None:
            self._writing.close()
        self._input.wake_writers()

    def _gone_text(self, what: str) -> str:
        return f"The {self._server} is gone: {what}."


class _Input(asyncio.BaseProtocol):
    """The flow control of the server's input."""

    def __init__(self, loop: asyncio.AbstractEventLoop, on_broken: Callable[[], None]) -> None:
        self._loop = loop
        self._on_broken = on_broken
        self._room: asyncio.Future[None] | None = None

    def pause_writing(self) -> None:
        self._room = self._loop.create_future()

    def resume_writing(self) -> None:
        self.wake_writers()

    def connection_lost(self, error: Exception | None) -> None:
        if error is not None:
            self._on_broken()

    def wake_writers(self) -> None:
        """Wake all tasks that wait to write: the pipe has space again, or is closed."""
        if self._room is not None and not self._room.done():
            self._room.set_result(None)
        self._room = None

    async def wait_until_drained(self) -> None:
        """Wait until the server has read enough of what was written."""
        while self._room is not None:
            await asyncio.shield(self._room)


class _Lines(asyncio.Protocol):
    """Splits the server's output into lines, with bounded memory, without a byte order mark at its start.

    Args:
        on_line: Called with each line, which may be empty.
        on_too_long: Called when a line is longer than a message may be; nothing is read after it.
        on_end: Called when the output has ended.
    """

    def __init__(self, on_line: Callable[[bytes | bytearray], None], on_too_long: Callable[[], None], on_end: Callable[[], None]) -> None:
        self._on_line = on_line
        self._on_too_long = on_too_long
        self._on_end = on_end
        self._rest = bytearray()
        self._begun = self._closed = False

    def data_received(self, data: bytes) -> None:
        if self._closed:
            return
        start = 0
        while (end := data.find(b"\n", start)) >= 0:
            if self._rest:
                self._rest += data[start:end]
                whole, self._rest = self._rest, bytearray()
                if len(whole) > MAX_LINE_BYTES:
                    self._overflow()
                    return
                self._take(whole)
            else:
                self._take(data[start:end])
            start = end + 1
        self._rest += data[start:]
        if len(self._rest) > MAX_LINE_BYTES:
            self._overflow()

    def _take(self, line: bytes | bytearray) -> None:
        if not self._begun:
            self._begun, line = True, line.removeprefix(BOM_UTF8)
        self._on_line(line)

    def _overflow(self) -> None:
        self._closed = True
        self._rest = bytearray()
        self._on_too_long()

    def connection_lost(self, error: Exception | None) -> None:
        self._on_end()
