"""Events in PostgreSQL, for teams: one journal per schema, any number of writers but one per run, and any number of readers.

Commits run one after the other, because each locks the same row. Leases expire by the server's clock. Each writer also holds an advisory
lock on its connection, so that others see at once if it is gone. A lost connection ends the writer: it is not known whether the last commit
arrived, so its events are not reported as durable, and nothing is sent again without the engine's knowledge. Bodies are bytes, never
`jsonb`, which would not return the same bytes. Knows nothing of what the events mean.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

from msgspec.structs import replace

from callgate._clock import Clock, SystemClock
from callgate._engine_limits import LEASE_S
from callgate._journal.commit_batching import CommitQueue
from callgate._journal.commit_writer import CommitWriter
from callgate._journal.event_positions import JournalEnd
from callgate._journal.event_rows import ChainFault, Value, calls_of, causes_of, event_to_row, row_to_event
from callgate._journal.journal_reader import select_and_limit, verify_events
from callgate._journal.journal_watcher import JournalWatcher
from callgate._journal.lease_acquisition import Leases, refuse_odd_lease
from callgate._journal.postgres_blobs import TABLE, PostgresBlobs, read_blob
from callgate._journal.postgres_server import PostgresSchema, opening_errors, server_errors, sql, without_nul
from callgate._journal.sql_leases import Ask, SqlInbox, SqlLeases
from callgate._journal.sql_schema import (
    ADD_CALL,
    ADD_CAUSE,
    ADD_EVENT,
    LAST_EVENT,
    LAST_SEQ,
    POSTGRES,
    VERSION,
    migrations,
    not_indexed,
    select_events,
    to_index,
)
from callgate._journal.stored_journal import StoredJournal
from callgate._option_checks import by_name
from callgate._process_identity import has_ended, process_identity
from callgate.errors import JournalFailed, UsageError
from callgate.event_queries import EventQuery, select
from callgate.events import Draft, Event
from callgate.protocols import Inbox, InboxMessage, JournalStatus, LeaseStore

if TYPE_CHECKING:
    from callgate._journal.postgres_server import Connection, Cursor

__all__ = ["PostgresJournal", "PostgresReader", "ServerClock"]

T = TypeVar("T")
_SCHEMA: Final = "callgate"
_LONGEST_KEY: Final = 512
_FETCH: Final = 2_000
_STRENGTH: Final = "full"
_PROMISE: Final = "what was reported as kept survives whatever the server's own commits survive (synchronous_commit is on)"
_NOW: Final = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000000)::bigint"
_NUMBER: Final = "UPDATE writer SET epoch = epoch + 1 RETURNING epoch"
_SHOW: Final = "SELECT pg_advisory_lock(hashtext(?), (? & 2147483647)::int)"
_TRY: Final = "SELECT pg_try_advisory_xact_lock(hashtext(?), (? & 2147483647)::int)"


class PostgresJournal(StoredJournal):
    """A `Journal` in a schema of a PostgreSQL database.

    Args:
        url: `postgresql://user@host/database`, or another form that libpq accepts.
        schema: The schema of this journal, which must hold nothing else. It is created if it does not exist. A schema
            in the address, as `?schema=NAME`, takes precedence.
        lease_s: Seconds after the last renewal until the leases of an engine that hangs expire. An engine whose
            connection is lost loses its leases at once.

    Raises:
        UsageError: The server cannot be reached, or the schema is not a journal of a version that this callgate knows.
    """

    strength = _STRENGTH
    remote = True

    @by_name
    def __init__(self, url: str, clock: Clock | None = None, *, schema: str = _SCHEMA, lease_s: float = LEASE_S) -> None:
        refuse_odd_lease(lease_s)
        self._place = place = PostgresSchema(url, schema)
        writing = place.connect()
        try:
            with opening_errors(place):
                _prepare(writing, place)
                number = int(writing.execute(sql(_NUMBER)).fetchall()[0][0])
                writing.execute(sql(_SHOW), (_lock_of(place), number))
                row = writing.execute(LAST_EVENT).fetchone()
                seqs: dict[str, int] = dict(writing.execute("SELECT run, max(seq) FROM events GROUP BY run").fetchall())
                self._reader = place.connect()
        except BaseException:
            writing.close()
            raise
        self.writer = process_identity()
        """See `callgate.protocols.NamesWriters`."""
        self._reading = threading.Lock()
        self.blobs = PostgresBlobs(self._read_blob)
        """Large results, in the same schema. Each is stored before the event that refers to it."""
        self._watcher = JournalWatcher(place.name)
        store = _Store(place, writing, self.blobs)
        leases = Leases(store.leases, number, f"process {os.getpid()} on {socket.gethostname()}", lease_s)
        self._commits = CommitQueue(
            CommitWriter(store, JournalEnd(*row) if row else JournalEnd(), leases, lease_s / 3),
            clock or SystemClock(),
            lambda run: seqs.get(run, 0),
            where=place.name,
            on_lost=self._watcher.lost,
            on_message=self._watcher.message_arrived,
        )
        self._closed = False

    @property
    def address(self) -> str:
        """The address of the journal with its schema and its password, for `callgate.inbox` and for readers."""
        return self._place.address

    def append(self, draft: Draft) -> int:
        for word in (draft.run, draft.call, draft.kind):
            if "\x00" in word or len(word) > _LONGEST_KEY:
                raise UsageError(f"PostgreSQL cannot hold {word[:40]!r} as an id: at most {_LONGEST_KEY} characters, none of them NUL.")
        return super().append(draft)

    def has_ended(self, writer: str) -> bool:
        """See `callgate.protocols.NamesWriters`. A lost connection proves nothing; a dead process on this machine does."""
        return has_ended(writer)

    def _find_stored(self, query: EventQuery) -> list[Event]:
        return self._run_on_reader(lambda reader: list(_find(reader, query)))

    def _read_blob(self, digest: str) -> bytes | None:
        return self._run_on_reader(lambda reader: read_blob(reader, digest))

    def _run_on_reader(self, ask: Callable[[Connection], T]) -> T:
        with self._reading:
            try:
                with server_errors(self._place):
                    return ask(self._reader)
            except JournalFailed:
                if self._closed or not self._reader.closed:
                    raise
            try:
                self._reader = self._connect_reader()  # a read may be repeated; a write may not
            except UsageError as error:
                raise JournalFailed(str(error)) from error
            with server_errors(self._place):
                return ask(self._reader)

    def _connect_reader(self) -> Connection:
        reader = self._place.connect()
        if self._closed:  # meanwhile
            reader.close()
        return reader

    def verify(self, *, tail: int | None = None) -> ChainFault | None:
        """Return the first event at which verification fails, or None. If `tail` is given, only the last `tail` events are checked."""
        with self._reading, server_errors(self._place):
            return verify_events(lambda query: _find(self._reader, query), tail)

    def status(self) -> JournalStatus:
        return self._commits.status("postgres", self.strength, _PROMISE)

    async def close(self) -> None:
        if self._closed:
            return
        await self._commits.close()
        self._closed = True  # after the close: an interrupted close is repeated
        self._watcher.clear()
        self._reader.close()


class ServerClock:
    """The server's time, and whether writers are alive by the advisory locks of their connections."""

    def __init__(self, place: PostgresSchema, ask: Ask) -> None:
        self._lock = _lock_of(place)
        self._ask = ask

    def now_ns(self) -> int:
        return int(self._ask(_NOW, ())[0][0])

    def is_alive(self, holder: int) -> bool:
        return not self._ask(_TRY, (self._lock, holder))[0][0]


class _Store:
    """The schema, as the writing thread uses it."""

    def __init__(self, place: PostgresSchema, connection: Connection, blobs: PostgresBlobs) -> None:
        self._place = place
        self._connection = connection
        self._blobs = blobs
        self.leases: LeaseStore = SqlLeases(self._ask, ServerClock(place, self._ask), counter="SELECT epoch FROM writer FOR UPDATE")
        self.inbox: Inbox = SqlInbox(self._ask)

    @contextmanager
    def commit(self) -> Iterator[None]:
        with server_errors(self._place):
            self._blobs.write(self._connection)  # before the commit, because all other writers wait during it
            with self._connection.transaction():
                yield

    def _ask(self, text: str, values: Sequence[Value]) -> list[tuple[Any, ...]]:
        cursor = self._connection.execute(sql(text), [without_nul(value) if isinstance(value, str) else value for value in values])
        return cursor.fetchall() if cursor.description else []

    def tail(self) -> JournalEnd:
        rows = self._ask(LAST_EVENT, ())
        return JournalEnd(*rows[0]) if rows else JournalEnd()

    def last_seq(self, run: str) -> int:
        return int(self._ask(LAST_SEQ, (run,))[0][0])

    def insert(self, batch: Sequence[Event]) -> None:
        with self._connection.cursor() as cursor:
            _insert(cursor, batch)

    def read_inbox(self, read: Callable[[], list[InboxMessage]], *, again: bool) -> list[InboxMessage]:
        del again
        with server_errors(self._place):
            return read()

    def close(self) -> None:
        try:
            with server_errors(self._place):
                self._blobs.write(self._connection)
        finally:
            self._connection.close()


class PostgresReader:
    """A `JournalReader` of a schema; `?schema=NAME` in the address selects another schema than `callgate`.

    Raises:
        UsageError: There is no journal.
    """

    def __init__(self, url: str) -> None:
        self.place = PostgresSchema(url, _SCHEMA)
        self.connection = self.place.connect()
        try:
            with opening_errors(self.place):
                self.version = _version(self.connection, self.place)
                if not self.version:
                    raise UsageError(f"There is no journal at {self.place.name}. Name its schema in the address: ?schema=NAME.")
        except BaseException:
            self.connection.close()
            raise

    @property
    def blobs(self) -> PostgresBlobs:
        """The large results in the schema."""
        return PostgresBlobs(self._read_blob)

    def _read_blob(self, digest: str) -> bytes | None:
        with server_errors(self.place):
            return read_blob(self.connection, digest)

    def find(self, query: EventQuery) -> Iterator[Event]:
        with server_errors(self.place):
            if not_indexed(query, self.version):
                yield from select(_find(self.connection, EventQuery()), query)
            else:
                yield from _find(self.connection, query)

    def verify(self, *, tail: int | None = None) -> ChainFault | None:
        return verify_events(self.find, tail)

    def damage(self) -> str:
        """Return an empty string: the server checks its own storage. See `JournalReader`."""
        return ""

    def close(self) -> None:
        self.connection.close()


def _find(connection: Connection, query: EventQuery) -> Iterator[Event]:
    """Yield the events that match the query. They are fetched in pages, so that a long answer does not fill the memory."""
    text, values = select_events(query)
    with connection.transaction(), connection.cursor(name="callgate") as cursor:
        cursor.itersize = _FETCH
        cursor.execute(sql(text), [without_nul(value) if isinstance(value, str) else value for value in values], binary=True)
        yield from select_and_limit(map(row_to_event, cursor), query)


def _insert(cursor: Cursor, batch: Sequence[Event]) -> None:
    if not batch:
        return
    cursor.executemany(sql(ADD_EVENT), [event_to_row(event) for event in batch])
    _insert_lookup_rows(cursor, batch)


def _insert_lookup_rows(cursor: Cursor, batch: Iterable[Event]) -> None:
    if causes := causes_of(batch):
        cursor.executemany(sql(ADD_CAUSE), causes)
    _insert_calls(cursor, batch)


def _insert_calls(cursor: Cursor, batch: Iterable[Event]) -> None:
    if calls := calls_of(batch):
        rows = [(call, *map(without_nul, words), final) for call, *words, final in calls]
        cursor.executemany(sql(ADD_CALL), rows)


def _prepare(connection: Connection, place: PostgresSchema) -> None:
    """Create the schema, or migrate it to the current version. One engine at a time."""
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", (f"callgate {place.schema}",))
        if connection.execute("SELECT to_regnamespace(%s) IS NULL", (place.schema,)).fetchone() == (True,):
            connection.execute(sql(f"CREATE SCHEMA {place.schema}"))
        connection.execute("CREATE TABLE IF NOT EXISTS journal_version (number BIGINT PRIMARY KEY)")
        connection.execute(TABLE)
        version = _version(connection, place)
        for number, statements in migrations(POSTGRES, version):
            for statement in statements:
                connection.execute(sql(statement))
            connection.execute("INSERT INTO journal_version VALUES (%s)", (number,))
        if version:
            _fill(connection, version)


def _fill(connection: Connection, version: int) -> None:
    """Add what the table of calls lacks since this version, from the stored events."""
    query = to_index(version)
    while query is not None and (page := list(_find(connection, query))):
        with connection.cursor() as cursor:
            _insert_calls(cursor, page)
        query = replace(query, after=page[-1].position)


def _version(connection: Connection, place: PostgresSchema) -> int:
    there = connection.execute("SELECT to_regclass(%s)", (f"{place.schema}.journal_version",)).fetchone()
    if there is None or there[0] is None:
        return 0
    row = connection.execute("SELECT coalesce(max(number), 0) FROM journal_version").fetchone()
    version = int(row[0]) if row else 0
    if version > VERSION:
        raise UsageError(
            f"{place.name} was written by a newer callgate (journal version {version}; this one knows {VERSION}). Upgrade callgate."
        )
    return version


def _lock_of(place: PostgresSchema) -> str:
    """Return the name of the advisory locks of a schema's writers."""
    return f"callgate writers of {place.schema}"
