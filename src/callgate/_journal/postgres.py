"""Events in PostgreSQL, for teams: one journal per schema, one writer at a time, readers from anywhere.

The writer holds a lease by the server's clock. Each commit renews it and is refused by the database where another engine has taken over;
an idle writer renews at a third. A lost connection ends the writer: whether the last commit arrived is not known, so it is not reported
as kept, and nothing is sent again behind the engine's back. Bodies are bytes, never `jsonb`, which would not give back what was written.
Knows nothing of what the events mean.
"""

from __future__ import annotations

import os
import re
import socket
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from callgate._clock import Clock, SystemClock
from callgate._journal.commits import Commits, Tail
from callgate._journal.reading import narrowed, verified
from callgate._journal.rows import GENESIS, Broken, calls_of, causes_of, event_of, row_of
from callgate._journal.tables import ADD_CALL, ADD_CAUSE, ADD_EVENT, LAST_EVENT, POSTGRES, VERSION, migrations, question
from callgate.errors import JournalFailed, UsageError
from callgate.events import Draft, Event
from callgate.protocols import JournalStatus
from callgate.queries import EventQuery

if TYPE_CHECKING:
    import psycopg

    Connection = psycopg.Connection[tuple[Any, ...]]

__all__ = ["PostgresJournal", "PostgresReader"]

_NAME: Final = re.compile(r"[a-z_][a-z0-9_]{0,62}")
_LONGEST_KEY: Final = 512
_CONNECT_S: Final = 10
_STATEMENT_S: Final = 30
_FETCH: Final = 2_000
_STRENGTH: Final = "full"
_PROMISE: Final = "what was reported as kept survives whatever the server's own commits survive (synchronous_commit is on)"
_NOW: Final = "(extract(epoch FROM clock_timestamp()) * 1000000000)::bigint"
_RENEW: Final = f"UPDATE writer SET expires_ns = {_NOW} + ? WHERE epoch = ?"
_TAKE: Final = f"UPDATE writer SET epoch = epoch + 1, holder = ?, expires_ns = {_NOW} + ? WHERE expires_ns <= {_NOW} RETURNING epoch"
_HELD: Final = f"SELECT holder, (expires_ns - {_NOW}) / 1e9 FROM writer"


class PostgresJournal:
    """A `Journal` in a schema of a PostgreSQL database.

    Args:
        url: `postgresql://user@host/database`, or what else libpq takes.
        schema: Holds this journal and nothing else; made if it does not exist. Engines that write at the same time take one each.
        lease_s: How long after its last sign of life a writer that is gone keeps others out.

    Raises:
        UsageError: Another engine writes to it, the server cannot be reached, or it is no journal of a version this callgate knows.
    """

    strength = _STRENGTH

    def __init__(self, url: str, clock: Clock | None = None, *, schema: str = "callgate", lease_s: float = 15.0) -> None:
        self._place = place = _Place(url, schema)
        writing = place.connect()
        try:
            with _opening(place):
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
        return self._commits.append(draft)

    async def durable(self, position: int) -> None:
        await self._commits.durable(position)

    def read(
        self, *, run: str | None = None, call: str | None = None, after: int = 0, limit: int | None = None, newest_first: bool = False
    ) -> Iterable[Event]:
        return self.find(EventQuery(run=run, call=call, after=after, limit=limit, newest_first=newest_first))

    def find(self, query: EventQuery) -> list[Event]:
        return self._commits.answered(query, self._stored)

    def _stored(self, query: EventQuery, upto: int | None) -> list[Event]:
        with self._reading, _speaking(self._place):
            return list(_found(self._reader, query, upto))

    def verify(self, *, tail: int | None = None) -> Broken | None:
        """The first event that does not hold, or None; of the last `tail` events only, if given."""
        with self._reading, _speaking(self._place):
            return verified(lambda query: _found(self._reader, query), tail)

    def status(self) -> JournalStatus:
        return self._commits.status("postgres", self.strength, _PROMISE)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        await self._commits.close()
        self._reader.close()


class _Place:
    """Which schema of which database; and how to name it without its password."""

    def __init__(self, url: str, schema: str) -> None:
        psycopg = _driver()
        if not _NAME.fullmatch(schema):
            raise UsageError(f"{schema[:80]!r} cannot be a schema: lower-case letters, digits and _, at most 63, no digit first.")
        try:
            parts = psycopg.conninfo.conninfo_to_dict(url)
        except psycopg.Error as error:
            raise UsageError("This is no address of a PostgreSQL database. Give one like postgresql://user@host/database.") from error
        self.schema = schema
        self.name = f"postgresql://{parts.get('host', '')}/{parts.get('dbname', '')} (schema {schema})"
        self._url = url

    def connect(self) -> Connection:
        """A connection that looks into the schema alone, and that notices a server that is gone.

        Raises:
            UsageError: There is none to be had.
        """
        psycopg = _driver()
        try:
            connection = psycopg.connect(
                self._url,
                autocommit=True,
                connect_timeout=_CONNECT_S,
                keepalives_idle=5,
                keepalives_interval=2,
                keepalives_count=3,
                tcp_user_timeout=10_000,
                application_name="callgate",
                options=f"-c search_path={self.schema} -c synchronous_commit=on -c statement_timeout={_STATEMENT_S}s",
            )
        except psycopg.Error as error:
            raise UsageError(
                f"{self.name} cannot be reached: {_short(error)}. Check that the server runs and the address is right."
            ) from error
        return connection  # type: ignore[no-any-return]


class _Store:
    """The schema, for the writing thread."""

    def __init__(self, place: _Place, connection: Connection, epoch: int, lease_s: float) -> None:
        self._place = place
        self._connection = connection
        self._epoch = epoch
        self._lease_ns = int(lease_s * 1e9)

    def write(self, batch: Sequence[Event]) -> None:
        with _speaking(self._place), self._connection.transaction(), self._connection.cursor() as cursor:
            self._hold(cursor)
            _insert(cursor, batch)

    def renew(self) -> None:
        with _speaking(self._place), self._connection.cursor() as cursor:
            self._hold(cursor)

    def _hold(self, cursor: psycopg.Cursor[tuple[Any, ...]]) -> None:
        """Renew the lease, and keep everybody from taking it until the commit is through."""
        cursor.execute(_sql(_RENEW), (self._lease_ns, self._epoch))
        if cursor.rowcount != 1:
            raise JournalFailed(f"Another engine has taken over {self._place.name}. Nothing more is recorded here; end this engine.")

    def close(self) -> None:
        """Let the next writer in at once."""
        try:
            self._connection.execute(_sql("UPDATE writer SET expires_ns = 0, holder = '' WHERE epoch = ?"), (self._epoch,))
        finally:
            self._connection.close()


class PostgresReader:
    """A `Reader` of a schema; `?schema=NAME` in the address names another than `callgate`.

    Raises:
        UsageError: There is no journal.
    """

    def __init__(self, url: str) -> None:
        url, schema = _with_schema(url)
        self._place = _Place(url, schema)
        self._connection = self._place.connect()
        try:
            with _opening(self._place):
                if not _version(self._connection, self._place):
                    raise UsageError(f"There is no journal at {self._place.name}. Name its schema in the address: ?schema=NAME.")
        except BaseException:
            self._connection.close()
            raise

    def find(self, query: EventQuery) -> Iterator[Event]:
        with _speaking(self._place):
            yield from _found(self._connection, query)

    def verify(self, *, tail: int | None = None) -> Broken | None:
        return verified(self.find, tail)

    def close(self) -> None:
        self._connection.close()


def _driver() -> Any:
    try:
        import psycopg
    except ImportError as error:
        raise UsageError("A journal in PostgreSQL needs an extra: pip install 'callgate[postgres]'.") from error
    return psycopg


def _with_schema(url: str) -> tuple[str, str]:
    """The address that libpq knows, and the schema that it named beyond that."""
    parts = urlsplit(url)
    words = parse_qsl(parts.query)
    schema = next((value for name, value in words if name == "schema"), "callgate")
    return urlunsplit(parts._replace(query=urlencode([(name, value) for name, value in words if name != "schema"]))), schema


@contextmanager
def _opening(place: _Place) -> Iterator[None]:
    """What the driver raises while a journal is opened, as what whoever opens it can act on."""
    try:
        yield
    except _driver().Error as error:
        raise UsageError(f"{place.name} cannot be used as a journal: {_short(error)}. Check the user's rights, or give another.") from error


@contextmanager
def _speaking(place: _Place) -> Iterator[None]:
    """What the driver raises, as what an operator can act on."""
    psycopg = _driver()
    try:
        yield
    except psycopg.OperationalError as error:
        raise JournalFailed(
            f"The connection to {place.name} is lost: {_short(error)}. Nothing more is recorded by this engine, and whether the last events"
            " arrived is not known. Make a new engine once the server answers."
        ) from error
    except psycopg.Error as error:
        raise JournalFailed(
            f"{place.name} refused: {type(error).__name__}: {_short(error)}. Nothing more is recorded by this engine."
        ) from error


def _found(connection: Connection, query: EventQuery, upto: int | None = None) -> Iterator[Event]:
    """Fetched piece by piece, so that a long answer does not fill memory."""
    sql, values = question(query, upto)
    with connection.transaction(), connection.cursor(name="callgate") as cursor:
        cursor.itersize = _FETCH
        cursor.execute(_sql(sql), [_storable(value) if isinstance(value, str) else value for value in values], binary=True)
        yield from narrowed(map(event_of, cursor), query)


def _insert(cursor: psycopg.Cursor[tuple[Any, ...]], batch: Iterable[Event]) -> None:
    cursor.executemany(_sql(ADD_EVENT), [row_of(event) for event in batch])
    _insert_finding(cursor, batch)


def _insert_finding(cursor: psycopg.Cursor[tuple[Any, ...]], batch: Iterable[Event]) -> None:
    if causes := causes_of(batch):
        cursor.executemany(_sql(ADD_CAUSE), causes)
    if calls := calls_of(batch):
        cursor.executemany(_sql(ADD_CALL), [(call, _storable(tool), _storable(actor), final) for call, tool, actor, final in calls])


def _prepare(connection: Connection, place: _Place) -> None:
    """Bring the schema to our version; one engine at a time."""
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", (f"callgate {place.schema}",))
        if connection.execute("SELECT to_regnamespace(%s) IS NULL", (place.schema,)).fetchone() == (True,):
            connection.execute(_sql(f"CREATE SCHEMA {place.schema}"))
        connection.execute("CREATE TABLE IF NOT EXISTS journal_version (number BIGINT PRIMARY KEY)")
        for number, statements in migrations(POSTGRES, _version(connection, place)):
            for statement in statements:
                connection.execute(_sql(statement))
            connection.execute("INSERT INTO journal_version VALUES (%s)", (number,))


def _version(connection: Connection, place: _Place) -> int:
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


def _take_over(connection: Connection, place: _Place, lease_s: float) -> int:
    """The next epoch, if nobody holds the present one.

    Raises:
        UsageError: Somebody does.
    """
    holder = f"process {os.getpid()} on {socket.gethostname()}"
    row = connection.execute(_sql(_TAKE), (holder, int(lease_s * 1e9))).fetchone()
    if row is None:
        held = connection.execute(_sql(_HELD)).fetchone() or ("unknown", 0)
        raise UsageError(
            f"{place.name} is being written by another engine ({held[0]}), which holds it for {max(float(held[1]), 0):.0f} s more unless it"
            " renews. Close that one, give another schema, or try again then."
        )
    return int(row[0])


def _sql(text: str) -> Any:
    """With the placeholders that this driver knows."""
    return text.replace("?", "%s").encode()


def _storable(text: str) -> str:
    """Text as PostgreSQL can hold it: it knows no NUL."""
    return text.replace("\x00", "\\0")


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
