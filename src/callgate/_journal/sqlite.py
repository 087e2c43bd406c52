"""Events in an SQLite file: what was reported as durable survives power loss.

Any number of writers, one for each run, and any number of readers. Each writer has a number and holds the byte of that number locked in a
file beside the journal, for as long as it lives: so others see at once that it is gone. Commits go through the write-ahead log, synchronous
FULL unless the weaker mode is asked for. A file that is deleted, replaced or cut under its writer is noticed at the next commit, before
anything is reported as kept. Knows nothing of what the events mean.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from callgate._clock import Clock, SystemClock
from callgate._journal.blobs_beside import BlobsBeside
from callgate._journal.commits import Commits
from callgate._journal.files import TURN_S, JournalFiles, refuse_remains
from callgate._journal.leases import Ask, Leases, refuse_odd_lease
from callgate._journal.lockfile import LockFile, LockLook
from callgate._journal.placing import Tail
from callgate._journal.rows import Broken, Value
from callgate._journal.sqlite_reader import BUSY_MS, FIRST_WITH_FINDING_TABLES, checked, found, known_version
from callgate._journal.sqlite_rows import insert, insert_finding
from callgate._journal.stored import StoredJournal
from callgate._journal.tables import LAST_EVENT, LAST_SEQ, SQLITE, VERSION, migrations
from callgate._journal.writing import Writing
from callgate._limits import LEASE_S
from callgate._options import by_name
from callgate.errors import JournalFailed, UsageError
from callgate.events import Event
from callgate.protocols import JournalStatus, Letter
from callgate.queries import EventQuery

if TYPE_CHECKING:
    import apsw

__all__ = ["MachineTime", "SqliteJournal"]

_SAFE_SQLITE: Final = (3, 51, 3)
"""Older ones can corrupt a write-ahead log that two connections use at once."""
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
        lease_s: How long after its last sign of life an engine that stands still keeps others from its runs. One that is gone keeps nobody.

    Raises:
        UsageError: It is no journal of a version this callgate knows, or an older callgate writes to it.
    """

    @by_name
    def __init__(
        self,
        path: str | Path,
        clock: Clock | None = None,
        *,
        synchronous: Literal["full", "normal"] = "full",
        lease_s: float = LEASE_S,
    ) -> None:
        if synchronous not in ("full", "normal"):
            raise UsageError(f"synchronous={synchronous!r} is none of 'full' and 'normal'. Take 'full' unless you can lose the last calls.")
        refuse_odd_lease(lease_s)
        self.path = Path(path).resolve()  # two names of one file are one journal
        self.strength = "full" if synchronous == "full" else "process"
        self.blobs = BlobsBeside(self.path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = LockFile(self.path)
        try:
            refuse_remains(self.path, was_journal=self._lock.is_marked)
            writing = _prepared(self.path, synchronous)
            number = _next_number(writing, self.path)
            tail = _tail(writing, self.path)
            writing.set_busy_timeout(TURN_S * 1_000)
            self._lock.hold(number)
            self._lock.mark()
            self._reader = _connected(self.path, synchronous)
        except BaseException:
            self._lock.take_back()
            raise
        self.writer = str(number)
        """See `callgate.protocols.NamesWriters`."""
        self._reading = threading.Lock()
        self._watchers = []
        leases = Leases(MachineTime(self._lock), number, f"process {os.getpid()}", lease_s)
        store = _Store(self.path, writing, JournalFiles(self.path, writing, {self._lock.path: self._lock.identity}))
        last_seq = self._last_seq
        self._commits = Commits(
            Writing(store, tail, leases, lease_s / 3),
            clock or SystemClock(),
            last_seq,
            where=str(self.path),
            on_lost=self._lost,
            on_letter=self._came,
        )
        self._closed = False

    @property
    def files(self) -> tuple[str, ...]:
        """See `callgate.protocols.OnDisk`."""
        return (*(f"{self.path}{end}" for end in ("", "-wal", "-shm", "-journal", ".lock")), *self.blobs.files)

    def has_ended(self, writer: str) -> bool:
        """See `callgate.protocols.NamesWriters`: the kernel lets go of a writer's lock when its process ends, however it ends."""
        return writer.isdigit() and writer != self.writer and not self._closed and not self._lock.is_held(int(writer))

    def _stored(self, query: EventQuery) -> list[Event]:
        with self._reading:
            return list(found(self._reader, query))

    def verify(self, *, tail: int | None = None) -> Broken | None:
        """The first event that does not hold, or None; of the last `tail` events only, if given."""
        with self._reading:
            return checked(self._reader, tail)

    def status(self) -> JournalStatus:
        return self._commits.status("sqlite", self.strength, _PROMISES[self.strength])

    async def close(self) -> None:
        if self._closed:
            return
        await self._commits.close()
        self._closed = True  # only now: a close that was cut off, as by the end of its event loop, is done again
        self._reader.close()
        self._lock.close()

    def _last_seq(self, run: str) -> int:
        with self._reading:
            return int(self._reader.execute(LAST_SEQ, (run,)).get)


class MachineTime:
    """The machine's time since it was started, which nobody can set, and whose locks are held."""

    def __init__(self, lock: LockFile | LockLook) -> None:
        self._lock = lock

    def now_ns(self, ask: Ask) -> int:
        del ask
        return time.clock_gettime_ns(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))

    def lives(self, ask: Ask, holder: int) -> bool:
        del ask
        return self._lock.is_held(holder)


class _Store:
    """The file, for the writing thread."""

    counter = "SELECT epoch FROM writer"

    def __init__(self, path: Path, connection: apsw.Connection, files: JournalFiles) -> None:
        self._path = path
        self._connection = connection
        self._files = files
        self._seen = -1

    @contextmanager
    def commit(self) -> Iterator[Ask]:
        self._begin()
        try:
            yield self._ask
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise
        self._files.check()

    def _begin(self) -> None:
        import apsw

        try:
            self._files.check_log()
            self._connection.execute("BEGIN IMMEDIATE")
        except apsw.BusyError as error:
            raise JournalFailed(_held_up(self._path, TURN_S)) from error

    def _ask(self, sql: str, values: Sequence[Value]) -> list[tuple[Any, ...]]:
        return self._connection.execute(sql, values).fetchall()

    def insert(self, batch: Sequence[Event]) -> None:
        insert(self._connection, batch)

    def look(self, see: Callable[[Ask], list[Letter]], *, again: bool) -> list[Letter]:
        version = self._connection.execute("PRAGMA data_version").get
        seen, self._seen = self._seen, version
        return see(self._ask) if again or version != seen else []

    def close(self) -> None:
        self._connection.close()


def _connected(path: Path, synchronous: str) -> apsw.Connection:
    import apsw

    version = tuple(int(part) for part in apsw.sqlite_lib_version().split("."))
    if version < _SAFE_SQLITE:
        raise UsageError(
            f"SQLite {apsw.sqlite_lib_version()} can corrupt a journal; {'.'.join(map(str, _SAFE_SQLITE))} is the oldest that is safe."
        )
    connection = apsw.Connection(str(path))
    connection.set_busy_timeout(BUSY_MS)
    _refuse_other_databases(connection, path)
    for pragma in ("journal_mode=WAL", f"synchronous={synchronous.upper()}"):  # one by one: a statement that gives a row ends the call
        connection.execute(f"PRAGMA {pragma}")
    return connection


def _prepared(path: Path, synchronous: str) -> apsw.Connection:
    """A connection to a journal that is there and of our version."""
    import apsw

    try:
        connection = _connected(path, synchronous)
        if known_version(connection, path) < VERSION:
            _migrate(connection, path)
    except apsw.Error as error:
        raise _unusable(path, error) from error
    return connection


def _refuse_other_databases(connection: apsw.Connection, path: Path) -> None:
    """Before anything is set that the file keeps."""
    unmarked = known_version(connection, path) == 0 and connection.execute("SELECT count(*) FROM sqlite_master").get
    if unmarked and known_version(connection, path) == 0:  # another engine may have made it just now
        raise UsageError(f"{path} is a database, but no journal. Give another file.")


def _unusable(path: Path, error: Exception | str) -> UsageError:
    return UsageError(f"{path} cannot be used as a journal: {error}. Give another file.")


def _migrate(connection: apsw.Connection, path: Path) -> None:
    """Bring the tables to our version; one engine at a time."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        for number, statements in migrations(SQLITE, known_version(connection, path)):
            for statement in statements:
                connection.execute(statement)
            if number == FIRST_WITH_FINDING_TABLES:
                _fill(connection)
            connection.execute(f"PRAGMA user_version = {number}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _fill(connection: apsw.Connection) -> None:
    """Make the tables that only serve to find things from the events that are there."""
    position = 0
    while page := list(found(connection, EventQuery(after=position, limit=5_000))):
        insert_finding(connection, page)
        position = page[-1].position


def _tail(connection: apsw.Connection, path: Path) -> Tail:
    import apsw

    try:
        row = connection.execute(LAST_EVENT).fetchone()
    except apsw.Error as error:
        raise _unusable(path, error) from error
    return Tail(*row) if row else Tail()


def _next_number(connection: apsw.Connection, path: Path) -> int:
    """A number that no other engine has, had or will have."""
    import apsw

    try:
        row = connection.execute("UPDATE writer SET epoch = epoch + 1, holder = ? RETURNING epoch", (str(os.getpid()),)).fetchone()
    except apsw.BusyError as error:
        raise UsageError(_held_up(path, BUSY_MS // 1_000)) from error
    except apsw.Error as error:
        raise _unusable(path, error) from error
    if row is None:
        raise _unusable(path, "its counter of writers is gone")
    return int(row[0])


def _held_up(path: Path, waited_s: int) -> str:
    return (
        f"The journal {path} could not be written to for {waited_s} s: another process holds its write lock, as one does that was"
        " stopped in the middle of a commit. Let that one go on, or kill it."
    )
