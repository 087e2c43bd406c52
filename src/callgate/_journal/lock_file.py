"""The file of locks beside an SQLite journal: who of its writers is still there.

Each writer locks one byte, that of its number, through its own opening of the file. The kernel lets go of it when the process ends,
however it ends and in whatever container; so a dead writer is known at once, and one that only stands still is not taken for dead. Where a
system has no such locks, nobody is known to be gone, and leases run out by time alone.

The file also remembers, by a mark in it, that there was a journal, and which event it had at least: so one that was emptied is not taken
for one that is yet to be made, and one that lost its last events is not continued in silence.

The file as a whole is locked for sharing. A callgate that knew one writer per file locked it for itself: the two never write together.
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

from callgate._limits import JOURNAL_WAIT_S
from callgate.errors import UsageError

__all__ = ["LockFile", "LockFileReader", "RecordedEnd", "this_boot"]

_SET: Final = getattr(fcntl, "F_OFD_SETLK", None)
_ASK: Final = getattr(fcntl, "F_OFD_GETLK", None)
_FORM: Final = "hhqqi0q"
"""`struct flock`: kind, whence, start, length, process."""
_OPENING: Final = 1 << 62
"""The byte that is locked by whoever opens the journal: no writer has that number."""
_AGAIN_S: Final = 0.005
_MARK: Final = b"callgate: there is a journal beside this file\n"
_END_BYTES: Final = 160
_LOOKS: Final = 100


class RecordedEnd(Struct, frozen=True):
    """The last event that the journal is known to have had."""

    position: int
    hash: str
    boot: str = ""
    """In which it was written, if a loss of power may take the event; empty: it survives one."""

    @property
    def counts(self) -> bool:
        """Whether no loss of power can have taken the event."""
        return self.boot in ("", this_boot())


def this_boot() -> str:
    """Names the time since the machine was started; empty where the system does not say."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return ""


class LockFile:
    """One writer's opening of the file.

    Use `opening_errors` while the journal beside it is opened.

    Raises:
        UsageError: A callgate that shares with nobody writes to the journal, or another one has been opening it for too long.
        OSError: The file cannot be made or opened.
    """

    def __init__(self, journal: Path) -> None:
        self.path = Path(f"{journal}.lock")
        until = monotonic() + JOURNAL_WAIT_S
        while True:
            self._made = not self.path.exists()
            self._file = os.fdopen(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "r+b", buffering=0)
            try:
                self._share(journal)
                self._begin_opening(journal, until)
            except BaseException:
                self._file.close()
                raise
            if self._has_the_name():
                return
            self._file.close()  # whoever made it has taken it back meanwhile

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
            except (BlockingIOError, PermissionError):  # which of the two is left to the system
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
        """Let others open the journal."""
        if _SET is not None:
            fcntl.fcntl(self._file, _SET, _lock_of(fcntl.F_UNLCK, _OPENING))

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

    def forget(self) -> None:
        """There is no journal any more: somebody has deleted it."""
        os.ftruncate(self._file.fileno(), 0)

    @property
    def end(self) -> RecordedEnd | None:
        """What the journal had at least; None where that is not known."""
        return _end_in(self._file)

    def note_end(self, end: RecordedEnd) -> None:
        """Remember what the journal has now. Without waiting for the disk: after a loss of power an earlier end may stand there."""
        with suppress(OSError):
            os.pwrite(self._file.fileno(), _encoded(end), len(_MARK))

    def hold(self, number: int) -> None:
        """Show that the writer of this number is here, until the file is closed."""
        if _SET is not None:
            fcntl.fcntl(self._file, _SET, _lock_of(fcntl.F_WRLCK, number))

    def is_held(self, number: int) -> bool:
        """Whether the writer of this number may still be here."""
        return _is_held(self._file, number)

    def close(self) -> None:
        self._file.close()

    def take_back(self) -> None:
        """Leave nothing behind where there turned out to be no journal; before `end_opening`."""
        if self._made and not self.is_marked:
            self.path.unlink(missing_ok=True)
        self._file.close()


class LockFileReader:
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

    @property
    def end(self) -> RecordedEnd | None:
        """What the journal had at least; None where that is not known."""
        try:
            with open(self._path, "rb") as file:
                return _end_in(file)
        except OSError:
            return None


def _lock_of(kind: int, byte: int) -> bytes:
    return struct.pack(_FORM, kind, os.SEEK_SET, byte, 1, 0)


def _end_in(file: BinaryIO) -> RecordedEnd | None:
    for _ in range(_LOOKS):  # somebody may just be writing it
        if (end := _decoded(os.pread(file.fileno(), _END_BYTES, len(_MARK)))) is not None:
            return end
    return None


def _encoded(end: RecordedEnd) -> bytes:
    text = f"{end.position} {end.hash} {end.boot or '-'} ".encode()
    return (text + f"{zlib.crc32(text):08x}\n".encode()).rjust(_END_BYTES)


def _decoded(stored: bytes) -> RecordedEnd | None:
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
