"""The write-ahead log of an SQLite database, as its file has it: how long it must be, what its last frame is, which pages are in it.

SQLite keeps in memory how many frames the log has and writes behind the last one, whether the file still reaches so far or not.
`sqlite_files` compares the two. To read this file beside SQLite is safe: SQLite holds no locks on it. Knows nothing of events.

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
"""Where in the header: the log has another one each time that it is begun anew."""
_FRAME_HEADER: Final = 24
_AT_ONCE: Final = 16
"""Frames."""
_LOCK_BYTE: Final = 0x40000000
"""The page with this byte of a database is never written."""


class LogEnd(Struct, frozen=True):
    """The last frame of a log."""

    salt: bytes
    frames: int
    frame: bytes

    @property
    def database_pages(self) -> int:
        """How many pages the database has by the commit that ends with this frame."""
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
        """Up to this page, the log has all pages behind the database's file."""
        self._file_pages = 0

    def size_of(self, frames: int) -> int:
        """How long the file is at least, with so many frames."""
        return _HEADER + frames * self._frame_bytes if frames else 0

    def end(self, frames: int) -> LogEnd:
        """The last of so many frames."""
        return LogEnd(self._read(*_SALT), frames, self._frame(frames))

    def has(self, end: LogEnd) -> bool:
        """Whether an earlier end is still there, or was no longer needed: then the log was begun anew meanwhile."""
        frame, header = self._frame(end.frames), self._read(0, _HEADER)
        at, size = _SALT
        salt = header[at : at + size]
        return frame == end.frame if salt == end.salt else header[:4] in _MAGIC

    def lacks(self, database_pages: int, file_pages: int, frames: int | None) -> bool:
        """Whether a page of the database is neither in its file nor in the log.

        Args:
            file_pages: How many whole pages the file has.
            frames: Of the log; None: as many as there are.
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
        """Forget what was found of an earlier log, or beside an earlier length of the file."""
        salt = self._read(*_SALT)
        if salt != self._salt:
            self._salt, self._scanned, self._complete = salt, 0, 0
            self._pages.clear()
        if file_pages != self._file_pages:
            self._file_pages, self._complete = file_pages, 0

    def open(self) -> None:
        """Open the file where there is one; it is then read without another descriptor, also where the process has none left."""
        if self._file is None:
            with suppress(FileNotFoundError):  # it is made with the first commit
                self._file = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _scan(self, frames: int | None) -> Iterator[int]:
        """The pages of the frames that have not been looked at, a few frames at once."""
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
