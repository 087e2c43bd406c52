"""A cache in a table of an SQLite file, so that results outlive the process.

If a write is lost, the tool runs again; a wrong result is never returned. Several processes may use one file: a result that one of them
computes is announced before, so that it is not stored if another one drops meanwhile what it was computed from.
"""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from callgate._database_file_checks import make_folder, make_private, refuse_scrap
from callgate._option_checks import by_name
from callgate._unusable_paths import check_path, expanded, refused_paths
from callgate.errors import UsageError
from callgate.tools.resource_conflicts import meet

if TYPE_CHECKING:
    import apsw

__all__ = ["SqliteCache", "files_of"]

_SCHEMA = """
CREATE TABLE IF NOT EXISTS results (
    key     TEXT PRIMARY KEY,
    value   BLOB    NOT NULL,
    expires INTEGER,
    reads   TEXT    NOT NULL
) STRICT, WITHOUT ROWID;
"""
_COLUMNS = {"key", "value", "expires", "reads"}
_GIVE = "Give another file."
_NO_CACHE = "Leave persistent_cache out of the engine's options: with a journal in memory,"


class SqliteCache:
    """A `CacheStore` in an SQLite file that holds nothing else.

    Args:
        path: The file. The file and its folder are created if they do not exist.

    Raises:
        UsageError: The file cannot be opened, or is not a cache.
    """

    @by_name
    def __init__(self, path: str | Path) -> None:
        import apsw

        check_path(
            "SqliteCache", path, in_memory=f"{_NO_CACHE} results are kept in memory.", on_server="A cache is a file of this machine."
        )
        path = expanded(path)
        self.files = files_of(path)
        with refused_paths(path, "a cache"):
            refuse_scrap(path, "cache", _GIVE)
            make_folder(Path(path).parent)
            make_private(path)
        try:
            self._connection = _opened(path)
        except apsw.Error as error:
            raise UsageError(f"{path} cannot be used as a cache: {error}. {_GIVE} A damaged cache may be deleted.") from error

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

    def announce(self, key: str, reads: frozenset[str]) -> bytes:
        """Announce a value that is computed from these keys from now on; return the mark for `put_announced`."""
        mark = secrets.token_bytes(16)
        self.put(key, mark, expires_ns=0, reads=reads)
        return mark

    def put_announced(self, key: str, mark: bytes, value: bytes, *, expires_ns: int | None) -> None:
        """Store an announced value, unless it was dropped or announced again since, by any process."""
        row = (value, expires_ns, key, mark)
        self._connection.execute("UPDATE results SET value = ?, expires = ? WHERE key = ? AND value = ?", row)

    def drop_written(self, writes: frozenset[str]) -> int:
        rows = list(self._connection.execute("SELECT key, reads FROM results WHERE reads <> '[]'"))
        stale = [key for key, reads in rows if any(meet(w, r) for w in writes for r in msgspec.json.decode(reads))]
        self._connection.executemany("DELETE FROM results WHERE key = ?", [(key,) for key in stale])
        return len(stale)

    def close(self) -> None:
        self._connection.close()


def files_of(path: str | Path) -> tuple[str, ...]:
    """Return the absolute paths of all files of a cache at `path`: the database and the files that SQLite keeps beside it."""
    return tuple(f"{Path(path).absolute()}{end}" for end in ("", "-wal", "-shm", "-journal"))


def _opened(path: str | Path) -> apsw.Connection:
    import apsw

    connection = apsw.Connection(str(path))
    connection.set_busy_timeout(2000)
    columns = {str(column[1]) for column in connection.execute("PRAGMA table_info(results)")}
    tables = {str(name) for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if tables and (tables != {"results"} or columns - {"grp"} != _COLUMNS):
        connection.close()
        raise UsageError(f"{path} is a database, but no cache. {_GIVE}")
    for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "secure_delete=ON"):  # withheld results must leave no bytes
        connection.execute(f"PRAGMA {pragma}")
    connection.execute(_SCHEMA)
    if "grp" in columns:  # a file of a version before 0.1
        connection.execute("ALTER TABLE results DROP COLUMN grp")
    return connection
