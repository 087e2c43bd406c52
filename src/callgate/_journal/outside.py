"""A journal from beside, for whoever writes to its inbox: no lease, no number, no place in the chain.

Needs nothing of the holder but the tables. Knows neither questions nor what a stop does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from callgate._journal.leases import HOLDER, Ask, Ground
from callgate._journal.letters import ADD_LETTER, FATE
from callgate._journal.reading import is_url
from callgate._journal.rows import Value
from callgate._limits import JOURNAL_WAIT_S
from callgate._path_errors import refused_paths
from callgate.errors import JournalFailed, UsageError

if TYPE_CHECKING:
    from callgate._journal.lockfile import LockFile
    from callgate._journal.sqlite_store import SqliteStore

__all__ = ["Outside", "outside"]

_FIRST_WITH_INBOX: Final = 3
_LONGEST: Final = 2_000
"""Characters of each word."""


class Outside:
    """What may be asked of a journal and put to it from beside."""

    def __init__(self, ask: Ask, ground: Ground, commit: Callable[[], AbstractContextManager[Ask]]) -> None:
        self._ask = ask
        self._ground = ground
        self._commit = commit

    def post(self, run: str, kind: str, target: str, actor: str, reason: str, at_ns: int) -> int:
        """Put a row into the inbox; its id."""
        words = (word.encode("utf-8", "backslashreplace").decode()[:_LONGEST] for word in (run, kind, target, actor, reason))
        with self._commit() as ask:
            return int(ask(ADD_LETTER, (*words, at_ns))[0][0])

    def folded(self, letter: int) -> int:
        """The position of the event that a row became; 0 while it waits."""
        rows = self._ask(FATE, (letter,))
        return int(rows[0][0]) if rows else 0

    def holder(self, run: str) -> str:
        """Who works on a run; empty for nobody."""
        for number, who, expires_ns in self._ask(HOLDER, (run,)):
            if expires_ns > self._ground.now_ns(self._ask) and self._ground.lives(self._ask, number):
                return str(who)
        return ""


@contextmanager
def outside(where: str | Path, *, only_look: bool = False) -> Iterator[Outside]:
    """A journal's file or `postgresql://` address, for a moment.

    Args:
        only_look: Nothing will be put there, so no right to write is needed.

    Raises:
        UsageError: There is none, or it has no inbox.
    """
    in_file = _looking_in_file if only_look else _in_file
    with _on_server(str(where)) if is_url(where) else in_file(Path(where)) as found:
        yield found


def _old(where: str, version: int) -> UsageError:
    return UsageError(
        f"{where} has no inbox yet: a callgate that knew none wrote it (version {version}). Whoever opens it next, as `callgate resume`"
        " does, gives it one."
    )


def _unwritable(path: Path, why: str) -> UsageError:
    return UsageError(f"{path} cannot be written to: {why}. Check its rights, and the disk.")


@contextmanager
def _in_file(path: Path) -> Iterator[Outside]:
    import apsw

    from callgate._journal.lockfile import LockFile
    from callgate._journal.sqlite import MachineTime
    from callgate._journal.sqlite_reader import SqliteReader

    SqliteReader(path).close()  # refuses what is no journal, in its own words
    real = path.resolve()
    with refused_paths(path, "a journal to write to"):
        lock = LockFile(real)
    try:
        with closing(_store_of(real, lock)) as store:
            lock.end_opening()
            version = int(store.ask("PRAGMA user_version", ())[0][0])
            if version < _FIRST_WITH_INBOX:
                raise _old(str(path), version)
            yield Outside(store.ask, MachineTime(lock), store.commit)
    except JournalFailed as error:
        raise _unwritable(path, str(error if isinstance(error.__cause__, apsw.BusyError) else error.__cause__)) from error
    except apsw.Error as error:
        raise _unwritable(path, str(error)) from error
    finally:
        lock.close()


def _store_of(path: Path, lock: LockFile) -> SqliteStore:
    import apsw

    from callgate._journal.files import JournalFiles
    from callgate._journal.sqlite_store import SqliteStore

    writing, beside = (apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE) for _ in range(2))
    for connection in (writing, beside):
        connection.set_busy_timeout(int(JOURNAL_WAIT_S * 1_000))
        connection.wal_autocheckpoint(0)
        connection.execute("PRAGMA synchronous=FULL")
    return SqliteStore(path, writing, beside, JournalFiles(path, beside, {lock.path: lock.identity}), lambda event: None)


@contextmanager
def _looking_in_file(path: Path) -> Iterator[Outside]:
    import apsw

    from callgate._journal.lockfile import LockLook
    from callgate._journal.sqlite import MachineTime
    from callgate._journal.sqlite_reader import beside_writers, end_reading

    real = path.resolve()
    try:
        connection, version = beside_writers(real)
        try:
            if version < _FIRST_WITH_INBOX:
                raise _old(str(path), version)

            def ask(sql: str, values: Sequence[Value]) -> list[tuple[Any, ...]]:
                return connection.execute(sql, values).fetchall()

            yield Outside(ask, MachineTime(LockLook(real)), lambda: nullcontext(ask))
        finally:
            end_reading(connection, real)
    except apsw.Error as error:
        raise UsageError(f"{path} cannot be read as a journal: {error}.") from error


@contextmanager
def _on_server(url: str) -> Iterator[Outside]:
    from callgate._journal.postgres import PostgresReader, ServerTime
    from callgate._journal.server import opening, sql, storable

    reader = PostgresReader(url)
    try:
        with opening(reader.place):
            if reader.version < _FIRST_WITH_INBOX:
                raise _old(reader.place.name, reader.version)

            def ask(text: str, values: Sequence[Value]) -> list[tuple[Any, ...]]:
                cursor = reader.connection.execute(sql(text), [storable(one) if isinstance(one, str) else one for one in values])
                return cursor.fetchall()

            yield Outside(ask, ServerTime(reader.place), lambda: nullcontext(ask))
    finally:
        reader.close()
