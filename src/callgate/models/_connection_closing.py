"""Close HTTP connections without waiting, so that a cancellation leaves none open.

httpcore2 forgets a connection before it has closed it: several idle ones are closed one after the other, each with a wait, and one in a TLS
handshake is not closed at all. A cancellation meanwhile would leave their sockets to the garbage collector. The transport of a stream is a
private attribute, so a stream of an unknown type is closed in httpcore2's own way.
"""

from __future__ import annotations

import asyncio
from typing import Any

__all__ = ["close_transport", "close_without_waiting"]


def close_without_waiting(client: Any) -> None:
    """Make this httpx2 client close each of its connections in one step."""
    for transport in (client._transport, *client._mounts.values()):
        if transport is not None:
            transport._pool._network_backend = _Backend(transport._pool._network_backend)


class _Backend:
    """Wraps a network backend of httpcore2, with the same interface."""

    def __init__(self, backend: Any) -> None:
        self._backend = backend
        self.sleep = backend.sleep

    async def connect_tcp(self, *args: Any, **options: Any) -> _Stream:
        return _Stream(await self._backend.connect_tcp(*args, **options))

    async def connect_unix_socket(self, *args: Any, **options: Any) -> _Stream:
        return _Stream(await self._backend.connect_unix_socket(*args, **options))


class _Stream:
    """Wraps a network stream of httpcore2, with the same interface."""

    def __init__(self, wrapped: Any) -> None:
        self._wrapped = wrapped
        self.read = wrapped.read
        self.write = wrapped.write
        self.get_extra_info = wrapped.get_extra_info

    @property
    def _stream(self) -> Any:
        """The stream of anyio, as in the wrapped stream."""
        return self._wrapped._stream

    async def start_tls(self, *args: Any, **options: Any) -> _Stream:
        try:
            return _Stream(await self._wrapped.start_tls(*args, **options))
        except BaseException:
            await self.aclose()
            raise

    async def aclose(self) -> None:
        try:
            transport = _transport_of(self._stream)
        except AttributeError:
            await self._wrapped.aclose()
        else:
            close_transport(transport)


def _transport_of(stream: Any) -> asyncio.Transport:
    """Return the transport beneath an anyio stream, which may have layers of TLS."""
    while hasattr(stream, "transport_stream"):
        stream = stream.transport_stream
    transport: asyncio.Transport = stream._transport
    return transport


def close_transport(transport: asyncio.Transport) -> None:
    """Close a transport, as anyio does: what is not sent at once is dropped, because the server may never read it."""
    transport.close()
    asyncio.get_running_loop().call_soon(transport.abort)
