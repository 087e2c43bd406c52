"""The pool of HTTP connections to one server. Each connection sends one request at a time.

A request takes the connection that was used last, and looks at no other. The pool of httpx2 checks all its connections at the beginning and
at the end of each request; with 64 concurrent requests, that was a third of the time of a call. Knows nothing of requests.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    import httpx2

__all__ = ["KEEP_ALIVE_S", "ConnectionPool", "PooledConnection", "PooledResponse"]

KEEP_ALIVE_S: Final = 4.0
"""Less than the 5 seconds after which common servers (uvicorn, Node) close an idle connection: a request that meets the end of its
connection may have been received, and is never sent again.
"""
_IDLE_CONNECTIONS: Final = 64


class PooledResponse(Protocol):
    """A response whose body still arrives."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers by their names in lower case. Values of a name that occurs more than once are joined by commas."""
        ...

    async def read_chunk(self) -> bytes:
        """Return the next bytes of the body; empty at its end.

        Raises:
            httpx2.HTTPError: The connection ended before the end of the body, or the bytes received are not HTTP.
        """
        ...

    async def release(self) -> None:
        """Close the connection unless the body was read to its end. Idempotent."""
        ...


class PooledConnection(Protocol):
    """A connection that is opened with its first request, and again when the server has ended it."""

    async def send(self, method: str, url: httpx2.URL, headers: Mapping[str, str], body: bytes) -> PooledResponse:
        """Send a request, and return its response as soon as the headers have arrived.

        Raises:
            httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.ProxyError: No connection could be made.
            httpx2.UnsupportedProtocol, httpx2.LocalProtocolError: The request cannot be sent as it is.
            httpx2.HTTPError: The connection ended, or the bytes received are not HTTP.
        """
        ...

    async def close(self) -> None: ...


class ConnectionPool:
    """The connections to one server.

    Args:
        make: Makes a connection.
    """

    def __init__(self, make: Callable[[], PooledConnection]) -> None:
        self._make = make
        self._all: set[PooledConnection] = set()
        self._idle: deque[tuple[PooledConnection, float]] = deque()
        """With the time of their last use, the latest at the end."""
        self._closed = False

    async def take(self) -> PooledConnection:
        """Return an idle connection, or a new one. The caller gives it back.

        Raises:
            UsageError: An environment variable for proxies or certificates cannot be used.
        """
        await self._close_idle()
        if self._idle:
            return self._idle.pop()[0]
        made = self._make()
        self._all.add(made)
        return made

    async def give_back(self, connection: PooledConnection) -> None:
        """Keep a connection for the next request."""
        if self._closed or connection not in self._all:
            return
        self._idle.append((connection, asyncio.get_running_loop().time()))
        await self._close_idle()

    async def _close_idle(self) -> None:
        """Close connections that have been idle for too long or are too many."""
        until = asyncio.get_running_loop().time() - KEEP_ALIVE_S
        while self._idle and (len(self._idle) > _IDLE_CONNECTIONS or self._idle[0][1] < until):
            unused, _ = self._idle.popleft()
            self._all.discard(unused)
            await unused.close()

    async def close(self) -> None:
        """Close all connections, those in use too. Idempotent."""
        self._closed = True
        self._idle.clear()
        while self._all:
            await self._all.pop().close()
