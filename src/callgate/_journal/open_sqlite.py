"""Open an SQLite file as a journal: create it or migrate it, check that it is complete, and check that no known event is missing.

One process at a time opens a journal, by a lock in the file beside it; locks of other programs are waited for. Nothing is written to a file
before it is known to be a journal or to be empty. Knows nothing of the events' meaning.
"""

from __future__ import annotations

import os
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from callgate._database_file_checks import make_private, refused_by_system, require_folder, space_error
from callgate._engine_limits import JOURNAL_WAIT_S
from callgate._journal.event_positions import JournalEnd
from callgate._journal.lock_file import LockFile
from callgate._journal.sql_schema import FIRST_WITH_CALLS, LAST_EVENT, SQLITE, VERSION, migrations, to_index
from callgate._journal.sqlite_file_checks import RESTORE, FilesDamaged, JournalFiles, refuse_remains
from callgate._journal.sqlite_reader import find_events, has_end, known_version
from callgate._journal.sqlite_rows import insert_calls, insert_lookup_rows
from callgate._journal.sqlite_store import busy_text
from callgate._unusable_paths import path_error, refused_paths
from callgate.errors import UsageError

if TYPE_CHECKING:
    import apsw

__all__ = ["OpenedFile", "connect", "open_file"]

_SAFE_SQLITE: Final = (3, 51, 3)
"""The oldest safe version. Older ones can corrupt a write-ahead log that two connections use at once."""
_AGAIN_S: Final = 0.01


class OpenedFile(Struct, frozen=True, kw_only=True):
    """A journal's file, open for one writer."""

    lock: LockFile
    writing: apsw.Connection
    beside: apsw.Connection
    """A second connection, for statements that cannot run in a transaction."""
    reading: apsw.Connection
    number: int
    """The writer's number. It is never used for another writer."""
    tail: JournalEnd


def open_file(path: Path, synchronous: str) -> OpenedFile:
    """Open the journal at `path`, or create it if there is none.

    Raises:
        UsageError: The file cannot be used as a journal.
    """
    with refused_paths(path, "a journal"):
        require_folder(path.parent)
        lock = LockFile(path)
    try:
        refuse_remains(path, was_journal=lock.is_marked)
        if not path.exists():
            _refuse_missing(path, lock)
            lock.forget()
            with refused_paths(path, "a journal"):
                make_private(path)
        opened = _Opening(path, synchronous, lock).wait()
    except BaseException:
        lock.take_back()
        raise
    lock.end_opening()
    return opened


def connect(path: Path, synchronous: str, wait_s: float) -> apsw.Connection:
    """Return a connection that uses a write-ahead log, makes no checkpoint by itself, and writes no temporary files.

    Args:
        wait_s: Seconds to wait for locks of other connections.
    """
    import apsw

    version = tuple(int(part) for part in apsw.sqlite_lib_version().split("."))
    if version < _SAFE_SQLITE:
        raise UsageError(
            f"SQLite {apsw.sqlite_lib_version()} can corrupt a journal; {'.'.join(map(str, _SAFE_SQLITE))} is the oldest that is safe."
        )
    connection = apsw.Connection(str(path))
    try:
        connection.set_busy_timeout(max(1, int(wait_s * 1_000)))
        connection.wal_autocheckpoint(0)
        _refuse_other_databases(connection, path)
        # One by one: a statement with a row ends the call.
        for pragma in ("journal_mode=WAL", f"synchronous={synchronous.upper()}", "temp_store=MEMORY"):
            connection.execute(f"PRAGMA {pragma}")
    except BaseException:
        connection.close()
        raise
    return connection


class _Opening:
    """Tries to open the journal until no other process holds a lock on it, or until the time is over."""

    def __init__(self, path: Path, synchronous: str, lock: LockFile) -> None:
        self._path = path
        self._synchronous = synchronous
        self._lock = lock
        self._until = monotonic() + JOURNAL_WAIT_S
        self._connections: list[apsw.Connection] = []

    def wait(self) -> OpenedFile:
        import apsw

        while True:
            try:
                return self._open()
            except apsw.BusyError as error:
                self._close()
                if monotonic() > self._until:
                    raise UsageError(busy_text(self._path, JOURNAL_WAIT_S)) from error
                sleep(_AGAIN_S)
            except FilesDamaged as error:
                self._close()
                raise UsageError(f"{error}. {RESTORE}") from error
            except apsw.Error as error:
                refusal = refused_by_system(self._path)  # before closing gives back the file descriptors
                self._close()
                space = space_error(self._path, error)
                if space is not None:
                    raise path_error(self._path, "a journal", space) from space
                raise refusal or _unusable_error(self._path, error) from error
            except OSError as error:
                self._close()
                raise path_error(self._path, "a journal", error) from error
            except BaseException:
                self._close()
                raise

    def _open(self) -> OpenedFile:
        writing, beside, reading = (self._connect() for _ in range(3))
        files = JournalFiles(self._path, beside, {})
        try:
            files.check_whole()
        finally:
            files.close()
        self._bring_to_our_version(writing, beside)
        _refuse_lost_events(writing, self._path, self._lock)
        row = writing.execute(LAST_EVENT).fetchone()
        number = _next_number(writing, self._path)
        self._lock.hold(number)
        self._lock.mark()
        for connection in self._connections:
            connection.set_busy_timeout(int(JOURNAL_WAIT_S * 1_000))
        tail = JournalEnd(*row) if row else JournalEnd()
        return OpenedFile(lock=self._lock, writing=writing, beside=beside, reading=reading, number=number, tail=tail)

    def _connect(self) -> apsw.Connection:
        connection = connect(self._path, self._synchronous, self._until - monotonic())
        self._connections.append(connection)
        return connection

    def _bring_to_our_version(self, connection: apsw.Connection, beside: apsw.Connection) -> None:
        import apsw

        version = known_version(connection, self._path)
        if version == 0 and self._lock.is_marked:
            raise UsageError(
                f"{self._path} has no tables, and there was a journal in it, as {self._lock.path} says: its log {self._path}-wal was"
                f" deleted or cut off, with all events in it. {RESTORE}"
            )
        if version < VERSION:
            _migrate(connection, self._path)
        if version == 0:  # the file without its log must show that it is a journal
            beside.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)

    def _close(self) -> None:
        while self._connections:
            self._connections.pop().close()


def _refuse_missing(path: Path, lock: LockFile) -> None:
    """Refuse to begin a new journal in the place of one that had events, of which only the lock file is left."""
    end = lock.end
    if end is not None:
        raise UsageError(
            f"{path} is missing, and there was a journal in it with at least {end.position} events, as {lock.path} says. A new one would"
            f" not know which calls have run. {RESTORE}"
        )


def _refuse_lost_events(connection: apsw.Connection, path: Path, lock: LockFile) -> None:
    """Refuse a journal that lacks the last event which the lock file says it had."""
    end = lock.end
    if end is None or not end.counts or has_end(connection, end):
        return
    row = connection.execute(LAST_EVENT).fetchone()
    raise UsageError(
        f"{path} ends at event {row[0] if row else 0} and does not have event {end.position}, which it had, as {lock.path} says: its log"
        f" {path}-wal was deleted or cut off, or an older copy was put in its place. Put the missing file back. To go on without the lost"
        f" events, whose calls may then run again, delete {lock.path}."
    )


def _refuse_other_databases(connection: apsw.Connection, path: Path) -> None:
    """Refuse a database that is not a journal, before any setting is changed that the file stores."""
    unmarked = known_version(connection, path) == 0 and connection.execute("SELECT count(*) FROM sqlite_master").get
    if unmarked and known_version(connection, path) == 0:  # another engine may have created it just now
        raise UsageError(f"{path} is a database, but no journal. Give another file.")


def _unusable_error(path: Path, error: Exception | str) -> UsageError:
    return UsageError(f"{path} cannot be used as a journal: {error}. Give another file.")


def _migrate(connection: apsw.Connection, path: Path) -> None:
    """Migrate the tables to the current version, one process at a time."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        version = known_version(connection, path)
        for _, statements in migrations(SQLITE, version):
            for statement in statements:
                connection.execute(statement)
        _fill(connection, version)
        connection.execute(f"PRAGMA user_version = {VERSION}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _fill(connection: apsw.Connection, version: int) -> None:
    """Add what the tables for searching lack since this version, from the stored events."""
    query, add = to_index(version), insert_lookup_rows if version < FIRST_WITH_CALLS else insert_calls
    while query is not None and (page := list(find_events(connection, query))):
        add(connection, page)
        query = replace(query, after=page[-1].position)


def _next_number(connection: apsw.Connection, path: Path) -> int:
    row = connection.execute("UPDATE writer SET epoch = epoch + 1, holder = ? RETURNING epoch", (str(os.getpid()),)).fetchone()
    if row is None:
        raise _unusable_error(path, "its counter of writers is gone")
    return int(row[0])
