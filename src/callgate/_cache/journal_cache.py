"""The default cache of an engine that has a journal in a file: an SQLite file beside it, created for the first result that may be cached.

A tool whose results should outlive the process then needs no second setting. An engine that caches no result creates no file.
"""

from __future__ import annotations

import os
from pathlib import Path

from callgate._cache.sqlite_cache import SqliteCache, files_of

__all__ = ["JournalCache"]


class JournalCache:
    """A `CacheStore` in a file that is opened on first use.

    Args:
        path: The cache file; it may not exist yet.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._path_bytes = os.fsencode(path)  # looked up twice for each call with an effect
        self._table: SqliteCache | None = None
        self.files = files_of(path)

    def get(self, key: str, now_ns: int) -> bytes | None:
        table = self._existing()
        return None if table is None else table.get(key, now_ns)

    def put(self, key: str, value: bytes, *, expires_ns: int | None, reads: frozenset[str]) -> None:
        self._opened().put(key, value, expires_ns=expires_ns, reads=reads)

    def announce(self, key: str, reads: frozenset[str]) -> bytes:
        return self._opened().announce(key, reads)

    def put_announced(self, key: str, mark: bytes, value: bytes, *, expires_ns: int | None) -> None:
        self._opened().put_announced(key, mark, value, expires_ns=expires_ns)

    def drop_written(self, writes: frozenset[str]) -> int:
        table = self._existing()
        return 0 if table is None else table.drop_written(writes)

    def close(self) -> None:
        if self._table is not None:
            self._table.close()

    def _existing(self) -> SqliteCache | None:
        """Return the cache table if this engine or an earlier one has created it; otherwise None."""
        return self._opened() if self._table is not None or os.access(self._path_bytes, os.F_OK) else None

    def _opened(self) -> SqliteCache:
        if self._table is None:
            self._table = SqliteCache(self._path)
        return self._table
