"""The file of locks beside an SQLite journal: who of its writers is still there.

Each writer locks one byte, that of its number, through its own opening of the file. The kernel lets go of it when the process ends,
however it ends and in whatever container; so a dead writer is known at once, and one that only stands still is not taken for dead. Where a
system has no such locks, nobody is known to be gone, and leases run out by time alone.

The file also remembers, by a mark in it, that there was a journal: so one that was emptied is not taken for one that is yet to be made.

The file as a whole is locked for sharing. A callgate that knew one writer per file locked it for itself: the two never write together.
"""

from __future__ import annotations

import fcntl
import os
import struct
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final

from callgate.errors import UsageError

__all__ = ["LockFile", "LockLook"]

_SET: Final = getattr(fcntl, "F_OFD_SETLK", None)
_ASK: Final = getattr(fcntl, "F_OFD_GETLK", None)
_FORM: Final = "hhqqi0q"
"""`struct flock`: kind, whence, start, length, process."""
_MARK: Final = b"callgate: there is a journal beside this file\n"


class LockFile:
    """One writer's opening of the file.

    Raises:
        UsageError: A callgate that shares with nobody writes to the journal.
    """

    def __init__(self, journal: Path) -> None:
        self.path = Path(f"{journal}.lock")
        self._made = not self.path.exists()
        self._file = open(self.path, "a+b")  # noqa: SIM115
        try:
            fcntl.flock(self._file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            self._file.close()
            raise UsageError(
                f"The journal {journal} is being written by an older callgate, which shares it with nobody. Close that one, or give another"
                " file."
            ) from None

    @property
    def identity(self) -> tuple[int, int]:
        """Which file it is."""
        found = os.fstat(self._file.fileno())
        return found.st_dev, found.st_ino

    @property
    def is_marked(self) -> bool:
        """Whether there was a journal before."""
        return os.fstat(self._file.fileno()).st_size > 0

    def mark(self) -> None:
        """Remember that there is a journal now; on a full disk it is not remembered."""
        if not self.is_marked:
            with suppress(OSError):
                os.write(self._file.fileno(), _MARK)

    def hold(self, number: int) -> None:
        """Show that the writer of this number is here, until the file is closed."""
        if _SET is not None:
            fcntl.fcntl(self._file, _SET, struct.pack(_FORM, fcntl.F_WRLCK, os.SEEK_SET, number, 1, 0))

    def is_held(self, number: int) -> bool:
        """Whether the writer of this number may still be here."""
        return _is_held(self._file, number)

    def close(self) -> None:
        self._file.close()

    def take_back(self) -> None:
        """Leave nothing behind where there turned out to be no journal."""
        if self._made:
            with suppress(OSError):
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self.path.unlink(missing_ok=True)
        self._file.close()


class LockLook:
    """Whoever only asks who is there: locks nothing, makes no file, and needs no right to write."""

    def __init__(self, journal: Path) -> None:
        self._path = Path(f"{journal}.lock")

    def is_held(self, number: int) -> bool:
        """Whether the writer of this number may still be here."""
        try:
            with open(self._path, "rb") as file:
                return _is_held(file, number)
        except FileNotFoundError:
            return False
        except OSError:
            return True


def _is_held(file: BinaryIO, number: int) -> bool:
    if _ASK is None:
        return True
    found = fcntl.fcntl(file, _ASK, struct.pack(_FORM, fcntl.F_WRLCK, os.SEEK_SET, number, 1, 0))
    return bool(struct.unpack(_FORM, found)[0] != fcntl.F_UNLCK)
