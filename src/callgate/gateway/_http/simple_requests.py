"""Requests that have a simple head and come whole, as nearly all do, and their responses, without h11; see `_http1_heads.py`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import h11
from msgspec import Struct
from uvicorn.protocols.http.h11_impl import STATUS_PHRASES, RequestResponseCycle

from callgate.mcp._http1_heads import is_simple, simple_head

if TYPE_CHECKING:
    from uvicorn._types import ASGISendEvent

__all__ = ["SimpleCycle", "SimpleRequest", "simple_request"]

_REQUEST_LINE: Final = re.compile(rb"POST (/[!-$&->@-~]*) HTTP/1\.1")
"""Of a path that has neither a query nor anything quoted."""
_NO_BODY: Final = frozenset({204, 304})


class SimpleRequest(Struct, frozen=True, eq=False):
    """A request whose method is POST."""

    path: bytes
    headers: list[tuple[bytes, bytes]]
    body: bytes


def simple_request(data: bytes, max_head_bytes: int) -> SimpleRequest | None:
    """Return the request that `data` is; None if it is not whole, more than one, or not simple."""
    head = simple_head(data, max_head_bytes)
    if head is None or b"host" not in head.headers or head.body_bytes != len(data) - head.size_bytes:
        return None
    line = _REQUEST_LINE.fullmatch(head.first_line)
    return None if line is None else SimpleRequest(line[1], list(head.headers.items()), data[head.size_bytes :])


class SimpleCycle(RequestResponseCycle):
    """A simple request and its response.

    Args:
        body: The whole body of the request.
        write: Sends bytes at once.
    """

    def __init__(self, body: bytes, write: Callable[[bytes], None], **options: Any) -> None:
        super().__init__(**options)
        self.body = bytearray(body)
        self.more_body = False
        self.message_event.set()
        self._write = write
        self._head = b""
        """What has not been sent of the head, because the beginning of the body goes with it."""
        self._left_bytes: int | None = None
        """How much of the body is still to be sent; None if it is sent in chunks."""
        self._closes = False

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
            self.message_event.set()
