"""The lock file beside an SQLite journal: it shows which writers are alive.

Each writer locks one byte, at the offset of its writer number, through a file description of its own. The kernel releases the lock when the
process ends, however it ends and in whatever container. A dead writer is therefore detected at once, and a stopped process is not taken for
dead. If a system has no such locks, no writer is known to be dead, and leases end only by time.

The file also stores a mark that there was a journal, and the last event that the journal is known to have had. An emptied journal is
therefore not taken for a new one, and a journal that lost its last events is not continued silently.

Each writer also holds a shared lock on the file as a whole. An older callgate, which allowed one writer per file, locked it exclusively, so
the two never write together.
"""

from __future__ import annotations

import fcntl
import os
import struct
import zlib
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep
from typing import BinaryIO, Final

from msgspec import Struct

from callgate._engine_limits import JOURNAL_WAIT_S
from callgate.errors import UsageError

__all__ = ["LockFile", "LockFileReader", "RecordedEnd", "this_boot"]

_SET: Final = getattr(fcntl, "F_OFD_SETLK", None)
_ASK: Final = getattr(fcntl, "F_OFD_GETLK", None)
_FORM: Final = "hhqqi0q"
"""The layout of `struct flock`: type, whence, start, length, process id."""
_OPENING: Final = 1 << 62
"""The byte that a process locks while it opens the journal. No writer has this number."""
_AGAIN_S: Final = 0.005
_MARK: Final = b"callgate: there is a journal beside this file\n"
_END_BYTES: Final = 160
_LOOKS: Final = 100


class RecordedEnd(Struct, frozen=True):
    """The last event that the journal is known to have had."""

    position: int
    hash: str
    boot: str = ""
    """The id of the boot in which the event was written, if a power cut may remove the event; empty if the event survives a power cut."""

    @property
    def counts(self) -> bool:
        """Whether no power cut can have removed the event."""
        return self.boot in ("", this_boot())


def this_boot() -> str:
    """Return the id of the machine's current boot; empty if the system has none."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return ""


class LockFile:
    """The lock file as one writer has opened it.

    The constructor also takes the lock that keeps others from opening the journal; `end_opening` releases it.

    Raises:
        UsageError: The lock file is a symbolic link; an older callgate, which allows no other writer, writes to the journal; or another
            process has been opening it for too long.
        OSError: The file cannot be created or opened.
    """

    def __init__(self, journal: Path) -> None:
        self.path = Path(f"{journal}.lock")
        until = monotonic() + JOURNAL_WAIT_S
        while True:
            self._made = not self.path.exists()
            self._file = os.fdopen(self._descriptor(), "r+b", buffering=0)
            try:
                self._share(journal)
                self._begin_opening(journal, until)
            except BaseException:
                self._file.close()
                raise
            if self._has_the_name():
                return
            self._file.close()  # its creator has deleted it meanwhile

    def _descriptor(self) -> int:
        if self.path.is_symlink():  # anybody may have made it, and the file that it leads to would be emptied
            raise UsageError(f"{self.path} is a symbolic link, and a journal's lock file is none. Delete the link.")
        return os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)

    def _share(self, journal: Path) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            raise UsageError(
                f"The journal {journal} is being written by an older callgate, which shares it with nobody. Close that one, or give another"
                " file."
            ) from None

    def _begin_opening(self, journal: Path, until: float) -> None:
        """Keep others from opening the journal until `end_opening`, or until this process ends."""
        while _SET is not None:
            try:
                fcntl.fcntl(self._file, _SET, _lock_of(fcntl.F_WRLCK, _OPENING))
            except (BlockingIOError, PermissionError):  # systems differ in which of the two they raise
                if monotonic() > until:
                    raise UsageError(
                        f"The journal {journal} could not be opened for {JOURNAL_WAIT_S:g} s: another process has begun to open it and was"
                        " stopped. Let that one go on, or kill it."
                    ) from None
                sleep(_AGAIN_S)
            else:
                return

    def _has_the_name(self) -> bool:
        try:
            found = os.stat(self.path)
        except FileNotFoundError:
            return False
        return (found.st_dev, found.st_ino) == self.identity

    def end_opening(self) -> None:
        """Allow others to open the journal."""
        if _SET is not None:
            fcntl.fcntl(self._file, _SET, _lock_of(fcntl.F_UNLCK, _OPENING))

    @property
    def identity(self) -> tuple[int, int]:
        """The device and the inode of the file."""
        found = os.fstat(self._file.fileno())
        return found.st_dev, found.st_ino

    @property
    def is_marked(self) -> bool:
        """Whether there was a journal beside this file before."""
        return os.fstat(self._file.fileno()).st_size > 0

    def mark(self) -> None:
        """Store that there is a journal now. A write error, such as a full disk, is ignored."""
        if not self.is_marked:
            with suppress(OSError):
                os.write(self._file.fileno(), _MARK)

    def forget(self) -> None:
        """Remove the mark and the last event, because the journal was deleted."""
        os.ftruncate(self._file.fileno(), 0)

    @property
    def end(self) -> RecordedEnd | None:
        """The last event that the journal is known to have had; None if not known."""
        return _end_in(self._file)

    def note_end(self, end: RecordedEnd) -> None:
        """Store the journal's last event, without waiting for the disk. After a power cut the file may have an earlier event."""
        with suppress(OSError):
            os.pwrite(self._file.fileno(), _encode(end), len(_MARK))

    def hold(self, number: int) -> None:
        """Lock the byte of this writer number until the file is closed."""
        if _SET is not None:
            fcntl.fcntl(self._file, _SET, _lock_of(fcntl.F_WRLCK, number))

    def is_held(self, number: int) -> bool:
        """Return whether the writer with this number may still be alive."""
        return _is_held(self._file, number)

    def close(self) -> None:
        self._file.close()

    def take_back(self) -> None:
        """Close the file, and delete it if this object created it and there is no journal. Must be called before `end_opening`."""
        if self._made and not self.is_marked:
            self.path.unlink(missing_ok=True)
        self._file.close()


class LockFileReader:
    """Reads the lock file without locking, creating or writing anything."""

    def __init__(self, journal: Path) -> None:
        self._path = Path(f"{journal}.lock")

    def is_held(self, number: int) -> bool:
        """Return whether the writer with this number may still be alive."""
        try:
            with open(self._path, "rb") as file:
                return _is_held(file, number)
        except FileNotFoundError:
            return False
        except OSError:
            return True

    @property
    def end(self) -> RecordedEnd | None:
        """The last event that the journal is known to have had; None if not known."""
        try:
            with open(self._path, "rb") as file:
                return _end_in(file)
        except OSError:
            return None


def _lock_of(kind: int, byte: int) -> bytes:
    return struct.pack(_FORM, kind, os.SEEK_SET, byte, 1, 0)


def _end_in(file: BinaryIO) -> RecordedEnd | None:
    for _ in range(_LOOKS):  # another process may be writing it
        if (end := _decode(os.pread(file.fileno(), _END_BYTES, len(_MARK)))) is not None:
            return end
    return None


def _encode(end: RecordedEnd) -> bytes:
    text = f"{end.position} {end.hash} {end.boot or '-'} ".encode()
    return (text + f"{zlib.crc32(text):08x}\n".encode()).rjust(_END_BYTES)


def _decode(stored: bytes) -> RecordedEnd | None:
    text, _, sum_ = stored.strip().rpartition(b" ")
    if len(stored) != _END_BYTES or sum_ != b"%08x" % zlib.crc32(text + b" "):
        return None
    position, hash_, boot = text.decode().split()
    return RecordedEnd(int(position), hash_, boot.removeprefix("-"))


def _is_held(file: BinaryIO, number: int) -> bool:
    if _ASK is None:
        return True
    found = fcntl.fcntl(file, _ASK, _lock_of(fcntl.F_WRLCK, number))
    return bool(struct.unpack(_FORM, found)[0] != fcntl.F_UNLCK)
