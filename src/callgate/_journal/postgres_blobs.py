"""Store large results in the schema of a PostgreSQL journal, so that every machine that reads the journal can read them.

`put` never waits: the journal's writing thread writes the blobs before the next commit, so that a blob is on the server before any event
that refers to it. Blobs are written in parts, in transactions of their own, so that no other engine waits for a large result. Knows nothing
of what the blobs contain.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from callgate._blob_store import is_digest
from callgate._journal.postgres_server import sql
from callgate.errors import JournalFailed

if TYPE_CHECKING:
    from callgate._journal.postgres_server import Connection

__all__ = ["TABLE", "PostgresBlobs", "read_blob"]

TABLE: Final = """
    CREATE TABLE IF NOT EXISTS blobs (
        digest TEXT COLLATE "C" NOT NULL,
        part   BIGINT NOT NULL,
        data   BYTEA NOT NULL,
        PRIMARY KEY (digest, part)
    )"""
_PART_BYTES: Final = 1_048_576
_MOST_WAITING: Final = 268_435_456
"""The largest number of bytes that may wait for the server."""
_IS_WHOLE: Final = "SELECT sha256(string_agg(data, ''::bytea ORDER BY part)) = ? FROM blobs WHERE digest = ?"
_ADD: Final = "INSERT INTO blobs VALUES (?, ?, ?) ON CONFLICT (digest, part) DO UPDATE SET data = excluded.data"
_SURPLUS: Final = "DELETE FROM blobs WHERE digest = ? AND part >= ?"
_PARTS: Final = "SELECT data FROM blobs WHERE digest = ? ORDER BY part"
_log = logging.getLogger("callgate.blobs")


class PostgresBlobs:
    """A `BlobStore` of one opened journal. Safe to use from several threads.

    Args:
        fetch: Return the blob with this digest from the server, or None; waits for the server.
    """

    def __init__(self, fetch: Callable[[str], bytes | None]) -> None:
        self._fetch = fetch
        self._waiting: dict[str, bytes] = {}
        self._bytes = 0
        self._guard = threading.Lock()

    def put(self, data: bytes) -> str:
        """See `BlobStore`.

        Raises:
            JournalFailed: Too many bytes wait for the server.
        """
        digest = hashlib.sha256(data).hexdigest()
        with self._guard:
            if digest not in self._waiting:
                if self._bytes + len(data) > _MOST_WAITING:
                    raise JournalFailed(f"Large results cannot be kept: {self._bytes} bytes of them wait for the server. Check the server.")
                self._waiting[digest] = bytes(data)
                self._bytes += len(data)
        return digest

    def get(self, digest: str) -> bytes | None:
        data = self._waiting.get(digest)
        return data if data is not None else self._fetch(digest)

    def write(self, connection: Connection) -> None:
        """Write all waiting blobs to the server. Called by the writing thread, outside its commits."""
        while self._waiting:
            with self._guard:
                digest, data = next(iter(self._waiting.items()))
            _keep(connection, digest, data)
            with self._guard:
                del self._waiting[digest]
                self._bytes -= len(data)


def _keep(connection: Connection, digest: str, data: bytes) -> None:
    """Write a blob unless the server has it intact. A damaged one is replaced."""
    if connection.execute(sql(_IS_WHOLE), (bytes.fromhex(digest), digest)).fetchone() == (True,):
        return
    parts = [data[at : at + _PART_BYTES] for at in range(0, max(1, len(data)), _PART_BYTES)]
    with connection.transaction():
        for number, part in enumerate(parts):
            connection.execute(sql(_ADD), (digest, number, part))
        connection.execute(sql(_SURPLUS), (digest, len(parts)))


def read_blob(connection: Connection, digest: str) -> bytes | None:
    """Return the blob with this digest from the schema; None if there is none, or if it was altered."""
    if not is_digest(digest) or connection.execute("SELECT to_regclass('blobs') IS NULL").fetchone() == (True,):
        return None
    rows: list[tuple[Any, ...]] = connection.execute(sql(_PARTS), (digest,), binary=True).fetchall()
    if not rows:
        return None
    data = b"".join(bytes(part) for (part,) in rows)
    if hashlib.sha256(data).hexdigest() == digest:
        return data
    _log.warning("blob %s was altered in the database and is not served; put the original again to repair it", digest)
    return None
