"""The SQLite file of a memory: check, migrate and open it, with one connection for writing and one for reading.

All its data can be rebuilt from the journal and the files, so a damaged file may be deleted. `passage_table`, `passage_vectors`,
`journal_read_positions` and `file_index` define the meaning of the tables. A published migration is never changed; new ones are appended.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from callgate._database_file_checks import make_folder, make_private, refuse_scrap, space_error
from callgate._unusable_paths import expanded, path_error, refused_paths
from callgate.errors import MemoryFailed, UsageError
from callgate.memory.text_terms import TOKENIZER

if TYPE_CHECKING:
    import apsw

__all__ = ["VERSION", "Database"]

_APPLICATION: Final = 0x63676D31
"""Written into the file's header to identify a memory."""
_SAFE_SQLITE: Final = (3, 51, 3)
_MIGRATIONS: Final = (
    f"""
    CREATE TABLE passages (
        number       INTEGER PRIMARY KEY,
        origin       TEXT NOT NULL,
        place        INTEGER NOT NULL,
        kind         TEXT NOT NULL,
        at_ns        INTEGER NOT NULL,
        principal    TEXT NOT NULL,
        actor        TEXT NOT NULL,
        conversation TEXT NOT NULL,
        run          TEXT NOT NULL,
        call         TEXT NOT NULL,
        tool         TEXT NOT NULL,
        workspace    TEXT NOT NULL,
        path         TEXT NOT NULL,
        line         INTEGER NOT NULL,
        stamp        TEXT NOT NULL,
        redacted     INTEGER NOT NULL,
        tags         TEXT NOT NULL,
        words        TEXT NOT NULL,
        UNIQUE (origin, place)
    ) STRICT;
    CREATE INDEX passages_by_age ON passages (kind, principal, at_ns);
    CREATE INDEX passages_by_file ON passages (workspace, path, stamp) WHERE kind = 'file';
    CREATE VIRTUAL TABLE passage_words USING fts5(words, tags, content='passages', content_rowid='number', tokenize="{TOKENIZER}");
    CREATE TRIGGER passage_added AFTER INSERT ON passages BEGIN
        INSERT INTO passage_words (rowid, words, tags) VALUES (new.number, new.words, new.tags);
    END;
    CREATE TRIGGER passage_dropped AFTER DELETE ON passages BEGIN
        INSERT INTO passage_words (passage_words, rowid, words, tags) VALUES ('delete', old.number, old.words, old.tags);
    END;
    CREATE TABLE cursors (
        journal  TEXT PRIMARY KEY,
        position INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE marks (
        number    INTEGER PRIMARY KEY AUTOINCREMENT,
        workspace TEXT NOT NULL,
        path      TEXT NOT NULL,
        since_ns  INTEGER NOT NULL,
        cause     TEXT NOT NULL,
        failures  INTEGER NOT NULL,
        UNIQUE (workspace, path)
    ) STRICT;
    CREATE TABLE trees (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        root   TEXT NOT NULL UNIQUE
    ) STRICT;
    CREATE TABLE indexed (
        number INTEGER PRIMARY KEY,
        tree   INTEGER NOT NULL,
        path   TEXT NOT NULL,
        stamp  TEXT NOT NULL,
        kind   TEXT NOT NULL,
        bytes  INTEGER NOT NULL,
        UNIQUE (tree, path)
    ) STRICT;
    CREATE VIRTUAL TABLE grams USING fts5(
        text, content='', contentless_delete=1, detail=none, tokenize='trigram case_sensitive 1'
    );
    """,
    """
    INSERT INTO passage_words (passage_words, rank) VALUES ('secure-delete', 1);
    INSERT INTO passage_words (passage_words) VALUES ('rebuild');
    """,
    """
    CREATE TABLE embedders (
        only_one  INTEGER PRIMARY KEY CHECK (only_one = 1),
        name      TEXT NOT NULL,
        dimension INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE vectors (
        number INTEGER PRIMARY KEY,
        vector BLOB NOT NULL
    ) STRICT;
    CREATE TABLE unembedded (
        number   INTEGER PRIMARY KEY,
        failures INTEGER NOT NULL
    ) STRICT;
    INSERT INTO unembedded (number, failures) SELECT number, 0 FROM passages;
    CREATE TRIGGER passage_unembedded AFTER INSERT ON passages BEGIN
        INSERT INTO unembedded (number, failures) VALUES (new.number, 0);
    END;
    CREATE TRIGGER passage_embedded AFTER INSERT ON vectors BEGIN
        DELETE FROM unembedded WHERE number = new.number;
    END;
    CREATE TRIGGER vector_dropped AFTER DELETE ON passages BEGIN
        DELETE FROM vectors WHERE number = old.number;
        DELETE FROM unembedded WHERE number = old.number;
    END;
    """,
)
_FIRST_THAT_WIPES: Final = 2
"""The first version that removes deleted data from the file. Older files contain words of deleted notes in free pages."""
VERSION: Final = len(_MIGRATIONS)


class Database:
    """An SQLite database file that several threads can use.

    Args:
        path: The file. If it does not exist, it is created along with its folder, accessible to its owner only.
            `:memory:` uses no file.
        extension: The path of an SQLite extension to load; empty: none.

    Raises:
        UsageError: The file cannot be opened, is not a memory, or was written by a newer callgate, or the extension
            cannot be loaded.
    """

    def __init__(self, path: str | os.PathLike[str], *, extension: str = "") -> None:
        self.path = os.fspath(expanded(path))
        self._guard = threading.RLock()
        self._reading = threading.Lock()
        self._writer = _open(self.path, extension)
        self._reader = self._writer if self.path == ":memory:" else _open(self.path, extension)
        self._closed = False

    @contextmanager
    def writing(self) -> Iterator[apsw.Connection]:
        """Run the block in one transaction.

        Raises:
            MemoryFailed: The file is damaged, or the system refuses it.
        """
        with self._guard, self._convert_errors():
            self._check()
            with self._writer as connection:
                connection.execute("UPDATE cursors SET position = position WHERE 0")  # acquires the lock before anything is read
                yield connection

    @contextmanager
    def reading(self) -> Iterator[apsw.Connection]:
        """Run the block in one read transaction, so that all its queries see the same state of the file.

        Raises:
            MemoryFailed: The file is damaged, or the system refuses it.
        """
        with self._guard if self._reader is self._writer else self._reading, self._convert_errors():
            self._check()
            with self._reader as connection:
                yield connection

    def wipe(self) -> None:
        """Remove deleted data from the write-ahead log too.

        If another connection is reading, the data stays until the next call.
        """
        import apsw

        with self._guard, self._convert_errors():
            self._check()
            with suppress(apsw.BusyError):
                self._writer.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)

    @contextmanager
    def _convert_errors(self) -> Iterator[None]:
        """Convert errors of SQLite and of damaged rows into `MemoryFailed`."""
        import apsw

        try:
            yield
        except (apsw.Error, UnicodeDecodeError, msgspec.DecodeError) as error:
            raise MemoryFailed(
                f"The memory {self.path} cannot be read or written: {error}. If it is damaged, delete the file: it is made again from the"
                " journal, by `callgate memory rebuild`."
            ) from error

    @property
    def files(self) -> tuple[str, ...]:
        """The absolute paths of the database's files."""
        return () if self.path == ":memory:" else tuple(os.path.abspath(f"{self.path}{end}") for end in ("", "-wal", "-shm", "-journal"))

    @property
    def identities(self) -> set[tuple[int, int]]:
        """The device and inode of each of the database's files.

        The index uses them to not report these files as outdated.
        """
        stats = [os.stat(file) for file in self.files if os.path.isfile(file)]
        return {(one.st_dev, one.st_ino) for one in stats}

    def _check(self) -> None:
        if self._closed:
            raise UsageError(f"The memory {self.path} is closed. Open it again.")

    def close(self) -> None:
        """Close the file. Idempotent."""
        with self._guard, self._reading:
            if not self._closed:
                self._closed = True
                self._reader.close()
                self._writer.close()


def _open(path: str, extension: str) -> apsw.Connection:
    import apsw

    version = tuple(int(part) for part in apsw.sqlite_lib_version().split("."))
    if version < _SAFE_SQLITE or "ENABLE_FTS5" not in apsw.compile_options:
        raise UsageError(f"SQLite {apsw.sqlite_lib_version()} as installed has no safe full-text search. Install a newer apsw.")
    with refused_paths(path, "a memory"):
        refuse_scrap(path, "memory", "Give another file.")
        if path != ":memory:":
            make_folder(os.path.dirname(os.path.abspath(path)))
            make_private(path)
    try:
        connection = apsw.Connection(path)
        connection.set_busy_timeout(5000)
        _check_kind(connection, path)
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "secure_delete=ON"):
            connection.execute(f"PRAGMA {pragma}")
        if 0 < _migrate(connection) < _FIRST_THAT_WIPES:
            _rewrite(connection)
    except apsw.Error as error:
        space = space_error(Path(path), error)
        if space is not None:
            raise path_error(path, "a memory", space) from space
        raise UsageError(
            f"{path} cannot be used as a memory: {error}. Give another file. A damaged memory may be deleted: it is made again from the"
            " journal."
        ) from error
    if extension:
        _extend(connection, extension)
    return connection


def _extend(connection: apsw.Connection, extension: str) -> None:
    import apsw

    try:
        connection.enable_load_extension(True)
        connection.load_extension(extension)
        connection.enable_load_extension(False)
    except apsw.Error as error:
        connection.close()
        raise UsageError(f"SQLite cannot load {extension}: {error}. Install it again, or do without an embedder.") from error


def _check_kind(connection: apsw.Connection, path: str) -> None:
    present = int(connection.execute("PRAGMA user_version").get)
    application = int(connection.execute("PRAGMA application_id").get)
    if application != _APPLICATION and (present or connection.execute("SELECT count(*) FROM sqlite_master").get):
        raise UsageError(f"{path} is a database, but not a memory. Give another file.")
    if present > VERSION:
        raise UsageError(f"{path} was written by a newer callgate (memory version {present}; this one knows {VERSION}). Upgrade callgate.")


def _migrate(connection: apsw.Connection) -> int:
    """Migrate the file to the current version; return its old version."""
    with connection:
        connection.execute(f"PRAGMA application_id = {_APPLICATION}")  # acquires the lock: of two processes, the second one finds it done
        present = int(connection.execute("PRAGMA user_version").get)
        for number, statements in enumerate(_MIGRATIONS[present:], present + 1):
            connection.execute(statements)
            connection.execute(f"PRAGMA user_version = {number}")
    return present


def _rewrite(connection: apsw.Connection) -> None:
    """Remove deleted data from the file; skipped if another process uses it."""
    import apsw

    with suppress(apsw.BusyError):
        connection.execute("VACUUM")
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
