"""Send messages to the inbox of a journal that another process may have open, and read what became of them.

A client holds no lease, has no writer number and writes no event. Knows neither questions nor what a stop does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from callgate._engine_limits import JOURNAL_WAIT_S
from callgate._journal.event_rows import Value
from callgate._journal.in_memory_journal import MemoryJournal
from callgate._journal.journal_reader import is_url
from callgate._journal.lease_acquisition import reader_of
from callgate._journal.open_for_reading import JournalAddress
from callgate._journal.sql_leases import SqlInbox, SqlLeases
from callgate._unusable_paths import refused_paths
from callgate.errors import JournalFailed, UsageError
from callgate.protocols import Inbox, InboxMessage, LeaseStore

if TYPE_CHECKING:
    from callgate._journal.lock_file import LockFile
    from callgate._journal.sqlite_store import SqliteStore

__all__ = ["EDIT_CHARS", "MESSAGE_CHARS", "InboxClient", "open_inbox"]

_FIRST_WITH_INBOX: Final = 3
MESSAGE_CHARS: Final = 2_000
"""The largest number of characters of each text field of a message, unless it carries arguments."""
EDIT_CHARS: Final = 65_536
"""The largest number of characters of the reason of a message that carries arguments."""


class InboxClient:
    """The inbox of a journal, and the holders of its runs.

    Args:
        commit: Make one commit of the store from what is done inside the block.
    """

    def __init__(self, leases: LeaseStore, inbox: Inbox, commit: Callable[[], AbstractContextManager[object]]) -> None:
        self._leases = leases
        self._inbox = inbox
        self._commit = commit

    def send(self, *, run: str, kind: str, target: str, actor: str, reason: str, at_ns: int) -> int:
        """Add a message and return its id. Each text field is cut to 2,000 characters, the reason of an `edit` to 65,536."""
        run, kind, target, actor = map(_cut, (run, kind, target, actor))
        reason = _cut(reason, EDIT_CHARS if kind == "edit" else MESSAGE_CHARS)
        with self._commit():
            return self._inbox.add(run=run, kind=kind, target=target, actor=actor, reason=reason, at_ns=at_ns)

    def unrecorded(self, run: str) -> list[InboxMessage]:
        """Return the messages to a run that no event has recorded yet, in the order of arrival."""
        return self._inbox.unrecorded(run)

    def position(self, message: int) -> int:
        """Return the position of the event that recorded a message; 0 if no event has recorded it yet."""
        return self._inbox.position(message)

    def holder(self, run: str) -> str:
        """Return a description of the engine that holds a run; empty if no engine does."""
        lease = reader_of(self._leases, run)
        return "" if lease is None else lease.who


def _cut(word: str, chars: int = MESSAGE_CHARS) -> str:
    return word.encode("utf-8", "backslashreplace").decode()[:chars]


@contextmanager
def open_inbox(where: JournalAddress, *, read_only: bool = False) -> Iterator[InboxClient]:
    """Open the inbox of a journal for the time of the block.

    Args:
        where: The journal's file or `postgresql://` address, or a journal in memory.
        read_only: Whether to open without the right to write; nothing can be sent then.

    Raises:
        UsageError: There is no such journal, or it has no inbox.
    """
    in_file = _in_file_read_only if read_only else _in_file
    if isinstance(where, MemoryJournal):
        where.require_shared()
        yield InboxClient(where.store.leases, where.store.inbox, where.store.inbox_commit)
        return
    with _on_server(str(where)) if is_url(where) else in_file(Path(where)) as found:
        yield found


def _outdated_error(where: str, version: int) -> UsageError:
    return UsageError(
        f"{where} has no inbox yet: an older callgate wrote it (version {version}). Opening it for writing, as `callgate resume`"
        " does, adds one."
    )


def _unwritable_error(path: Path, why: str) -> UsageError:
    return UsageError(f"{path} cannot be written to: {why}. Check its rights, and the disk.")


@contextmanager
def _in_file(path: Path) -> Iterator[InboxClient]:
    import apsw

    from callgate._journal.lock_file import LockFile
    from callgate._journal.sqlite_reader import SqliteReader

    SqliteReader(path).close()  # raises its own errors for a file that is not a journal
    real = path.resolve()
    with refused_paths(path, "a journal to write to"):
        lock = LockFile(real)
    try:
        with closing(_store_of(real, lock)) as store:
            lock.end_opening()
            version = int(store.ask("PRAGMA user_version", ())[0][0])
            if version < _FIRST_WITH_INBOX:
                raise _outdated_error(str(path), version)
            yield InboxClient(store.leases, store.inbox, store.commit)
    except JournalFailed as error:
        raise _unwritable_error(path, str(error if isinstance(error.__cause__, apsw.BusyError) else error.__cause__)) from error
    except apsw.Error as error:
        raise _unwritable_error(path, str(error)) from error
    finally:
        lock.close()


def _store_of(path: Path, lock: LockFile) -> SqliteStore:
    import apsw

    from callgate._journal.sqlite_file_checks import JournalFiles
    from callgate._journal.sqlite_journal import MachineClock
    from callgate._journal.sqlite_store import SqliteStore

    writing, beside = (apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE) for _ in range(2))
    for connection in (writing, beside):
        connection.set_busy_timeout(int(JOURNAL_WAIT_S * 1_000))
        connection.wal_autocheckpoint(0)
        connection.execute("PRAGMA synchronous=FULL")
    files = JournalFiles(path, beside, {lock.path: lock.identity})
    return SqliteStore(path, writing, beside, files, MachineClock(lock), lambda event: None)


@contextmanager
def _in_file_read_only(path: Path) -> Iterator[InboxClient]:
    import apsw

    from callgate._journal.lock_file import LockFileReader
    from callgate._journal.sqlite_journal import MachineClock
    from callgate._journal.sqlite_reader import close_reading, connect_to_read

    real = path.resolve()
    try:
        connection, version = connect_to_read(real)
        try:
            if version < _FIRST_WITH_INBOX:
                raise _outdated_error(str(path), version)

            def ask(sql: str, values: Sequence[Value]) -> list[tuple[Any, ...]]:
                return connection.execute(sql, values).fetchall()

            yield InboxClient(SqlLeases(ask, MachineClock(LockFileReader(real))), SqlInbox(ask), nullcontext)
        finally:
            close_reading(connection, real)
    except apsw.Error as error:
        raise UsageError(f"{path} cannot be read as a journal: {error}.") from error


@contextmanager
def _on_server(url: str) -> Iterator[InboxClient]:
    from callgate._journal.postgres_journal import PostgresReader, ServerClock
    from callgate._journal.postgres_server import opening_errors, sql, without_nul

    reader = PostgresReader(url)
    try:
        with opening_errors(reader.place):
            if reader.version < _FIRST_WITH_INBOX:
                raise _outdated_error(reader.place.name, reader.version)

            def ask(text: str, values: Sequence[Value]) -> list[tuple[Any, ...]]:
                cursor = reader.connection.execute(sql(text), [without_nul(one) if isinstance(one, str) else one for one in values])
                return cursor.fetchall()

            yield InboxClient(SqlLeases(ask, ServerClock(reader.place, ask)), SqlInbox(ask), nullcontext)
    finally:
        reader.close()
