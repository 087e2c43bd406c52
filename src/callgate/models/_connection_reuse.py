"""Use a connection again only where nothing came on it beyond the answers that were asked for.

A surplus of one answer, and bytes that come while the connection is idle, would be read as the next answer, which may be another
conversation's. httpcore2 looks at the socket alone; bytes also wait in the parser, in TLS and in the event loop's stream. Their places are
private there: a connection of a kind that is not known here is closed after one answer.
"""

from __future__ import annotations

from typing import Any

__all__ = ["check_before_reuse"]


def check_before_reuse(client: Any) -> None:
    """Make every connection that this httpx2 client opens one that is checked before it is used again."""
    for transport in (client._transport, *client._mounts.values()):
        if transport is not None:
            _check_pool(transport._pool)


def _check_pool(pool: Any) -> None:
    create = pool.create_connection
    pool.create_connection = lambda origin: _CheckedConnection(create(origin))


class _CheckedConnection:
    """A connection of httpcore2's pool, whose interface it has."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def __repr__(self) -> str:
        return repr(self._connection)

    def is_available(self) -> bool:
        return bool(self._connection.is_available()) and not self._is_spoiled()

    def has_expired(self) -> bool:
        return bool(self._connection.has_expired()) or self._is_spoiled()

    def _is_spoiled(self) -> bool:
        """Whether an idle connection holds bytes that nobody has asked for."""
        connection = self._connection
        if not connection.is_idle() or connection.can_multiplex():
            return False
        while (inner := getattr(connection, "_connection", None)) is not None:
            connection = inner
        try:
            return bool(connection._h11_state.trailing_data[0]) or _holds_bytes(connection._network_stream._stream)
        except AttributeError:
            return True


def _holds_bytes(stream: Any) -> bool:
    """Whether a stream of anyio has bytes that were received and not read."""
    while hasattr(stream, "transport_stream"):
        if stream._ssl_object.pending() or stream._read_bio.pending:
            return True
        stream = stream.transport_stream
    return bool(stream._protocol.read_queue)
