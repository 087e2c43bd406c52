"""The files of an SQLite journal as the disk has them: whether they are still those that were opened, and whole.

SQLite believes what it wrote to be there. A file that somebody deletes, replaces or cuts takes commits with it that were reported as kept,
and the database begins anew in silence where nothing is left of it. Beside `sqlite`, which asks before and after each commit, so that
nothing more is reported then. Nothing is opened here: to close a second opening of a database would let go of its locks.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, Final

from callgate._sqlite import refuse_scrap
from callgate.errors import JournalFailed, UsageError

if TYPE_CHECKING:
    import apsw

__all__ = ["TURN_S", "JournalFiles", "refuse_remains"]

Identity = tuple[int, int]
TURN_S: Final = 30
"""How long a commit waits for other engines' commits; one that was stopped in the middle of one holds all others up."""
_AGAIN_S: Final = 0.001
_LOG_HEAD, _FRAME_HEAD = 32, 24
"""Bytes at the beginning of the log, and of each page in it."""


def refuse_remains(path: Path, *, was_journal: bool) -> None:
    """Refuse what is left of a journal that was cut off: SQLite would begin a new one there, and delete the log.

    Args:
        was_journal: Whether it is known that there was one in the file. Of an empty file with nothing beside it nobody can tell.

    Raises:
        UsageError: It is.
    """
    size, log = _size(path), _size(Path(f"{path}-wal"))
    refuse_scrap(path, "journal", _RESTORE)
    if not size and log:
        what = "is missing" if size is None else "is empty"
        raise UsageError(f"{path} {what}, and its log {path}-wal is not: it was deleted or cut off without it. {_RESTORE}")
    if size == 0 and was_journal:
        raise UsageError(f"{path} is empty, and there was a journal in it, as {path}.lock says: it was cut off. {_RESTORE}")


_RESTORE: Final = "Put a copy from before in its place, or give another file; to begin anew here, delete it and what is beside it."


class JournalFiles:
    """The files of one opened journal.

    Args:
        others: Those that are not SQLite's, as they were opened.
    """

    def __init__(self, path: Path, connection: apsw.Connection, others: Mapping[Path, Identity]) -> None:
        self._connection = connection
        self._log = f"{path}-wal"
        self._known = {str(file): identity for file, identity in {path: _identity(os.stat(path)), **others}.items()}
        self._to_come = [self._log, f"{path}-shm"]
        """What a first commit makes."""
        self._frame_bytes = _FRAME_HEAD + int(connection.execute("PRAGMA page_size").get)

    def check_log(self) -> None:
        """Before a commit: whether all of the log is there that the commit would be put behind.

        Raises:
            JournalFailed: It is not.
            apsw.BusyError: Another engine has not come to the end of a commit in time.
        """
        while (pages := self._pages()) > 0:
            size = _size(self._log)
            if size is None or size >= _LOG_HEAD + pages * self._frame_bytes:
                return
            if pages == self._pages():  # or another engine has just begun the log anew
                raise _failed(self._log, "cut off")

    def _pages(self) -> int:
        """How many pages are in the log, as SQLite has it."""
        import apsw

        until = monotonic() + TURN_S
        while True:
            try:
                return self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_NOOP)[0]
            except apsw.BusyError:  # another engine is just writing that number; SQLite itself does not wait here
                if monotonic() > until:
                    raise
                sleep(_AGAIN_S)

    def check(self) -> None:
        """After a commit: whether what was committed is in the files that have the names.

        Raises:
            JournalFailed: It is not.
        """
        for path, identity in self._known.items():
            try:
                same = _identity(os.stat(path)) == identity
            except FileNotFoundError:
                same = False
            if not same:
                raise _failed(path, "deleted or replaced")
        while self._to_come:
            path = self._to_come.pop()
            self._known[path] = _identity(os.stat(path))


def _failed(path: str, what: str) -> JournalFailed:
    return JournalFailed(
        f"{path} was {what} while it was open. Nothing more is recorded by this engine, and what it recorded last may be lost. Put the file"
        " back or take another one, then make a new engine."
    )


def _size(path: Path | str) -> int | None:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return None


def _identity(found: os.stat_result) -> Identity:
    return found.st_dev, found.st_ino
