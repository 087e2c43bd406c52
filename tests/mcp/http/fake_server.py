"""An HTTP server that answers exactly what a test defines, and records what it was sent."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from msgspec import Struct

__all__ = ["FakeServer", "Reply", "Sent", "result_of"]


class Sent(Struct, frozen=True):
    """One request as the server got it."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    connection: int

    @property
    def message(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.body)
        return found


def result_of(sent: Sent, **result: object) -> dict[str, Any]:
    """Return the answer to a request."""
    return {"jsonrpc": "2.0", "id": sent.message["id"], "result": result}


class Reply:
    """Writes the response to one request."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer

    async def raw(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def send(self, status: int, content_type: str, body: bytes = b"", **headers: str) -> None:
        given = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
        head = f"HTTP/1.1 {status} X\r\ncontent-type: {content_type}\r\ncontent-length: {len(body)}\r\n{given}\r\n"
        await self.raw(head.encode() + body)

    async def json(self, message: object, status: int = 200, **headers: str) -> None:
        await self.send(status, "application/json", json.dumps(message).encode(), **headers)

    async def stream(self, *texts: bytes) -> None:
        """Begin an event stream that lasts until the connection is closed."""
        await self.raw(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n" + b"".join(texts))

    async def event(self, message: object, name: str = "", event_id: str = "") -> None:
        lines = [f"event: {name}"] * bool(name) + [f"id: {event_id}"] * bool(event_id)
        lines.append(f"data: {json.dumps(message)}" if message is not None else "data:")
        await self.raw("\n".join([*lines, "", ""]).encode())

    def drop(self) -> None:
        """Close the connection without waiting for what is not sent yet."""
        self._writer.transport.abort()

    def half_close(self) -> None:
        """Write nothing more on the connection, which stays open until the client closes it."""
        self._writer.write_eof()

    def end(self) -> None:
        """Close the connection."""
        self._writer.close()

    @property
    def closed(self) -> bool:
        return self._writer.is_closing()


Answer = Callable[[Sent, Reply], Awaitable[None]]

_ACCEPT_STEPS = 10
"""Steps of the event loop in which `_accept` is called for a connection that was accepted before the server was closed."""


class FakeServer:
    """Calls `answer` for each request, at the same time for different connections.

    Args:
        answer: Writes the response.
        port: Where it listens; 0: anywhere.
        tls: Its certificate, if it speaks TLS.
    """

    def __init__(self, answer: Answer, *, port: int = 0, tls: ssl.SSLContext | None = None) -> None:
        self.answer = answer
        self._port = port
        self._tls = tls
        self.sent: list[Sent] = []
        self.closed = asyncio.Semaphore(0)
        """Released when a client closes a connection while its request is answered."""
        self.url = ""
        self._opened = 0
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def methods(self) -> list[str]:
        """The methods of HTTP, or of the messages that were posted, in order."""
        return [sent.message.get("method", "an answer") if sent.method == "POST" else sent.method for sent in self.sent]

    async def __aenter__(self) -> FakeServer:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self._port, ssl=self._tls)
        self.url = f"{'https' if self._tls else 'http'}://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/mcp"
        return self

    async def __aexit__(self, *error: object) -> None:
        self._server.close()
        for step in range(2 * _ACCEPT_STEPS):  # accepted connections become tasks, and aborted transports close their sockets
            await asyncio.sleep(0)
            if step >= _ACCEPT_STEPS and self._tasks:
                for task in self._tasks:
                    task.cancel()
                await asyncio.gather(*self._tasks, return_exceptions=True)

    async def all_closed(self) -> None:
        """Wait until no connection is open."""
        await asyncio.gather(*self._tasks)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._serve(reader, writer))
        task.add_done_callback(lambda _: writer.transport.abort())  # if it was cancelled, without waiting for the client to read
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number, self._opened = self._opened, self._opened + 1
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                while not writer.is_closing():
                    sent = await _read(reader, number)
                    self.sent.append(sent)
                    answering = asyncio.ensure_future(self.answer(sent, Reply(writer)))
                    await self._watch(answering, reader)
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    async def _watch(self, answering: asyncio.Future[None], reader: asyncio.StreamReader) -> None:
        """Wait for the answer to be written; cancel it if the client closes the connection."""
        gone = asyncio.ensure_future(_end_of(reader))
        try:
            await asyncio.wait([answering, gone], return_when=asyncio.FIRST_COMPLETED)
            if not answering.done():
                self.closed.release()
        finally:
            for task in (answering, gone):
                task.cancel()
            await asyncio.gather(answering, gone, return_exceptions=True)
        if not answering.cancelled() and (error := answering.exception()) is not None and not isinstance(error, ConnectionError):
            raise error


async def _end_of(reader: asyncio.StreamReader) -> None:
    while not reader.at_eof():
        await asyncio.sleep(0.01)


async def _read(reader: asyncio.StreamReader, connection: int) -> Sent:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    method, path, _ = head[0].split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Sent(method, path, headers, body, connection)
