"""Read events from an SQLite file: while others write to it, from a file of an older version, and from a read-only disk.

Data that cannot be read as an event raises `Unreadable`, so that damage is reported and not guessed at. Never writes.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import DecodeError

from callgate._database_file_checks import refuse_scrap, refused_by_system, space_error
from callgate._engine_limits import JOURNAL_CHECK_BYTES, JOURNAL_WAIT_S
from callgate._journal.event_rows import ChainFault, Unreadable, Value, row_to_event
from callgate._journal.journal_blobs import JournalBlobs
from callgate._journal.journal_reader import select_and_limit, verify_events
from callgate._journal.lock_file import LockFileReader, RecordedEnd
from callgate._journal.sql_schema import VERSION, not_indexed, select_events
from callgate._journal.sqlite_file_checks import FilesDamaged, JournalFiles
from callgate._journal.sqlite_store import keep_log_on_close
from callgate._unusable_paths import path_error, refused_paths, resolved
from callgate.errors import UsageError
from callgate.event_queries import EventQuery, select
from callgate.events import Event

if TYPE_CHECKING:
    import apsw

__all__ = ["SqliteReader", "close_reading", "connect_to_read", "find_events", "has_end", "known_version", "verify_file"]

_GIVE: Final = "Give the file that a run wrote, with --journal."


class SqliteReader:
    """A `JournalReader` of a file. A file of an older version is read without migration.

    Raises:
        UsageError: There is no journal at `path`.
    """

    def __init__(self, path: str | Path) -> None:
        import apsw

        real = resolved(path, "a journal")  # a journal's other files are beside the file, not beside a link to it
        with refused_paths(path, "a journal"):
            _check_is_file(path, real)
        refuse_scrap(path, "journal", _GIVE)
        try:
            self._connection, self._version = connect_to_read(real)
            if self._version == 0:
                tables = self._connection.execute("SELECT count(*) FROM sqlite_master").get
                close_reading(self._connection, real)
                raise UsageError(f"{path} is {'a database, but no journal' if tables else 'an empty database, and no journal'}. {_GIVE}")
        except apsw.Error as error:
            full = space_error(real, error)  # a reader makes an index of the log beside the file
            refused = refused_by_system(real, to_read=True) or (full and path_error(path, "a journal", full))
            raise refused or UsageError(f"{path} cannot be read as a journal: {error}. {_GIVE}") from error
        self.blobs = JournalBlobs(real)
        self._path = real
        try:
            self._files = JournalFiles(real, self._connection, {})
            with self._checking_files():
                pass
        except BaseException:
            close_reading(self._connection, real)
            raise

    def find(self, query: EventQuery) -> Iterator[Event]:
        with self._checking_files():
            if not_indexed(query, self._version):
                yield from select(find_events(self._connection, EventQuery()), query)
            else:
                yield from find_events(self._connection, query)

    def damage(self) -> str:
        """See `JournalReader`. A file above `JOURNAL_CHECK_BYTES` is not checked, because the check would take long."""
        if self._path.stat().st_size > JOURNAL_CHECK_BYTES:
            return ""
        with self._checking_files():
            fault = _structural_fault(self._connection, "quick_check")
        return "" if fault == "ok" else " ".join(fault.split())

    def verify(self, *, tail: int | None = None) -> ChainFault | None:
        end = LockFileReader(self._path).end  # before reading the events, so that it is never ahead of them
        with self._checking_files():
            broken = verify_file(self._connection, tail)
            if broken is None and end is not None and end.counts and not has_end(self._connection, end):
                return ChainFault(end.position, f"it is missing: the journal had it, as {self._path}.lock says")
            return broken

    def close(self) -> None:
        self._files.close()
        close_reading(self._connection, self._path)

    @contextmanager
    def _checking_files(self) -> Iterator[None]:
        """Run the block, and check the journal's files before and after it.

        Raises:
            Unreadable: A file is damaged or cannot be read.
        """
        import apsw

        try:
            with self._files.whole():
                yield
        except FilesDamaged as error:
            raise Unreadable(f"{error} while it was read, so what was read may not be all of it. Put back what is missing.") from error
        except apsw.Error as error:
            raise Unreadable(f"{self._path} cannot be read further: {error}. Read it again once nobody has it locked.") from error


def _check_is_file(path: str | Path, real: Path) -> None:
    try:
        found = os.stat(real)
    except FileNotFoundError:
        raise UsageError(f"There is no journal at {path}. {_GIVE}") from None
    if not stat.S_ISREG(found.st_mode):
        raise UsageError(f"There is no journal at {path}: it is {'a folder' if stat.S_ISDIR(found.st_mode) else 'not a file'}. {_GIVE}")


def connect_to_read(path: Path) -> tuple[apsw.Connection, int]:
    """Return a connection for reading, and the journal's version."""
    import apsw

    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)  # so that SQLite can delete its files beside it
    connection.set_busy_timeout(int(JOURNAL_WAIT_S * 1_000))
    try:
        connection.execute("PRAGMA query_only = ON")
        return connection, known_version(connection, path)
    except (apsw.CantOpenError, apsw.ReadOnlyError, apsw.IOError) as error:
        connection.close()
        _check_nobody_writes(path, error)
    except BaseException:
        connection.close()
        raise
    kept = apsw.Connection(f"{path.absolute().as_uri()}?immutable=1", flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
    return kept, known_version(kept, path)


def _check_nobody_writes(path: Path, error: apsw.Error) -> None:
    """Raise `error` unless it means that nothing can be written beside the file, so that nobody has the journal open for writing.

    Raises:
        UsageError: Events are in the log, which cannot be read there.
    """
    import apsw

    log = Path(f"{path}-wal")
    if isinstance(error, apsw.IOError):
        full = space_error(path, error)  # a limit of this process does not keep others from writing
        if full is None or full.errno != errno.ENOSPC or (log.exists() and log.stat().st_size):
            raise error
    elif os.access(path.absolute().parent, os.W_OK):
        raise error
    elif log.exists():
        raise UsageError(
            f"{path} has a log beside it, {path}-wal, which cannot be read where nothing can be written. Copy both to another folder."
        )


def has_end(connection: apsw.Connection, end: RecordedEnd) -> bool:
    """Return whether the journal has the last event that it is known to have had."""
    return bool(connection.execute("SELECT hash FROM events WHERE position = ?", (end.position,)).get == end.hash)


def close_reading(connection: apsw.Connection, path: Path) -> None:
    """Close a connection for reading, and leave the files as they are.

    An empty log is removed; a log with content, as after a crash, is not checkpointed.
    """
    log = Path(f"{path}-wal")
    if log.exists() and log.stat().st_size:
        keep_log_on_close(connection)
    connection.close()


def find_events(connection: apsw.Connection, query: EventQuery) -> Iterator[Event]:
    return select_and_limit(_read(connection, *select_events(query)), query)


def _read(connection: apsw.Connection, sql: str, values: Sequence[Value]) -> Iterator[Event]:
    import apsw

    try:
        for row in connection.execute(sql, values):
            yield row_to_event(row)
    except (apsw.SQLError, apsw.CorruptError, apsw.IOError, apsw.NotADBError, DecodeError, UnicodeError, TypeError) as error:
        raise Unreadable(
            f"{connection.filename} is damaged and cannot be read further: {error}. Its disk or somebody else has changed it: take a"
            " copy from before. `callgate log verify` says how far it holds."
        ) from error


def verify_file(connection: apsw.Connection, tail: int | None) -> ChainFault | None:
    """Verify the events. If all of them are checked, also check the structure of the file and its indexes."""
    broken = verify_events(lambda query: find_events(connection, query), tail)
    if broken is not None or tail is not None:
        return broken
    fault = _structural_fault(connection, "integrity_check")
    return None if fault == "ok" else ChainFault(0, f"the file is damaged, so that not every event may be found ({fault.strip()})")


def _structural_fault(connection: apsw.Connection, check: str) -> str:
    """Return the first fault that SQLite finds in the file's structure; `ok` if there is none."""
    import apsw

    try:
        return str(connection.execute(f"PRAGMA {check}(1)").get)
    except apsw.Error as error:
        return str(error)


def known_version(connection: apsw.Connection, path: Path) -> int:
    version = int(connection.execute("PRAGMA user_version").get)
    if version > VERSION:
        raise UsageError(f"{path} was written by a newer callgate (journal version {version}; this one knows {VERSION}). Upgrade callgate.")
    return version
