"""A connection to an HTTP/1.1 server: one request at a time, over one socket that is kept for the next request.

What is valid HTTP is decided by h11, as it is beneath httpx2, whose layers above it took half of a gateway's time for a call; see
`_http1_messages.py`. A connection is used again only if the server has neither ended it nor sent bytes that belong to no request: they
would be read as the next response, which may belong to another conversation. Errors are those of httpx2. Knows nothing of redirects,
proxies and MCP.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from callgate.mcp._http1_messages import ClientMessages, ResponseHead, UnreadableResponse, UnsendableRequest
from callgate.mcp._tcp_connect import connect_tcp
from callgate.models._connection_closing import close_transport
from callgate.models._http_clients import import_httpx2, tls_context

if TYPE_CHECKING:
    import httpx2

__all__ = ["Http1Connection", "Http1Response"]

_PARTS_IN_TURN: Final = 16
"""How many parts of responses are read before other tasks can run. Most responses have three."""
_SMALL_PARTS_BYTES: Final = 16 * 1024
_SMALL_PARTS_PAUSE_S: Final = 0.005
"""The pause after `_PARTS_IN_TURN` parts that together are smaller than `_SMALL_PARTS_BYTES`. Without it, a server that sends tiny parts
without end would use the whole processor, and other threads would wait for the interpreter lock.
"""

_MAX_UNREAD_BYTES: Final = 256 * 1024
"""The number of bytes of a response above which the socket is not read until they are taken."""


class Http1Connection:
    """Implements `PooledConnection` for requests to one origin. Connects with the first request, and again when the server has ended it.

    Args:
        connect_s: Seconds for the name lookup, the connection and the TLS handshake together.
    """

    def __init__(self, connect_s: float) -> None:
        self._connect_s = connect_s
        self._socket: _Socket | None = None
        self._closed = False

    async def send(self, method: str, url: httpx2.URL, headers: Mapping[str, str], body: bytes) -> Http1Response:
        socket = self._socket
        if socket is None or not socket.reusable():
            self._drop()
            socket = await self._connect(url)
            if self._closed:  # meanwhile
                socket.close()
                raise import_httpx2().ConnectError("the connection was closed")
            self._socket = socket
        return await socket.request(method, url, headers, body)

    async def close(self) -> None:
        self._closed = True
        self._drop()

    def _drop(self) -> None:
        socket, self._socket = self._socket, None
        if socket is not None:
            socket.close()

    async def _connect(self, url: httpx2.URL) -> _Socket:
        httpx2 = import_httpx2()
        tls = url.scheme == "https"
        host = url.raw_host.decode("ascii")
        if not host or url.scheme not in ("http", "https"):
            raise httpx2.UnsupportedProtocol("the address must begin with http:// or https:// and a host")
        try:
            async with asyncio.timeout(self._connect_s):
                return await _open(host, url.port or (443 if tls else 80), tls=tls)
        except TimeoutError as error:
            raise httpx2.ConnectTimeout(str(error)) from error
        except (
            OSError,
            RuntimeError,
            ValueError,
        ) as error:  # no thread for the name lookup; no possible name
            raise httpx2.ConnectError(str(error) or "the server ended the connection before it could be used") from error


async def _open(host: str, port: int, *, tls: bool) -> _Socket:
    context = tls_context() if tls else None
    if context is not None:
        context.set_alpn_protocols(["http/1.1"])
    connected = await connect_tcp(host, port)
    socket = _Socket(connected.fileno())
    try:
        await asyncio.get_running_loop().create_connection(
            lambda: socket, sock=connected, ssl=context, server_hostname=host if tls else None
        )
    except BaseException:
        socket.abort()  # a transport that still shuts TLS down would keep the next socket with this number from being used
        connected.close()
        raise
    return socket


class _Socket(asyncio.Protocol):
    """The connected socket, with the state of HTTP on it."""

    def __init__(self, number: int) -> None:
        self._messages: ClientMessages | None = None
        """The request that has not ended."""
        self._transport: Any = None
        self._closed = self._ended = False
        self._readable = _Readable(number)
        self._waiter: asyncio.Future[None] | None = None
        self._unread = 0
        self._paused = False
        self._parts = self._part_bytes = 0
        """How many parts of responses were read since the last wait for bytes or pause, and their bytes."""
        self._failure: Exception | None = None
        """Why the connection has ended, if not by its end."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if self._messages is None:
            self.close()
            return
        self._messages.receive(data)
        self._unread += len(data)
        if self._unread > _MAX_UNREAD_BYTES and not self._paused:
            self._paused = True
            self._transport.pause_reading()
        self._wake()

    def eof_received(self) -> None:
        self._end()

    def connection_lost(self, error: Exception | None) -> None:
        self._failure = error
        self._end()

    def _end(self) -> None:
        if not self._ended and self._messages is not None:
            self._messages.receive(b"")
        self._ended = True
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def reusable(self) -> bool:
        """Whether the last response is complete and nothing has followed it."""
        return self._messages is None and not self._ended and not self._transport.is_closing() and not self._readable.now()

    def close(self) -> None:
        """Close the connection, and drop what is not sent at once. Idempotent: a TLS transport that is closed twice cannot be aborted."""
        if not self._closed:
            self._closed = True
            close_transport(self._transport)

    def abort(self) -> None:
        """Close a connection that may not have been made."""
        self._closed = True
        if self._transport is not None:
            self._transport.abort()

    async def request(self, method: str, url: httpx2.URL, headers: Mapping[str, str], body: bytes) -> Http1Response:
        """Send a request, and return its response when the headers have arrived. Close the connection if that fails.

        Raises:
            httpx2.LocalProtocolError: A header cannot be sent; nothing was.
            httpx2.RemoteProtocolError: The bytes that came are not HTTP, or the server has ended the connection.
            httpx2.ReadError: The connection broke.
        """
        host = {} if "host" in headers else {"host": url.netloc.decode("ascii")}
        self._messages = messages = ClientMessages(method, url.raw_path, {**host, **headers}, body)
        try:
            self._transport.write(messages.request())
            if self._ended:  # before anything was asked
                messages.receive(b"")
            return Http1Response(self, messages, await self._final_head(messages))
        except UnsendableRequest as error:
            self.close()
            raise import_httpx2().LocalProtocolError(str(error)) from error
        except BaseException:
            self.close()
            raise

    async def _final_head(self, messages: ClientMessages) -> ResponseHead:
        """Return the head of the response, after those that only announce it."""
        while True:
            head = await self.next_part(messages)
            assert isinstance(head, ResponseHead)
            if head.status == 101:
                raise import_httpx2().RemoteProtocolError("the server changes to another protocol, which was not asked for")
            if head.status >= 200:
                return head

    async def next_part(self, messages: ClientMessages) -> ResponseHead | bytes | None:
        """Return the next part of the response; None after the last one.

        Other tasks run in between, even if the server sends tiny parts without end.
        """
        self._parts += 1
        if self._parts == _PARTS_IN_TURN:
            pause_s = _SMALL_PARTS_PAUSE_S if self._part_bytes < _SMALL_PARTS_BYTES else 0
            self._parts = self._part_bytes = 0
            await asyncio.sleep(pause_s)
        try:
            while (part := messages.next_part()) is ...:
                await self._wait_for_bytes()
        except UnreadableResponse as error:
            broken = str(error)
        else:
            self._part_bytes += len(part) if isinstance(part, bytes) else 0
            return part
        raise self._connection_error(broken) from self._failure

    def _connection_error(self, text: str) -> Exception:
        if self._failure is not None:
            return import_httpx2().ReadError(str(self._failure))  # type: ignore[no-any-return]
        ended = "ConnectionClosed" in text or "unexpectedly closed" in text
        return import_httpx2().RemoteProtocolError("the server disconnected without a response" if ended else text)  # type: ignore[no-any-return]

    async def _wait_for_bytes(self) -> None:
        """Wait for bytes, or for the end of the connection."""
        self._unread = self._parts = self._part_bytes = 0
        if self._paused:
            self._paused = False
            self._transport.resume_reading()
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def finish(self) -> None:
        """Keep the connection for the next request if both sides allow it; else close it."""
        messages, self._messages = self._messages, None
        if messages is None or not messages.is_reusable():
            self.close()


class Http1Response:
    """Implements `PooledResponse`."""

    def __init__(self, socket: _Socket, messages: ClientMessages, head: ResponseHead) -> None:
        self.status = head.status
        self.headers = head.headers
        self._socket, self._messages = socket, messages
        self._complete = False

    async def read_chunk(self) -> bytes:
        if self._complete:
            return b""
        part = await self._socket.next_part(self._messages)
        if isinstance(part, bytes):
            return part
        self._complete = True
        self._socket.finish()
        return b""

    async def release(self) -> None:
        if not self._complete:
            self._complete = True
            self._socket.close()


class _Readable:
    """Whether a socket has bytes, or its end, that the event loop has not read yet.

    Args:
        number: The socket's file descriptor.
    """

    def __init__(self, number: int) -> None:
        self._number = number
        self._poll: Any = None
        if hasattr(select, "poll"):
            self._poll = select.poll()
            self._poll.register(number, select.POLLIN)

    def now(self) -> bool:
        found = self._poll.poll(0) if self._poll is not None else select.select([self._number], [], [], 0)[0]
        return bool(found)
