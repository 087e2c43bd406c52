"""Reuse an HTTP connection only if it holds no bytes beyond the responses that were requested.

Surplus bytes of one response, and bytes that arrive on an idle connection, would be read as the next response, which may belong to another
conversation. httpcore2 checks the socket only; bytes may also wait in the parser, in TLS and in the event loop's stream. Those are private
attributes, so a connection of an unknown type is closed after one response.
"""

from __future__ import annotations

from typing import Any

__all__ = ["check_before_reuse"]


def check_before_reuse(client: Any) -> None:
    """Check every connection that this httpx2 client opens before it is used again."""
    for transport in (client._transport, *client._mounts.values()):
        if transport is not None:
            _check_pool(transport._pool)


def _check_pool(pool: Any) -> None:
    create = pool.create_connection
    pool.create_connection = lambda origin: _CheckedConnection(create(origin))


class _CheckedConnection:
    """Wraps a connection of httpcore2's pool, with the same interface."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def __repr__(self) -> str:
        return repr(self._connection)

    def is_available(self) -> bool:
        return bool(self._connection.is_available()) and not self._has_unread_bytes()

    def has_expired(self) -> bool:
        return bool(self._connection.has_expired()) or self._has_unread_bytes()

    def _has_unread_bytes(self) -> bool:
        """Whether an idle connection holds bytes that belong to no request."""
        connection = self._connection
        if not connection.is_idle() or connection.can_multiplex():
            return False
        while (inner := getattr(connection, "_connection", None)) is not None:
            connection = inner
        try:
            return bool(connection._h11_state.trailing_data[0]) or _stream_has_unread_bytes(connection._network_stream._stream)
        except AttributeError:
            return True


def _stream_has_unread_bytes(stream: Any) -> bool:
    """Whether an anyio stream has received bytes that were not read."""
    while hasattr(stream, "transport_stream"):
        if stream._ssl_object.pending() or stream._read_bio.pending:
            return True
        stream = stream.transport_stream
    return bool(stream._protocol.read_queue)
