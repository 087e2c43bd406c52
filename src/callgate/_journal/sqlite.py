"""Events in an SQLite file: what was reported as durable survives power loss.

One writer per file, held by a lock beside it and by an epoch in it; any number of readers. Commits go through the write-ahead log,
synchronous FULL unless the weaker mode is asked for. A file that is deleted or replaced under its writer is noticed at the next commit,
before anything is reported as kept. Knows nothing of what the events mean.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, Literal

from callgate._clock import Clock, SystemClock
from callgate._journal.commits import Commits, Tail
from callgate._journal.reading import narrowed, verified
from callgate._journal.rows import GENESIS, Broken, calls_of, causes_of, event_of, row_of
from callgate._journal.stored import StoredJournal
from callgate._journal.tables import ADD_CALL, ADD_CAUSE, ADD_EVENT, LAST_EVENT, SQLITE, VERSION, migrations, question
from callgate.errors import JournalFailed, UsageError
from callgate.events import Event
from callgate.protocols import JournalStatus
from callgate.queries import EventQuery, select

if TYPE_CHECKING:
    import apsw

__all__ = ["SqliteJournal", "SqliteReader"]

_SAFE_SQLITE: Final = (3, 51, 3)
"""Older ones can corrupt a write-ahead log that two connections use at once."""
_FIRST_WITH_FINDING_TABLES: Final = 2
_PROMISES: Final = {
    "full": "what was reported as kept survives a crash and a loss of power",
    "process": "WEAKER: what was reported as kept survives a crash of the process; a loss of power may take the last commits",
}


class SqliteJournal(StoredJournal):
    """A `Journal` in a file.

    Args:
        path: Made if it does not exist, its folder too. A file of an older version is brought to this one.
        synchronous: `full` waits until the disk has each commit. `normal` does not: faster, and a loss of power may take what was
            already reported as kept; `status` says so.

    Raises:
        UsageError: Another process writes to it, or it is no journal of a version this callgate knows.
    """

    def __init__(self, path: str | Path, clock: Clock | None = None, *, synchronous: Literal["full", "normal"] = "full") -> None:
        if synchronous not in ("full", "normal"):
            raise UsageError(f"synchronous={synchronous!r} is none of 'full' and 'normal'. Take 'full' unless you can lose the last calls.")
        self.path = Path(path).resolve()  # two names of one file are one journal
        self.strength = "full" if synchronous == "full" else "process"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = _take_lock(self.path)
        try:
            writing = _prepared(self.path, synchronous)
            tail = Tail(*_tail(writing), epoch=_next_epoch(writing))
            self._reader = _connected(self.path, synchronous)
        except BaseException:
            self._lock.close()
            Path(f"{self.path}.lock").unlink(missing_ok=True)
            raise
        self._reading = threading.Lock()
        store = _Store(self.path, writing, tail.epoch, self._lock)
        self._commits = Commits(store, tail, clock or SystemClock(), last_seq=self._last_seq, where=str(self.path))
        self._closed = False

    def _stored(self, query: EventQuery, upto: int | None) -> list[Event]:
        with self._reading:
            return list(_found(self._reader, query, upto))

    def verify(self, *, tail: int | None = None) -> Broken | None:
        """The first event that does not hold, or None; of the last `tail` events only, if given."""
        with self._reading:
            return verified(lambda query: _found(self._reader, query), tail)

    def status(self) -> JournalStatus:
        return self._commits.status("sqlite", self.strength, _PROMISES[self.strength])

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        await self._commits.close()
        self._reader.close()
        self._lock.close()

    def _last_seq(self, run: str) -> int:
        with self._reading:
            return int(self._reader.execute("SELECT coalesce(max(seq), 0) FROM events WHERE run = ?", (run,)).get)


class _Store:
    """The file, for the writing thread."""

    def __init__(self, path: Path, connection: apsw.Connection, epoch: int, lock: IO[str]) -> None:
        self._path = path
        self._connection = connection
        self._epoch = epoch
        self._files = {path: _identity(os.stat(path)), Path(f"{path}.lock"): _identity(os.fstat(lock.fileno()))}

    def write(self, batch: Sequence[Event]) -> None:
        with self._connection as connection:
            if connection.execute("SELECT epoch FROM writer").get != self._epoch:
                raise JournalFailed(
                    f"Another engine has taken over the journal {self._path}. Nothing more is recorded here; end this engine."
                )
            _insert(connection, batch)
        self._check_files()

    def _check_files(self) -> None:
        """Whether what was just committed is in the file that has the name: before it is reported as kept."""
        wal = Path(f"{self._path}-wal")
        for path, identity in self._files.items():
            try:
                same = _identity(os.stat(path)) == identity
            except FileNotFoundError:
                same = False
            if not same:
                raise JournalFailed(
                    f"{path} was deleted or replaced while it was open. Nothing more is recorded by this engine, and what it recorded"
                    " last may be lost. Put the file back or take another one, then make a new engine."
                )
        if wal not in self._files:
            self._files[wal] = _identity(os.stat(wal))

    def renew(self) -> None:
        """Nothing has to be renewed: the lock lives as long as the process."""

    def close(self) -> None:
        self._connection.close()


class SqliteReader:
    """A `Reader` of a file; one of an older version is read as it is.

    Raises:
        UsageError: There is no journal at `path`.
    """

    def __init__(self, path: str | Path) -> None:
        import apsw

        if not Path(path).is_file():
            raise UsageError(f"There is no journal at {path}. Give the file that a run wrote, with --journal.")
        try:
            self._connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
            self._connection.set_busy_timeout(5000)
            self._version = _known_version(self._connection, Path(path))
            if self._version == 0:
                raise UsageError(f"{path} is no journal: it is an empty database. Give the file that a run wrote, with --journal.")
        except apsw.Error as error:
            raise UsageError(f"{path} cannot be read as a journal: {error}.") from error

    def find(self, query: EventQuery) -> Iterator[Event]:
        if query.derived and self._version < _FIRST_WITH_FINDING_TABLES:
            return iter(select(_found(self._connection, EventQuery()), query))
        return _found(self._connection, query)

    def verify(self, *, tail: int | None = None) -> Broken | None:
        return verified(self.find, tail)

    def close(self) -> None:
        self._connection.close()


def _found(connection: apsw.Connection, query: EventQuery, upto: int | None = None) -> Iterator[Event]:
    sql, values = question(query, upto)
    return narrowed(map(event_of, connection.execute(sql, values)), query)


def _insert(connection: apsw.Connection, batch: Sequence[Event]) -> None:
    connection.executemany(ADD_EVENT, map(row_of, batch))
    _insert_finding(connection, batch)


def _insert_finding(connection: apsw.Connection, batch: Sequence[Event]) -> None:
    connection.executemany(ADD_CAUSE, causes_of(batch))
    connection.executemany(ADD_CALL, calls_of(batch))


def _connected(path: Path, synchronous: str) -> apsw.Connection:
    import apsw

    version = tuple(int(part) for part in apsw.sqlite_lib_version().split("."))
    if version < _SAFE_SQLITE:
        raise UsageError(
            f"SQLite {apsw.sqlite_lib_version()} can corrupt a journal; {'.'.join(map(str, _SAFE_SQLITE))} is the oldest that is safe."
        )
    connection = apsw.Connection(str(path))
    connection.set_busy_timeout(5000)
    for pragma in ("journal_mode=WAL", f"synchronous={synchronous.upper()}"):  # one by one: a statement that gives a row ends the call
        connection.execute(f"PRAGMA {pragma}")
    return connection


def _prepared(path: Path, synchronous: str) -> apsw.Connection:
    """A connection to a journal that is there and of our version."""
    import apsw

    try:
        connection = _connected(path, synchronous)
        version = _known_version(connection, path)
        if version == 0 and connection.execute("SELECT count(*) FROM sqlite_master").get:
            raise UsageError(f"{path} is a database, but no journal. Give another file.")
        for number, statements in migrations(SQLITE, version):
            with connection:
                for statement in statements:
                    connection.execute(statement)
                if number == _FIRST_WITH_FINDING_TABLES:
                    _fill(connection)
                connection.execute(f"PRAGMA user_version = {number}")
    except apsw.Error as error:
        raise UsageError(f"{path} cannot be used as a journal: {error}. Give another file.") from error
    return connection


def _fill(connection: apsw.Connection) -> None:
    """Make the tables that only serve to find things from the events that are there."""
    position = 0
    while page := list(_found(connection, EventQuery(after=position, limit=5_000))):
        _insert_finding(connection, page)
        position = page[-1].position


def _known_version(connection: apsw.Connection, path: Path) -> int:
    version = int(connection.execute("PRAGMA user_version").get)
    if version > VERSION:
        raise UsageError(f"{path} was written by a newer callgate (journal version {version}; this one knows {VERSION}). Upgrade callgate.")
    return version


def _tail(connection: apsw.Connection) -> tuple[int, str]:
    row = connection.execute(LAST_EVENT).fetchone()
    return (row[0], row[1]) if row else (0, GENESIS)


def _next_epoch(connection: apsw.Connection) -> int:
    """Take over: whoever wrote here before can no longer."""
    return int(connection.execute("UPDATE writer SET epoch = epoch + 1, holder = ? RETURNING epoch", (str(os.getpid()),)).get)


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


def _take_lock(path: Path) -> IO[str]:
    """Hold the file's lock for as long as the journal is open."""
    lock = open(f"{path}.lock", "a+", encoding="ascii")  # noqa: SIM115
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.seek(0)
        holder = lock.read(20).strip() or "unknown"
        lock.close()
        raise UsageError(
            f"The journal {path} is being written by another engine (process {holder}). Close it, or give another file."
        ) from None
    lock.truncate(0)
    lock.write(str(os.getpid()))
    lock.flush()
    return lock
