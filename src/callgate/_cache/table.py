"""Cached results in a table of an SQLite file: they outlive the process. A lost write costs a run, never a wrong answer."""

from __future__ import annotations

from pathlib import Path

import msgspec

from callgate.tools.resources import meet

__all__ = ["TableCache"]

_SCHEMA = """
CREATE TABLE IF NOT EXISTS results (
    key     TEXT PRIMARY KEY,
    value   BLOB    NOT NULL,
    expires INTEGER,
    reads   TEXT    NOT NULL
) STRICT, WITHOUT ROWID;
"""


class TableCache:
    """A `CacheStore` in a file of its own.

    Args:
        path: Made if it does not exist, its folder too.
    """

    def __init__(self, path: str | Path) -> None:
        import apsw

        Path(path).parent.mkdir(parents=True, exist_ok=True)
        self.files = tuple(f"{Path(path).absolute()}{end}" for end in ("", "-wal", "-shm", "-journal"))
        self._connection = apsw.Connection(str(path))
        self._connection.set_busy_timeout(2000)
        for pragma in ("journal_mode=WAL", "synchronous=NORMAL"):
            self._connection.execute(f"PRAGMA {pragma}")
        self._connection.execute(_SCHEMA)
        if any(column[1] == "grp" for column in self._connection.execute("PRAGMA table_info(results)")):  # made before 0.1
            self._connection.execute("ALTER TABLE results DROP COLUMN grp")

    def get(self, key: str, now_ns: int) -> bytes | None:
        row = self._connection.execute("SELECT value, expires FROM results WHERE key = ?", (key,)).fetchone()
        if row is None:
            return None
        if row[1] is not None and row[1] <= now_ns:
            self._connection.execute("DELETE FROM results WHERE key = ?", (key,))
            return None
        return bytes(row[0])

    def put(self, key: str, value: bytes, *, expires_ns: int | None, reads: frozenset[str]) -> None:
        row = (key, value, expires_ns, msgspec.json.encode(sorted(reads)).decode())
        self._connection.execute("INSERT OR REPLACE INTO results VALUES (?, ?, ?, ?)", row)

    def drop_written(self, writes: frozenset[str]) -> int:
        rows = list(self._connection.execute("SELECT key, reads FROM results WHERE reads <> '[]'"))
        stale = [key for key, reads in rows if any(meet(w, r) for w in writes for r in msgspec.json.decode(reads))]
        self._connection.executemany("DELETE FROM results WHERE key = ?", [(key,) for key in stale])
        return len(stale)

    def close(self) -> None:
        self._connection.close()
