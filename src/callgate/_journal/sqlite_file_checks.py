"""Check that the files of an SQLite journal are still the files that were opened, and that nothing of them is missing.

SQLite relies on the content that it wrote. If a file is deleted, replaced or truncated, commits are lost that were reported as durable; if
nothing is left of the file, SQLite starts a new database without an error. `sqlite_store` therefore checks the files before and after each
commit, before anything is reported as durable, and readers check them before and after they read. The database and its index are not opened
here: closing a second file descriptor of either would release SQLite's locks.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, Final

from callgate._database_file_checks import refuse_scrap
from callgate._engine_limits import JOURNAL_WAIT_S
from callgate._journal.event_rows import Unreadable
from callgate._journal.write_ahead_log import LogEnd, WriteAheadLog
from callgate.errors import UsageError

if TYPE_CHECKING:
    import apsw

__all__ = ["RESTORE", "FilesDamaged", "JournalFiles", "refuse_remains"]

Identity = tuple[int, int]
_AGAIN_S: Final = 0.001
_LOOKS: Final = 3
"""How many reads must find a fault before it is reported, because other processes may change the files meanwhile."""


def refuse_remains(path: Path, *, was_journal: bool) -> None:
    """Refuse the remains of a truncated journal. SQLite would start a new database there, and delete the log.

    Args:
        was_journal: Whether the file is known to have been a journal. Nothing else shows it if the file is empty and has no log.

    Raises:
        UsageError: The file is missing, empty or truncated, and there was a journal in it.
    """
    size, log = _size(path), _size(Path(f"{path}-wal"))
    refuse_scrap(path, "journal", RESTORE if was_journal else "Give another file.")
    if not size and log:
        what = "is missing" if size is None else "is empty"
        raise UsageError(f"{path} {what}, and its log {path}-wal is not: it was deleted or cut off without it. {RESTORE}")
    if size == 0 and was_journal:
        raise UsageError(f"{path} is empty, and there was a journal in it, as {path}.lock says: it was cut off. {RESTORE}")


RESTORE: Final = (
    "Put back what is missing; or put a copy from before in its place and delete its .lock, -wal and -shm; or give another file. To begin"
    " anew here, delete it and what is beside it."
)


class FilesDamaged(Exception):
    """A file of an open database is no longer the file that was opened, or is truncated. The message names the file and the fault."""


class JournalFiles:
    """The files of one opened journal.

    Args:
        connection: A connection to the same database; not used while it is in a transaction.
        others: The identities of further files that are not SQLite's, by path.
    """

    def __init__(self, path: Path, connection: apsw.Connection, others: Mapping[Path, Identity]) -> None:
        self._connection = connection
        self._path = str(path)
        self._index = f"{path}-shm"
        self._page_bytes = int(connection.execute("PRAGMA page_size").get)
        self._log = WriteAheadLog(self._path, self._page_bytes)
        self._known = {str(file): identity for file, identity in {path: _identity(os.stat(path)), **others}.items()}
        self._to_come = {self._log.path, self._index}
        """The files that the first commit creates."""
        self._log_bytes = self._index_bytes = 0
        self._file_pages = 0
        self.check_names()
        self._log.open()

    def check_names(self) -> None:
        """Check that the files with these names are those that were opened.

        Must be called before SQLite reads the index, which it maps into memory.

        Raises:
            FilesDamaged: A file was deleted, replaced or truncated.
        """
        try:
            for path, identity in self._known.items():
                found = os.stat(path)
                if _identity(found) != identity:
                    raise FilesDamaged(f"{path} was deleted or replaced")
                self._note_size(path, found.st_size)
            for path in tuple(self._to_come) if self._to_come else ():
                if _size(path) is not None:
                    self._known[path] = _identity(os.stat(path))
                    self._to_come.discard(path)
        except FileNotFoundError as error:
            raise FilesDamaged(f"{error.filename} was deleted or replaced") from error
        except OSError as error:
            raise FilesDamaged(f"{error.filename} can no longer be looked at ({error.strerror})") from error

    def check_before_writing(self) -> LogEnd:
        """Check, inside a transaction that keeps other writers out, that all earlier commits are there. Return the log's end.

        Raises:
            FilesDamaged: Something is missing.
            apsw.BusyError: Another engine did not finish a commit in time.
        """
        frames = self._check_log()
        end = self._log.end(frames)
        pages = end.database_pages if frames else self._count()
        self._check_pages(lambda: self._log.lacks(pages, self._file_pages, frames))
        return end

    def check_written(self, before: LogEnd) -> None:
        """Check, after a commit, that the commit is in the files with these names, and that the log before it is intact.

        Args:
            before: The log's end before the commit.

        Raises:
            FilesDamaged: The commit or the log before it is missing.
            apsw.BusyError: Another engine did not finish a commit in time.
        """
        self.check_names()
        self._check_log()
        for _ in range(_LOOKS):
            if self._log.has(before) or not self._frames():  # no frames: a checkpoint has emptied the log
                return
        raise FilesDamaged(f"{self._log.path} was cut off")

    def check_whole(self) -> None:
        """Check, outside a transaction and after reading, that everything that was committed is there.

        Raises:
            FilesDamaged: Something is missing.
            apsw.BusyError: Another engine did not finish a commit in time.
        """
        self.check_names()
        self._check_log()
        self._check_pages(lambda: self._log.lacks(self._count(), self._file_pages, None))

    @contextmanager
    def whole(self) -> Iterator[None]:
        """Check the files before and after the block, which reads the database.

        Raises:
            FilesDamaged: Something is missing. Raised instead of an `Unreadable` of the block, because it gives the cause.
        """
        self.check_names()
        try:
            yield
        except Unreadable:
            self.check_whole()
            raise
        self.check_whole()

    def close(self) -> None:
        self._log.close()

    def _note_size(self, path: str, size: int) -> None:
        if path == self._path:
            self._file_pages = size // self._page_bytes
            if not self._file_pages:
                raise FilesDamaged(f"{path} was cut off")
        elif path == self._log.path:
            self._log_bytes = size
        elif path == self._index:
            if size < self._index_bytes:
                raise FilesDamaged(f"{path} was cut off")
            self._index_bytes = size

    def _check_log(self) -> int:
        """Check that the log's file is as long as SQLite expects, and return the number of frames."""
        while True:
            frames = self._frames()
            needed = self._log.size_of(frames)
            if self._log_bytes >= needed:
                return frames
            self._log_bytes = _size(self._log.path) or 0
            if self._log_bytes >= needed:
                return frames
            if frames == self._frames():  # otherwise another engine has just restarted the log
                raise FilesDamaged(f"{self._log.path} was cut off")

    def _check_pages(self, lacks: Callable[[], bool]) -> None:
        """Check that each page of the database is in its file or in the log. Repeated, because a checkpoint may be moving pages."""
        for _ in range(_LOOKS):
            if not lacks():
                return
            self.check_names()
        raise FilesDamaged(f"{self._path} was cut off")

    def _count(self) -> int:
        return int(self._connection.execute("PRAGMA page_count").get)

    def _frames(self) -> int:
        """Return the number of frames in the log according to SQLite."""
        import apsw

        until = monotonic() + JOURNAL_WAIT_S
        while True:
            try:
                return self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_NOOP)[0]
            except apsw.BusyError:  # another engine is writing that number; SQLite itself does not wait here
                if monotonic() > until:
                    raise
                sleep(_AGAIN_S)


def _size(path: Path | str) -> int | None:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return None


def _identity(found: os.stat_result) -> Identity:
    return found.st_dev, found.st_ino
