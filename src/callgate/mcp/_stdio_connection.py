"""The connection to a server that is a child process: one JSON message in each line of its standard input and output.

Gives each answer to the request that waits for it. Everything else that the server writes is counted as noise, or passed on as a message of
its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from callgate._server_processes.child_process import ServerCommand
from callgate._server_processes.line_process import LineProcess
from callgate.mcp._connection import ConnectionEvents, McpError, Message, NotSent, ProtocolError
from callgate.mcp._messages import UnreadableMessage, answer_id, encoded, notification, read_message, response_fault
from callgate.mcp.server_config import McpServer

__all__ = ["StdioConnection"]

_ENDED_IDS = 1_000
_NOISE_CHARS = 120


class StdioConnection:
    """The connection to one run of a server's process."""

    can_ask = True

    def __init__(self, server: McpServer, events: ConnectionEvents) -> None:
        self._server = server
        self._events = events
        self._loop = asyncio.get_running_loop()
        command = ServerCommand(kind="MCP server", name=server.name, command=server.command, env=server.env, cwd=server.cwd)
        self._process = LineProcess(command, events.log, self)
        self.lost = self._process.lost
        self._waiting: dict[int, asyncio.Future[Message]] = {}
        self._ended: dict[int, bool] = {}
        """The requests that have ended, the latest last, and whether an answer may still come, because they were cancelled."""

    @property
    def last_words(self) -> str:
        return self._process.last_words

    async def open(self) -> None:
        await self._process.open()

    def use(self, revision: str) -> None:
        """Lines are the same in all revisions."""

    async def request(self, message: Message, on_message: Callable[[Message], None]) -> Message:
        await self._wait_until_drained(message)
        request_id: int = message["id"]
        waiting: asyncio.Future[Message] = self._loop.create_future()
        self._waiting[request_id] = waiting
        unanswered = False
        try:
            self._process.write(encoded(message))
            return await waiting
        except asyncio.CancelledError:
            unanswered = True
            if message["method"] != "initialize":
                cancelled = notification("notifications/cancelled", {"requestId": request_id, "reason": "the caller no longer waits"})
                self._process.notify(encoded(cancelled))
            raise
        finally:
            del self._waiting[request_id]
            self._ended[request_id] = unanswered
            if len(self._ended) > _ENDED_IDS:
                del self._ended[next(iter(self._ended))]

    async def _wait_until_drained(self, message: Message) -> None:
        """Wait until the server reads.

        Raises:
            NotSent: The caller of a tool no longer waits.
        """
        try:
            await self._process.wait_until_drained()
        except asyncio.CancelledError as error:
            if message["method"] != "tools/call":
                raise
            raise NotSent(f"The MCP server '{self._server.name}' did not read its input in time, so the call was not sent.") from error

    async def notify(self, message: Message) -> None:
        self._process.notify(encoded(message))

    async def close(self) -> None:
        await self._process.close()

    # Callbacks of the process

    def receive_line(self, data: bytes | bytearray) -> None:
        try:
            message = read_message(data)
        except UnreadableMessage as error:
            self._handle_unreadable(data, error)
            return
        if "method" in message:
            self._events.on_message(message)
        else:
            self._handle_answer(message)

    def handle_end(self, error: McpError) -> None:
        for waiting in self._waiting.values():
            self._fail(waiting, error)

    def _handle_unreadable(self, data: bytes | bytearray, error: UnreadableMessage) -> None:
        waiting = [self._waiting[request_id] for request_id in error.answers if request_id in self._waiting]
        for one in waiting:
            self._fail(one, ProtocolError(self._what_was_sent(f"an answer that cannot be used: {error}"), code=error.code))
        if not waiting:
            shown = bytes(data[:_NOISE_CHARS]).decode("utf-8", "backslashreplace")
            self._events.on_noise(f"a line that is not a message ({error}): {shown}")

    def _handle_answer(self, message: Message) -> None:
        request_id = answer_id(message)
        waiting = self._waiting.get(request_id) if request_id is not None else None
        if request_id is None or waiting is None or waiting.done():
            self._handle_late_answer(request_id, message)
            return
        fault = response_fault(message)
        if fault:
            self._fail(waiting, ProtocolError(self._what_was_sent(f"an answer that cannot be used: {fault}")))
        else:
            waiting.set_result(message)

    def _handle_late_answer(self, request_id: int | None, message: Message) -> None:
        """Handle an answer that no request waits for. A cancelled request may still get one."""
        if request_id is None or not self._ended.get(request_id):
            self._events.on_noise(f"a message that no request waits for, with the id {message.get('id')!r:.40}")
        if request_id in self._ended:
            self._ended[request_id] = False
        if request_id is not None and (request_id in self._ended or request_id in self._waiting):
            self._events.on_late(request_id, message)

    @staticmethod
    def _fail(waiting: asyncio.Future[Message], error: McpError) -> None:
        if not waiting.done():
            with suppress(asyncio.InvalidStateError):
                waiting.set_exception(error)

    def _what_was_sent(self, what: str) -> str:
        return f"The MCP server '{self._server.name}' sent {what}."
