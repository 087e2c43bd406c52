"""Requests with a simple head that arrives at once, as nearly all do, and their responses, without h11; see `mcp/_http1_heads.py`."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, cast

import h11
from msgspec import Struct
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl
from uvicorn.protocols.http.h11_impl import STATUS_PHRASES, RequestResponseCycle

from callgate.mcp._http1_heads import is_simple, simple_head

if TYPE_CHECKING:
    from uvicorn._types import ASGIReceiveEvent, ASGISendEvent

__all__ = ["SimpleBody", "SimpleCycle", "SimpleRequest", "simple_request"]

_REQUEST_LINE: Final = re.compile(rb"POST (/[!-$&->@-~]*) HTTP/1\.1")
"""With a path that has neither a query nor quoted characters."""
_NO_BODY: Final = frozenset({204, 304})


class SimpleRequest(Struct, frozen=True, eq=False):
    """A request whose method is POST."""

    path: bytes
    headers: list[tuple[bytes, bytes]]
    body: bytes
    """The part of it that has arrived."""
    body_bytes: int
    """The length of the whole body."""


def simple_request(data: bytes, max_head_bytes: int) -> SimpleRequest | None:
    """Return the request that `data` is or begins; None if its head is not whole or not simple, or if more follows the request."""
    head = simple_head(data, max_head_bytes)
    if head is None or head.body_bytes is None or len(data) - head.size_bytes > head.body_bytes:
        return None
    line = _REQUEST_LINE.fullmatch(head.first_line)
    if line is None or b"host" not in head.headers or b"expect" in head.headers:
        return None
    return SimpleRequest(line[1], list(head.headers.items()), data[head.size_bytes :], head.body_bytes)


class SimpleBody:
    """What follows the head of a simple request: its body, and nothing more until the client has gone.

    Implements ASGI's `receive`, and the part of uvicorn's message event that signals the end.
    """

    def __init__(self, body_bytes: int, flow: FlowControl) -> None:
        self.left_bytes = body_bytes
        """How much of the body has not arrived."""
        self._flow = flow
        self._unread = bytearray()
        self._read = self._ended = False
        self._changed: asyncio.Event | None = None
        self._on_disconnect: Callable[[], None] | None = None

    def feed(self, data: bytes) -> bytes:
        """Take a part of the body; return what follows the body."""
        taken = data[: self.left_bytes]
        self.left_bytes -= len(taken)
        if not self._ended:
            self._unread += taken
            if len(self._unread) > HIGH_WATER_LIMIT:
                self._flow.pause_reading()
            self._wake()
        return data[len(taken) :]

    async def __call__(self) -> ASGIReceiveEvent:
        while not self._ended and (self._read or (self.left_bytes and not self._unread)):
            self._flow.resume_reading()
            self._changed = self._changed or asyncio.Event()
            await self._changed.wait()
        if self._ended:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": self.take(), "more_body": not self._read}

    def take(self) -> bytes:
        """Return what has arrived of the body and was not taken."""
        data, self._unread = bytes(self._unread), bytearray()
        self._read = not self.left_bytes
        return data

    def on_disconnect(self, call: Callable[[], None] | None) -> None:
        """Call a function when the client goes away before the response is complete; None: call no function."""
        self._on_disconnect = call
        if call is not None:
            self._flow.resume_reading()
        if call is not None and self._ended:
            call()

    def complete(self) -> None:
        """Note that the response is complete."""
        self._on_disconnect = None
        self.set()

    def set(self) -> None:
        """Note that nothing more arrives, or that it no longer matters."""
        self._ended = True
        self._unread.clear()
        self._wake()
        if self._on_disconnect is not None:
            self._on_disconnect()

    def _wake(self) -> None:
        changed, self._changed = self._changed, None
        if changed is not None:
            changed.set()


class SimpleCycle(RequestResponseCycle):
    """A simple request and its response.

    Args:
        body: The body of the request.
        write: Sends bytes at once.
    """

    def __init__(self, body: SimpleBody, write: Callable[[bytes], None], **options: Any) -> None:
        super().__init__(message_event=cast(asyncio.Event, body), **options)  # it only sets it
        self.incoming = body
        self._write = write
        self._head = b""
        """What has not been sent of the head, because the beginning of the body goes with it."""
        self._left_bytes: int | None = None
        """How much of the body is still to be sent; None if it is sent in chunks."""
        self._closes = False

    @property
    def receive(self) -> SimpleBody:
        return self.incoming

    async def send(self, message: ASGISendEvent) -> None:
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        if self.disconnected:
            return
        if message["type"] == "http.response.start" and not self.response_started:
            self._start(message["status"], [*self.default_headers, *message.get("headers", ())])
            self.response_started = True
        elif message["type"] == "http.response.body" and self.response_started and not self.response_complete:
            self._continue(message.get("body", b""), more=message.get("more_body", False))
        else:
            raise RuntimeError(f"The application sent {message['type']} where the response does not have it.")
        if self.response_complete:
            if self._closes or not self.keep_alive:
                self.transport.close()
            self.on_response()

    def _start(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        """Write the head.

        Raises:
            h11.LocalProtocolError: A header cannot be sent.
        """
        given = dict(headers)
        self._closes = given.get(b"connection") == b"close"
        self._left_bytes = 0 if status in _NO_BODY else int(given[b"content-length"]) if b"content-length" in given else None
        if self._left_bytes is None:
            headers.append((b"transfer-encoding", b"chunked"))
        lines = b"".join([b"%b: %b\r\n" % header for header in headers])
        self._head = b"HTTP/1.1 %d %b\r\n%b\r\n" % (status, STATUS_PHRASES[status], lines)
        if not is_simple(self._head, len(headers)):
            h11.Response(status_code=status, headers=headers)  # which refuses what must not be sent

    def _continue(self, body: bytes, *, more: bool) -> None:
        """Write a part of the body, or the last one."""
        if self._left_bytes is None:
            data = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
            data += b"" if more else b"0\r\n\r\n"
        else:
            data = body
            self._left_bytes -= len(body)
            if self._left_bytes < 0 or (self._left_bytes and not more):
                raise RuntimeError("The body of the response has not the length that its head says.")
        self._write(self._head + data)
        self._head = b""
        if not more:
            self.response_complete = True
            self.incoming.complete()
