"""The store of a journal in an SQLite file, for the writing thread: one commit at a time, with checks of the files before and after it.

A commit is reported only after the files with the journal's names are known to have it. Errors of SQLite and faults of the files become
`JournalFailed` here. Knows neither leases nor what events mean.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from callgate._database_file_checks import space_error
from callgate._engine_limits import JOURNAL_WAIT_S
from callgate._journal.event_positions import JournalEnd
from callgate._journal.event_rows import Value
from callgate._journal.sql_leases import LeaseClock, SqlInbox, SqlLeases
from callgate._journal.sql_schema import LAST_EVENT, LAST_SEQ
from callgate._journal.sqlite_file_checks import FilesDamaged, JournalFiles
from callgate._journal.sqlite_rows import insert
from callgate.errors import JournalFailed
from callgate.events import Event
from callgate.protocols import Inbox, InboxMessage, LeaseStore

if TYPE_CHECKING:
    import apsw

__all__ = ["SqliteStore", "busy_text", "failures", "keep_log_on_close"]

_LONG_LOG: Final = 1_000
"""The number of frames from which the log is checkpointed."""
_SPACE: Final[dict[int | None, tuple[str, str]]] = {
    errno.ENOSPC: ("the disk is full", "Make room on it"),
    errno.EDQUOT: ("the user's share of the disk is used up", "Make room on it"),
    errno.EFBIG: ("this process may not write files of that size", "Raise that limit (ulimit -f)"),
}


class SqliteStore:
    """The file, as the writing thread uses it.

    Args:
        connection: The connection that writes. It makes no checkpoint by itself.
        beside: A second connection, for statements that cannot run in a transaction.
        note_end: Called after each commit with the last committed event.
    """

    def __init__(
        self,
        path: Path,
        connection: apsw.Connection,
        beside: apsw.Connection,
        files: JournalFiles,
        clock: LeaseClock,
        note_end: Callable[[Event], None],
    ) -> None:
        self._path = path
        self._connection = connection
        self._beside = beside
        self._files = files
        self._note_end = note_end
        self.leases: LeaseStore = SqlLeases(self.ask, clock)
        self.inbox: Inbox = SqlInbox(self.ask)
        self._last: Event | None = None
        """The last event of the current commit."""
        self._seen = -1

    @contextmanager
    def commit(self) -> Iterator[None]:
        with failures(self._path):
            self._files.check_names()
            self._last = None
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                end = self._files.check_before_writing()
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise
            self._files.check_written(end)
        self._note_last()
        self._shorten_log(end.frames)

    def _note_last(self) -> None:
        if self._last is not None:
            self._note_end(self._last)

    def _shorten_log(self, frames: int) -> None:
        """Checkpoint the log if it is long.

        Called only after the log was found to be complete: a checkpoint would copy a gap in it into the database.
        """
        import apsw

        if frames >= _LONG_LOG:
            with suppress(apsw.Error):  # readers block it, or the disk is full: the next commit tries again
                self._beside.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)

    def ask(self, sql: str, values: Sequence[Value]) -> list[tuple[Any, ...]]:
        return self._connection.execute(sql, values).fetchall()

    def tail(self) -> JournalEnd:
        rows = self.ask(LAST_EVENT, ())
        return JournalEnd(*rows[0]) if rows else JournalEnd()

    def last_seq(self, run: str) -> int:
        return int(self.ask(LAST_SEQ, (run,))[0][0])

    def insert(self, batch: Sequence[Event]) -> None:
        insert(self._connection, batch)
        self._last = batch[-1] if batch else None

    def read_inbox(self, read: Callable[[], list[InboxMessage]], *, again: bool) -> list[InboxMessage]:
        with failures(self._path):
            self._files.check_names()
            version = self._connection.execute("PRAGMA data_version").get
            seen, self._seen = self._seen, version
            return read() if again or version != seen else []

    def close(self) -> None:
        """Close the connections.

        Raises:
            JournalFailed: The files are not complete. The rest of the log is left as it is.
        """
        try:
            with failures(self._path):
                self._files.check_whole()
        except JournalFailed:
            keep_log_on_close(self._connection)
            keep_log_on_close(self._beside)
            raise
        finally:
            self._files.close()
            self._connection.close()
            self._beside.close()


@contextmanager
def failures(path: Path) -> Iterator[None]:
    """Convert errors of SQLite and faults of the files into `JournalFailed`, with the next step."""
    import apsw

    try:
        yield
    except apsw.BusyError as error:
        raise JournalFailed(busy_text(path, JOURNAL_WAIT_S)) from error
    except FilesDamaged as error:
        raise JournalFailed(
            f"{error} while it was open. Nothing more is recorded by this engine, and what it recorded last may be lost. Put the file back"
            " or take another one, then make a new engine. If nothing has deleted it, this process may have opened it with another SQLite"
            " library, such as Python's sqlite3: read it with `callgate.recorded_calls` or the command line."
        ) from error
    except (apsw.Error, OSError) as error:
        space = space_error(path, error) if isinstance(error, apsw.Error) else error
        cause, step = _SPACE.get(space.errno if space is not None else None, (str(error), "Check the disk"))
        raise JournalFailed(
            f"The journal {path} cannot be written or read any more: {cause}. Nothing more is recorded by this engine. {step}, then"
            " make a new engine."
        ) from error


def busy_text(path: Path, waited_s: float) -> str:
    return (
        f"The journal {path} could not be written to for {waited_s:g} s: another process holds its write lock, as one does that was"
        " stopped in the middle of a commit. Let that one go on, or kill it."
    )


def keep_log_on_close(connection: apsw.Connection) -> None:
    """Configure a connection so that closing it makes no checkpoint, even if it is the last connection."""
    import apsw

    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
