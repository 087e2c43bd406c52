"""Connect to a PostgreSQL server, and translate its errors for an operator.

Knows nothing of events. The driver is loaded here and nowhere else, because it is an extra.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from functools import cache
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from callgate._engine_limits import SERVER_ANSWER_S, SERVER_CONNECT_S, SERVER_STATEMENT_S, SERVER_STILL_S
from callgate.errors import JournalFailed, UsageError

if TYPE_CHECKING:
    import psycopg

    Connection = psycopg.Connection[tuple[Any, ...]]
    Cursor = psycopg.Cursor[tuple[Any, ...]]

__all__ = ["PostgresSchema", "opening_errors", "server_errors", "sql", "without_nul"]

T = TypeVar("T")
R = TypeVar("R")
_ADDRESS: Final = "Give one like postgresql://user@host/database; for a file, take SqliteJournal."
_NAME: Final = re.compile(r"[a-z_][a-z0-9_]{0,62}")


class PostgresSchema:
    """One schema of a database. Its name for errors does not show the password."""

    def __init__(self, url: str, schema: str) -> None:
        if not isinstance(url, str):
            raise UsageError(f"PostgresJournal was given {url!r:.80}. {_ADDRESS}")
        psycopg = _driver()
        _refuse_unescaped(url)
        url, named = _split(url)
        schema = named or schema
        if not _NAME.fullmatch(schema):
            raise UsageError(f"{schema[:80]!r} cannot be a schema: lower-case letters, digits and _, at most 63, no digit first.")
        try:
            parts = psycopg.conninfo.conninfo_to_dict(url)
        except psycopg.Error as error:
            raise UsageError(f"This is not the address of a PostgreSQL database. {_ADDRESS}") from error
        self.schema = schema
        port = f":{parts['port']}" if parts.get("port") else ""
        self.name = f"postgresql://{parts.get('host', '')}{port}/{parts.get('dbname', '')} (schema {schema})"
        self._url = url

    @property
    def address(self) -> str:
        """The address with the schema and the password."""
        return f"{self._url}{'&' if '?' in self._url else '?'}schema={self.schema}"

    def connect(self) -> Connection:
        """Return a connection whose search path is this schema alone, with timeouts that detect a lost server.

        Raises:
            UsageError: The server cannot be reached.
        """
        psycopg = _driver()
        try:
            connection = _with_deadline(psycopg).connect(
                self._url,
                autocommit=True,
                connect_timeout=SERVER_CONNECT_S,
                keepalives_idle=5,
                keepalives_interval=2,
                keepalives_count=3,
                tcp_user_timeout=10_000,
                application_name="callgate",
                options=f"-c search_path={self.schema} -c synchronous_commit=on -c statement_timeout={SERVER_STATEMENT_S}s"
                f" -c idle_in_transaction_session_timeout={SERVER_STILL_S}s",
            )
        except psycopg.Error as error:
            raise UsageError(
                f"{self.name} cannot be reached: {_cut(error)}. Check that the server runs and the address is right."
            ) from error
        return connection  # type: ignore[no-any-return]


@cache
def _with_deadline(psycopg: Any) -> Any:
    """Return a connection class with a deadline for answers, because a stopped server keeps its connections and never answers."""

    class Bounded(psycopg.Connection):  # type: ignore[misc]
        def wait(self, gen: Any, *words: Any, **more: Any) -> Any:
            try:
                return super().wait(_with_answer_deadline(gen), *words, **more)
            except _NoAnswer as error:
                self.close()
                raise psycopg.OperationalError(str(error)) from error

    return Bounded


class _NoAnswer(Exception):
    """The server has not answered in time."""


def _with_answer_deadline(gen: Generator[T, T, R]) -> Generator[T, T, R]:
    """Run the driver's generator until it ends or the deadline passes. The driver resumes it at least every 100 ms."""
    until = monotonic() + SERVER_ANSWER_S
    try:
        state = next(gen)
        while True:
            if monotonic() > until:
                raise _NoAnswer(f"it has not answered for {SERVER_ANSWER_S:g} s")
            state = gen.send((yield state))
    except StopIteration as ended:
        return cast(R, ended.value)


def _driver() -> Any:
    try:
        import psycopg
    except ImportError as error:
        raise UsageError("A journal in PostgreSQL needs an extra: pip install 'callgate[postgres]'.") from error
    return psycopg


def _refuse_unescaped(url: str) -> None:
    """Refuse an address whose password would be read, and shown, as a part of the host or the database.

    Raises:
        UsageError: It has an `@` or a `/` that is not escaped.
    """
    scheme, _, rest = url.partition("?")[0].partition("://")
    host, _, database = rest.partition("/")
    if scheme in ("postgresql", "postgres") and (host.count("@") > 1 or "@" in database):
        raise UsageError(
            "The address of the PostgreSQL database has an @ or a / in its password or its user. Write %40 for @ and %2F for /, or keep the"
            " password in PGPASSWORD."
        )


def _split(url: str) -> tuple[str, str]:
    """Split an address into the part that libpq understands and the schema; the schema is empty if the address has none."""
    head, _, query = url.partition("?")
    words = query.split("&")
    schema = next((word.removeprefix("schema=") for word in words if word.startswith("schema=")), "")
    rest = "&".join(word for word in words if not word.startswith("schema="))
    return (f"{head}?{rest}" if rest else head), schema


@contextmanager
def opening_errors(place: PostgresSchema) -> Iterator[None]:
    """Convert the driver's errors while a journal is opened into `UsageError`, with the next step."""
    psycopg = _driver()
    try:
        yield
    except psycopg.errors.InsufficientPrivilege as error:
        raise UsageError(f"{place.name} cannot be used as a journal: {_cut(error)}. Give its user that right, or give another.") from error
    except psycopg.errors.QueryCanceled as error:
        raise UsageError(
            f"{place.name} cannot be used as a journal: it waited {SERVER_STATEMENT_S} s for a lock that another engine holds. Let that one"
            " go on, or end it."
        ) from error
    except psycopg.OperationalError as error:
        raise UsageError(
            f"{place.name} was lost while it was opened: {_cut(error)}. Check that the server runs, then open it again."
        ) from error
    except psycopg.Error as error:
        raise UsageError(f"{place.name} cannot be used as a journal: {_cut(error)}. Give another schema, or another database.") from error


@contextmanager
def server_errors(place: PostgresSchema) -> Iterator[None]:
    """Convert the driver's errors into `JournalFailed`, with the next step."""
    psycopg = _driver()
    try:
        yield
    except psycopg.errors.QueryCanceled as error:
        raise JournalFailed(
            f"{place.name} could not be written or read within {SERVER_STATEMENT_S} s: {_cut(error)}. Another engine holds a lock in it."
            " Nothing more is recorded by this engine; let the other one go on, or end it, then make a new engine."
        ) from error
    except psycopg.OperationalError as error:
        raise JournalFailed(
            f"The connection to {place.name} is lost: {_cut(error)}. Nothing more is recorded by this engine, and whether the last events"
            " arrived is not known. Make a new engine once the server answers."
        ) from error
    except psycopg.Error as error:
        raise JournalFailed(
            f"{place.name} refused: {type(error).__name__}: {_cut(error)}. Nothing more is recorded by this engine."
        ) from error


def sql(text: str) -> Any:
    """Return the statement with the driver's placeholders."""
    return text.replace("?", "%s").encode()


def without_nul(text: str) -> str:
    """Return the text with NUL replaced, because PostgreSQL cannot store it."""
    return text.replace("\x00", "\\0")


def _cut(error: Exception) -> str:
    """Return the beginning of an error's text as a part of a sentence."""
    return " ".join(str(error).split())[:300].rstrip(".?")
