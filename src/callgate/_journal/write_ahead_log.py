"""Read the write-ahead log file of an SQLite database: its required length, its last frame, and the pages in it.

SQLite remembers the number of frames in memory and writes after the last one, even if the file has become shorter.
`sqlite_file_checks` compares the two. Reading this file while SQLite uses it is safe, because SQLite holds no locks on
it. Knows nothing of events.

Source:
    SQLite, "Database File Format", 4.1 and 4.2: the header and the frames of a write-ahead log.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from msgspec import Struct

__all__ = ["LogEnd", "WriteAheadLog"]

_HEADER: Final = 32
_MAGIC: Final = (b"\x37\x7f\x06\x82", b"\x37\x7f\x06\x83")
_SALT: Final = 16, 8
"""Offset and size in the header. The salt changes whenever the log is restarted."""
_FRAME_HEADER: Final = 24
_AT_ONCE: Final = 16
"""How many frames are read at once."""
_LOCK_BYTE: Final = 0x40000000
"""The database page with the byte at this offset is never written."""


class LogEnd(Struct, frozen=True):
    """The last frame of a log."""

    salt: bytes
    frames: int
    frame: bytes

    @property
    def database_pages(self) -> int:
        """The number of pages of the database after the commit that ends with this frame."""
        return int.from_bytes(self.frame[4:8])


class WriteAheadLog:
    """The log of one opened database.

    Args:
        page_bytes: The size of the database's pages.
    """

    def __init__(self, database: str, page_bytes: int) -> None:
        self.path = f"{database}-wal"
        self._page_bytes = page_bytes
        self._frame_bytes = _FRAME_HEADER + page_bytes
        self._file: int | None = None
        self._salt = b""
        self._scanned = 0
        self._pages: set[int] = set()
        self._complete = 0
        """The number of the page up to which the log is known to have all pages that follow the end of the database's
        file.
        """
        self._file_pages = 0

    def size_of(self, frames: int) -> int:
        """Return the smallest possible size in bytes of a log file with this number of frames."""
        return _HEADER + frames * self._frame_bytes if frames else 0

    def end(self, frames: int) -> LogEnd:
        """Return the `LogEnd` that describes the last frame of a log with this number of frames."""
        return LogEnd(self._read(*_SALT), frames, self._frame(frames))

    def has(self, end: LogEnd) -> bool:
        """Return whether the log still has the last frame of an earlier end, or was restarted after all frames were
        checkpointed.
        """
        frame, header = self._frame(end.frames), self._read(0, _HEADER)
        at, size = _SALT
        salt = header[at : at + size]
        return frame == end.frame if salt == end.salt else header[:4] in _MAGIC

    def lacks(self, database_pages: int, file_pages: int, frames: int | None) -> bool:
        """Return whether a page of the database is neither in its file nor in the log.

        Args:
            file_pages: The number of whole pages in the database's file.
            frames: The number of frames in the log; None: all frames that can be read.
        """
        self._begin_anew(file_pages)
        if database_pages <= file_pages:
            return False
        self._pages.update(self._scan(frames))
        first = max(file_pages, self._complete) + 1
        if any(page not in self._pages for page in range(first, database_pages + 1) if page != _LOCK_BYTE // self._page_bytes + 1):
            return True
        self._complete = database_pages
        return False

    def _begin_anew(self, file_pages: int) -> None:
        """Forget the pages that were found if the log was restarted, and the completeness if the database's file has another length."""
        salt = self._read(*_SALT)
        if salt != self._salt:
            self._salt, self._scanned, self._complete = salt, 0, 0
            self._pages.clear()
        if file_pages != self._file_pages:
            self._file_pages, self._complete = file_pages, 0

    def open(self) -> None:
        """Open the file if it exists. Later reads need no other file descriptor, even if the process has none left."""
        if self._file is None:
            with suppress(FileNotFoundError):  # created with the first commit
                self._file = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _scan(self, frames: int | None) -> Iterator[int]:
        """Yield the page numbers of the frames that were not read before."""
        while self._salt and (frames is None or self._scanned < frames):
            count = _AT_ONCE if frames is None else min(_AT_ONCE, frames - self._scanned)
            found = self._read(self._place(self._scanned + 1), count * self._frame_bytes)
            for at in range(0, len(found), self._frame_bytes):
                if found[at + 8 : at + 16] != self._salt:
                    return
                self._scanned += 1
                yield int.from_bytes(found[at : at + 4])
            if len(found) < count * self._frame_bytes:
                return

    def _frame(self, number: int) -> bytes:
        return self._read(self._place(number), self._frame_bytes) if number else b""

    def _place(self, frame: int) -> int:
        return _HEADER + (frame - 1) * self._frame_bytes

    def _read(self, at: int, size: int) -> bytes:
        self.open()
        return b"" if self._file is None else os.pread(self._file, size, at)
