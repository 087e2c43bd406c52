"""Events in an SQLite file: what was reported as durable survives power loss.

`append` gives an event its place in memory and returns at once; one writer thread commits whatever has gathered (group commit, WAL,
synchronous FULL), and `durable` waits for that. One writer per file, held by a lock beside it; any number of readers. Knows nothing of
what the events mean.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING

from callgate._clock import Clock, SystemClock
from callgate._journal.rows import COLUMNS, GENESIS, SCHEMA, Broken, chain, event_of, row_of, verify
from callgate.errors import UsageError
from callgate.events import Draft, Event

if TYPE_CHECKING:
    import apsw

__all__ = ["SqliteJournal", "open_reader", "read_events"]

_SAFE_SQLITE = (3, 51, 3)
"""Older ones can corrupt a write-ahead log that two connections use at once."""
_MOST_PENDING = 100_000
_VERSION = 1


class SqliteJournal:
    """A `Journal` in a file.

    Args:
        path: Made if it does not exist, its folder too.

    Raises:
        UsageError: Another process writes to it, or it is no journal of a version this callgate knows.
    """

    strength = "full"

    def __init__(self, path: str | Path, clock: Clock | None = None) -> None:
        self.path = Path(path).resolve()  # two names of one file are one journal
        self._clock = clock or SystemClock()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = _take_lock(self.path)
        try:
            self._reader = _prepared(self.path)
            self._position, self._hash = _tail(self._reader)
        except BaseException:
            self._lock.close()
            Path(f"{self.path}.lock").unlink(missing_ok=True)
            raise
        self._seq: dict[str, int] = {}
        self._pending: deque[Event] = deque()
        self._written = self._position
        self._failure: Exception | None = None
        self._waiters: list[tuple[int, asyncio.AbstractEventLoop, asyncio.Future[None]]] = []
        self._guard = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._write_forever, name="callgate-journal", daemon=True)
        self._thread.start()

    def append(self, draft: Draft) -> int:
        with self._guard:
            self._refuse_if_broken()
            position, seq = self._position + 1, self._next_seq(draft.run)
            event = draft.sealed(position=position, seq=seq, at_ns=self._clock.wall_ns(), mono=self._clock.monotonic())
            self._position, self._seq[draft.run] = position, seq  # only now: an event that cannot be encoded must not leave a gap
            self._pending.append(event)
            if len(self._pending) == 1:
                self._guard.notify()
        return event.position

    async def durable(self, position: int) -> None:
        if position <= self._written:
            return
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        with self._guard:
            if self._failure is not None:
                raise self._failure
            if position <= self._written:
                return
            self._waiters.append((position, loop, future))
        await future

    def read(
        self, *, run: str | None = None, call: str | None = None, after: int = 0, limit: int | None = None, newest_first: bool = False
    ) -> Iterable[Event]:
        with self._guard:
            waiting = [e for e in self._pending if e.position > after and run in (None, e.run) and call in (None, e.call)]
            stored = list(read_events(self._reader, run=run, call=call, after=after, limit=limit, newest_first=newest_first))
        last = max((event.position for event in stored), default=after)
        fresh = [event for event in waiting if event.position > last]
        return ([*reversed(fresh), *stored] if newest_first else [*stored, *fresh])[:limit]

    def verify(self) -> Broken | None:
        """The first event that does not hold, or None."""
        return verify(read_events(self._reader))

    async def close(self) -> None:
        with self._guard:
            if self._closing:
                return
            self._closing = True
            self._guard.notify()
        await asyncio.get_running_loop().run_in_executor(None, self._thread.join, 5.0)
        self._reader.close()
        self._lock.close()

    def _refuse_if_broken(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._closing:
            raise UsageError(f"The journal {self.path} is closed.")
        if len(self._pending) >= _MOST_PENDING:
            raise UsageError(f"The journal {self.path} cannot keep up: {_MOST_PENDING} events wait to be written. Check the disk.")

    def _next_seq(self, run: str) -> int:
        last = self._seq.get(run)
        if last is None:
            last = self._reader.execute("SELECT coalesce(max(seq), 0) FROM events WHERE run = ?", (run,)).get
        return int(last) + 1

    def _write_forever(self) -> None:
        try:
            connection = _connect(self.path)
        except Exception as error:
            self._fail(error)
            return
        insert = f"INSERT INTO events ({', '.join(COLUMNS)}) VALUES ({', '.join('?' * len(COLUMNS))})"
        try:
            while batch := self._next_batch():
                try:
                    with connection:
                        connection.executemany(insert, [row_of(event) for event in batch])
                except Exception as error:
                    self._fail(error)
                    return
                self._committed(batch)
        finally:
            connection.close()

    def _next_batch(self) -> list[Event]:
        """Whatever waits to be written, chained; empty when the journal closes and nothing waits."""
        with self._guard:
            while not self._pending and not self._closing:
                self._guard.wait()
            gathered = list(self._pending)
        batch = []
        for event in gathered:
            event = chain(event, self._hash)
            self._hash = event.hash
            batch.append(event)
        return batch

    def _committed(self, batch: list[Event]) -> None:
        with self._guard:
            for _ in batch:
                self._pending.popleft()
            self._written = batch[-1].position
            ready = [waiter for waiter in self._waiters if waiter[0] <= self._written]
            self._waiters = [waiter for waiter in self._waiters if waiter[0] > self._written]
        for _, loop, future in ready:
            _tell(loop, future, None)

    def _fail(self, error: Exception) -> None:
        """Nothing more can be recorded: refuse every further event, and tell whoever waits."""
        with self._guard:
            self._failure = error
            waiters, self._waiters = self._waiters, []
        for _, loop, future in waiters:
            _tell(loop, future, error)


def _tell(loop: asyncio.AbstractEventLoop, future: asyncio.Future[None], error: Exception | None) -> None:
    def settle() -> None:
        if future.done():
            return
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)

    with suppress(RuntimeError):  # the loop of whoever waited may be gone
        loop.call_soon_threadsafe(settle)


def open_reader(path: str | Path) -> apsw.Connection:
    """A connection that can only read, beside whoever writes.

    Raises:
        UsageError: There is no journal at `path`.
    """
    import apsw

    if not Path(path).is_file():
        raise UsageError(f"There is no journal at {path}. Give the file that a run wrote, with --journal.")
    try:
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
        connection.set_busy_timeout(5000)
        _check_version(connection, Path(path))
    except apsw.Error as error:
        raise UsageError(f"{path} cannot be read as a journal: {error}.") from error
    return connection


def read_events(
    connection: apsw.Connection,
    *,
    run: str | None = None,
    call: str | None = None,
    after: int = 0,
    limit: int | None = None,
    newest_first: bool = False,
) -> Iterator[Event]:
    """The stored events after position `after`, in order, or backwards from the last."""
    wheres, values = ["position > ?"], [after, run, call]
    if run is not None:
        wheres.append("run = ?")
    if call is not None:
        wheres.append("call = ?")
    order = "DESC" if newest_first else "ASC"
    query = f"SELECT {', '.join(COLUMNS)} FROM events WHERE {' AND '.join(wheres)} ORDER BY position {order} LIMIT ?"
    for row in connection.execute(query, (*(value for value in values if value is not None), -1 if limit is None else limit)):
        yield event_of(row)


def _connect(path: Path) -> apsw.Connection:
    import apsw

    version = tuple(int(part) for part in apsw.sqlite_lib_version().split("."))
    if version < _SAFE_SQLITE:
        raise UsageError(
            f"SQLite {apsw.sqlite_lib_version()} can corrupt a journal; {'.'.join(map(str, _SAFE_SQLITE))} is the oldest that is safe."
        )
    connection = apsw.Connection(str(path))
    connection.set_busy_timeout(5000)
    for pragma in ("journal_mode=WAL", "synchronous=FULL"):  # one by one: a statement that gives a row ends the call
        connection.execute(f"PRAGMA {pragma}")
    return connection


def _prepared(path: Path) -> apsw.Connection:
    """A connection to a journal that is there and of our version."""
    import apsw

    try:
        connection = _connect(path)
        _check_version(connection, path)
        with connection:
            connection.execute(SCHEMA)
            connection.execute(f"PRAGMA user_version = {_VERSION}")
    except apsw.Error as error:
        raise UsageError(f"{path} cannot be used as a journal: {error}. Give another file.") from error
    return connection


def _check_version(connection: apsw.Connection, path: Path) -> None:
    version = connection.execute("PRAGMA user_version").get
    if version > _VERSION:
        raise UsageError(
            f"{path} was written by a newer callgate (journal version {version}; this one knows {_VERSION}). Upgrade callgate."
        )


def _tail(connection: apsw.Connection) -> tuple[int, str]:
    row = connection.execute("SELECT position, hash FROM events ORDER BY position DESC LIMIT 1").fetchone()
    return (row[0], row[1]) if row else (0, GENESIS)


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
