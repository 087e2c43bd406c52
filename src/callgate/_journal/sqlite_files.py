"""Check that the files of an SQLite journal are still those that were opened, and whole.

SQLite relies on what it wrote. A file that somebody deletes, replaces or truncates takes commits with it that were reported as kept, and
where nothing is left of it, SQLite starts a new database without an error. `sqlite_store` asks before and after each commit, so that
nothing is reported as kept then, and readers ask before and after they read. The database and its index are not opened here: closing a
second file descriptor of either would release SQLite's locks.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, Final

from callgate._database_files import refuse_scrap
from callgate._journal.event_rows import Unreadable
from callgate._journal.write_ahead_log import LogEnd, WriteAheadLog
from callgate._limits import JOURNAL_WAIT_S
from callgate.errors import UsageError

if TYPE_CHECKING:
    import apsw

__all__ = ["RESTORE", "FilesDamaged", "JournalFiles", "refuse_remains"]

Identity = tuple[int, int]
_AGAIN_S: Final = 0.001
_LOOKS: Final = 3
"""How often something is read that others may change meanwhile, before it is believed to be wrong."""


def refuse_remains(path: Path, *, was_journal: bool) -> None:
    """Refuse what is left of a journal that was cut off: SQLite would begin a new one there, and delete the log.

    Args:
        was_journal: Whether it is known that there was one in the file. Of an empty file with nothing beside it nobody can tell.

    Raises:
        UsageError: It is.
    """
    size, log = _size(path), _size(Path(f"{path}-wal"))
    refuse_scrap(path, "journal", RESTORE)
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
    """A file of an open database is no longer what it was. The text names it and says what became of it."""


class JournalFiles:
    """The files of one opened journal.

    Args:
        connection: To the same database; nothing is asked of it while it is in a transaction.
        others: Those that are not SQLite's, as they were opened.
    """

    def __init__(self, path: Path, connection: apsw.Connection, others: Mapping[Path, Identity]) -> None:
        self._connection = connection
        self._path = str(path)
        self._index = f"{path}-shm"
        self._page_bytes = int(connection.execute("PRAGMA page_size").get)
        self._log = WriteAheadLog(self._path, self._page_bytes)
        self._known = {str(file): identity for file, identity in {path: _identity(os.stat(path)), **others}.items()}
        self._to_come = {self._log.path, self._index}
        """What a first commit makes."""
        self._log_bytes = self._index_bytes = 0
        self._file_pages = 0
        self.check_names()
        self._log.open()

    def check_names(self) -> None:
        """Whether the files that have the names are those that were opened. To be asked before SQLite touches the index, which it maps.

        Raises:
            FilesDamaged: They are not.
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
        """Inside a transaction that keeps other writers off: whether all is there that it will be put behind; gives the log's end.

        Raises:
            FilesDamaged: Something is missing.
            apsw.BusyError: Another engine has not come to the end of a commit in time.
        """
        frames = self._check_log()
        end = self._log.end(frames)
        pages = end.database_pages if frames else self._count()
        self._check_pages(lambda: self._log.lacks(pages, self._file_pages, frames))
        return end

    def check_written(self, before: LogEnd) -> None:
        """After the commit: whether it is in the files that have the names, and right behind what was there before.

        Raises:
            FilesDamaged: It is not.
            apsw.BusyError: Another engine has not come to the end of a commit in time.
        """
        self.check_names()
        self._check_log()
        for _ in range(_LOOKS):
            if self._log.has(before) or not self._frames():  # none: a checkpoint has cut it to nothing, and it is begun anew next
                return
        raise FilesDamaged(f"{self._log.path} was cut off")

    def check_whole(self) -> None:
        """Outside a transaction, and after reading: whether all is there that was committed.

        Raises:
            FilesDamaged: Something is missing.
            apsw.BusyError: Another engine has not come to the end of a commit in time.
        """
        self.check_names()
        self._check_log()
        self._check_pages(lambda: self._log.lacks(self._count(), self._file_pages, None))

    @contextmanager
    def whole(self) -> Iterator[None]:
        """Read between two looks at the files.

        Raises:
            FilesDamaged: Something is missing; also in place of `Unreadable`, because it says why.
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
        """Whether the log is as long as SQLite has it; how many frames that are."""
        while True:
            frames = self._frames()
            needed = self._log.size_of(frames)
            if self._log_bytes >= needed:
                return frames
            self._log_bytes = _size(self._log.path) or 0
            if self._log_bytes >= needed:
                return frames
            if frames == self._frames():  # or another engine has just begun the log anew
                raise FilesDamaged(f"{self._log.path} was cut off")

    def _check_pages(self, lacks: Callable[[], bool]) -> None:
        """Whether each page of the database is in its file or in the log; a checkpoint may just be moving some."""
        for _ in range(_LOOKS):
            if not lacks():
                return
            self.check_names()
        raise FilesDamaged(f"{self._path} was cut off")

    def _count(self) -> int:
        return int(self._connection.execute("PRAGMA page_count").get)

    def _frames(self) -> int:
        """How many frames are in the log, as SQLite has it."""
        import apsw

        until = monotonic() + JOURNAL_WAIT_S
        while True:
            try:
                return self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_NOOP)[0]
            except apsw.BusyError:  # another engine is just writing that number; SQLite itself does not wait here
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
