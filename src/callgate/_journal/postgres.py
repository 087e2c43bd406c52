"""Events in PostgreSQL, for teams: one journal per schema, one writer at a time, readers from anywhere.

The writer holds a lease by the server's clock. Each commit renews it and is refused by the database where another engine has taken over;
an idle writer renews at a third. A lost connection ends the writer: whether the last commit arrived is not known, so it is not reported
as kept, and nothing is sent again behind the engine's back. Bodies are bytes, never `jsonb`, which would not give back what was written.
Knows nothing of what the events mean.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from callgate._clock import Clock, SystemClock
from callgate._journal.commits import Commits, Tail
from callgate._journal.reading import narrowed, verified
from callgate._journal.rows import GENESIS, Broken, calls_of, causes_of, event_of, row_of
from callgate._journal.server import Place, opening, speaking, sql, storable
from callgate._journal.stored import StoredJournal
from callgate._journal.tables import ADD_CALL, ADD_CAUSE, ADD_EVENT, LAST_EVENT, POSTGRES, VERSION, migrations, question
from callgate.errors import JournalFailed, UsageError
from callgate.events import Draft, Event
from callgate.protocols import JournalStatus
from callgate.queries import EventQuery

if TYPE_CHECKING:
    from callgate._journal.server import Connection, Cursor

__all__ = ["PostgresJournal", "PostgresReader"]

_SCHEMA: Final = "callgate"
_LONGEST_KEY: Final = 512
_FETCH: Final = 2_000
_STRENGTH: Final = "full"
_PROMISE: Final = "what was reported as kept survives whatever the server's own commits survive (synchronous_commit is on)"
_NOW: Final = "(extract(epoch FROM clock_timestamp()) * 1000000000)::bigint"
_RENEW: Final = f"UPDATE writer SET expires_ns = {_NOW} + ? WHERE epoch = ?"
_TAKE: Final = f"UPDATE writer SET epoch = epoch + 1, holder = ?, expires_ns = {_NOW} + ? WHERE expires_ns <= {_NOW} RETURNING epoch"
_HELD: Final = f"SELECT holder, (expires_ns - {_NOW}) / 1e9 FROM writer"


class PostgresJournal(StoredJournal):
    """A `Journal` in a schema of a PostgreSQL database.

    Args:
        url: `postgresql://user@host/database`, or what else libpq takes.
        schema: Holds this journal and nothing else; made if it does not exist. Engines that write at the same time take one each. One
            that stands in the address, as `?schema=NAME`, counts instead.
        lease_s: How long after its last sign of life a writer that is gone keeps others out.

    Raises:
        UsageError: Another engine writes to it, the server cannot be reached, or it is no journal of a version this callgate knows.
    """

    strength = _STRENGTH

    def __init__(self, url: str, clock: Clock | None = None, *, schema: str = _SCHEMA, lease_s: float = 15.0) -> None:
        self._place = place = Place(url, schema)
        writing = place.connect()
        try:
            with opening(place):
                _prepare(writing, place)
                epoch = _take_over(writing, place, lease_s)
                row = writing.execute(LAST_EVENT).fetchone() or (0, GENESIS)
                seqs: dict[str, int] = dict(writing.execute("SELECT run, max(seq) FROM events GROUP BY run").fetchall())
                self._reader = place.connect()
        except BaseException:
            writing.close()
            raise
        self._reading = threading.Lock()
        store = _Store(place, writing, epoch, lease_s)
        tail = Tail(row[0], row[1], epoch)
        self._commits = Commits(
            store, tail, clock or SystemClock(), last_seq=lambda run: seqs.get(run, 0), where=place.name, renew_s=lease_s / 3
        )
        self._closed = False

    def append(self, draft: Draft) -> int:
        for word in (draft.run, draft.call, draft.kind):
            if "\x00" in word or len(word) > _LONGEST_KEY:
                raise UsageError(f"PostgreSQL cannot hold {word[:40]!r} as an id: at most {_LONGEST_KEY} characters, none of them NUL.")
        return super().append(draft)

    def _stored(self, query: EventQuery, upto: int | None) -> list[Event]:
        with self._reading:
            try:
                return self._fetched(query, upto)
            except JournalFailed:
                if not self._reader.closed:
                    raise
            self._reader = self._place.connect()  # asking again is safe; writing again would not be
            return self._fetched(query, upto)

    def _fetched(self, query: EventQuery, upto: int | None) -> list[Event]:
        with speaking(self._place):
            return list(_found(self._reader, query, upto))

    def verify(self, *, tail: int | None = None) -> Broken | None:
        """The first event that does not hold, or None; of the last `tail` events only, if given."""
        with self._reading, speaking(self._place):
            return verified(lambda query: _found(self._reader, query), tail)

    def status(self) -> JournalStatus:
        return self._commits.status("postgres", self.strength, _PROMISE)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        await self._commits.close()
        self._reader.close()


class _Store:
    """The schema, for the writing thread."""

    def __init__(self, place: Place, connection: Connection, epoch: int, lease_s: float) -> None:
        self._place = place
        self._connection = connection
        self._epoch = epoch
        self._lease_ns = int(lease_s * 1e9)

    def write(self, batch: Sequence[Event]) -> None:
        with speaking(self._place), self._connection.transaction(), self._connection.cursor() as cursor:
            self._hold(cursor)
            _insert(cursor, batch)

    def renew(self) -> None:
        with speaking(self._place), self._connection.cursor() as cursor:
            self._hold(cursor)

    def _hold(self, cursor: Cursor) -> None:
        """Renew the lease, and keep everybody from taking it until the commit is through."""
        cursor.execute(sql(_RENEW), (self._lease_ns, self._epoch))
        if cursor.rowcount != 1:
            raise JournalFailed(f"Another engine has taken over {self._place.name}. Nothing more is recorded here; end this engine.")

    def close(self) -> None:
        """Let the next writer in at once."""
        try:
            self._connection.execute(sql("UPDATE writer SET expires_ns = 0, holder = '' WHERE epoch = ?"), (self._epoch,))
        finally:
            self._connection.close()


class PostgresReader:
    """A `Reader` of a schema; `?schema=NAME` in the address names another than `callgate`.

    Raises:
        UsageError: There is no journal.
    """

    def __init__(self, url: str) -> None:
        self._place = Place(url, _SCHEMA)
        self._connection = self._place.connect()
        try:
            with opening(self._place):
                if not _version(self._connection, self._place):
                    raise UsageError(f"There is no journal at {self._place.name}. Name its schema in the address: ?schema=NAME.")
        except BaseException:
            self._connection.close()
            raise

    def find(self, query: EventQuery) -> Iterator[Event]:
        with speaking(self._place):
            yield from _found(self._connection, query)

    def verify(self, *, tail: int | None = None) -> Broken | None:
        return verified(self.find, tail)

    def close(self) -> None:
        self._connection.close()


def _found(connection: Connection, query: EventQuery, upto: int | None = None) -> Iterator[Event]:
    """Fetched piece by piece, so that a long answer does not fill memory."""
    text, values = question(query, upto)
    with connection.transaction(), connection.cursor(name="callgate") as cursor:
        cursor.itersize = _FETCH
        cursor.execute(sql(text), [storable(value) if isinstance(value, str) else value for value in values], binary=True)
        yield from narrowed(map(event_of, cursor), query)


def _insert(cursor: Cursor, batch: Iterable[Event]) -> None:
    cursor.executemany(sql(ADD_EVENT), [row_of(event) for event in batch])
    _insert_finding(cursor, batch)


def _insert_finding(cursor: Cursor, batch: Iterable[Event]) -> None:
    if causes := causes_of(batch):
        cursor.executemany(sql(ADD_CAUSE), causes)
    if calls := calls_of(batch):
        cursor.executemany(sql(ADD_CALL), [(call, storable(tool), storable(actor), final) for call, tool, actor, final in calls])


def _prepare(connection: Connection, place: Place) -> None:
    """Bring the schema to our version; one engine at a time."""
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", (f"callgate {place.schema}",))
        if connection.execute("SELECT to_regnamespace(%s) IS NULL", (place.schema,)).fetchone() == (True,):
            connection.execute(sql(f"CREATE SCHEMA {place.schema}"))
        connection.execute("CREATE TABLE IF NOT EXISTS journal_version (number BIGINT PRIMARY KEY)")
        for number, statements in migrations(POSTGRES, _version(connection, place)):
            for statement in statements:
                connection.execute(sql(statement))
            connection.execute("INSERT INTO journal_version VALUES (%s)", (number,))


def _version(connection: Connection, place: Place) -> int:
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


def _take_over(connection: Connection, place: Place, lease_s: float) -> int:
    """The next epoch, if nobody holds the present one.

    Raises:
        UsageError: Somebody does.
    """
    holder = f"process {os.getpid()} on {socket.gethostname()}"
    row = connection.execute(sql(_TAKE), (holder, int(lease_s * 1e9))).fetchone()
    if row is None:
        held = connection.execute(sql(_HELD)).fetchone() or ("unknown", 0)
        raise UsageError(
            f"{place.name} is being written by another engine ({held[0]}), which holds it for {max(float(held[1]), 0):.0f} s more unless it"
            " renews. Close that one, give another schema, or try again then."
        )
    return int(row[0])
