"""Create database files readable by the owner only, and refuse existing files that SQLite would overwrite silently.

SQLite treats a file that is too small for a database as an empty database, whatever it contains.

Opens no database: closing a second file descriptor of a database would release its locks.
"""

from __future__ import annotations

import errno
import os
import resource
import stat
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from callgate._unusable_paths import path_error
from callgate.errors import UsageError

if TYPE_CHECKING:
    import apsw

__all__ = ["OWN_FOLDER", "make_folder", "make_private", "refuse_scrap", "refused_by_system", "require_folder", "space_error"]

OWN_FOLDER: Final = ".callgate"
"""The folder for the command line's own files; file tools have no access to a folder of this name."""

_SMALLEST: Final = 512
"""Size in bytes of the smallest database."""
_INDEX_BYTES: Final = 65_536
"""With fewer free bytes than this, the shared-memory index of a write-ahead log may not fit."""

_FILES_OF_DATABASE: Final = 4
"""How many files SQLite opens at most for a database: itself, its log, the index of the log, and its folder."""


def refuse_scrap(path: str | os.PathLike[str], kind: str, then: str) -> None:
    """Refuse a path that is a device, a pipe or a socket, or a non-empty file that cannot be a database.

    Args:
        kind: What the file should be, for the message.
        then: The next step, as a sentence.

    Raises:
        UsageError: The file is not usable.
    """
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return
    if not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
        raise UsageError(
            f"{os.fspath(path)} cannot be used as a {kind}: it is not a regular file, so nothing can be kept in it. Give a file."
        )
    size = found.st_size
    if 0 < size < _SMALLEST:
        raise UsageError(f"{os.fspath(path)} is not a {kind}: {size} byte{'s' if size > 1 else ''} cannot be a database. {then}")


def refused_by_system(path: Path, *, to_read: bool = False) -> UsageError | None:
    """Return why the system does not let SQLite open or write a journal's file; None if it does.

    SQLite itself does not report the reason.

    Args:
        to_read: Whether the file is only read.
    """
    if path.is_dir():
        return path_error(path, "a journal", IsADirectoryError(errno.EISDIR, "", str(path)))
    needed = os.R_OK if to_read else os.R_OK | os.W_OK
    for one in (path, path.parent):
        if one.exists() and not os.access(one, needed):
            number = errno.EROFS if not to_read and os.statvfs(one).f_flag & os.ST_RDONLY else errno.EACCES
            return path_error(path, "a journal", OSError(number, "", str(one)))
    return path_error(path, "a journal", OSError(errno.EMFILE, "", str(path))) if _lacks_descriptors() else None


def _lacks_descriptors() -> bool:
    """Return whether this process may not open as many files as a database has."""
    opened: list[int] = []
    try:
        while len(opened) < _FILES_OF_DATABASE:
            opened.append(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        return True
    finally:
        for descriptor in opened:
            os.close(descriptor)
    return False


def space_error(path: Path, error: apsw.Error) -> OSError | None:
    """Return the error if SQLite had no space to write; None if another cause is found.

    In some places SQLite reports a lack of space as an I/O error.
    """
    import apsw

    if not isinstance(error, apsw.FullError | apsw.IOError):
        return None
    if resource.getrlimit(resource.RLIMIT_FSIZE)[0] != resource.RLIM_INFINITY and isinstance(error, apsw.IOError):
        return OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(path))
    with suppress(OSError):
        disk = os.statvfs(path.parent)
        if isinstance(error, apsw.IOError) and disk.f_bavail * disk.f_frsize >= _INDEX_BYTES:
            return None
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))


def make_folder(folder: str | os.PathLike[str]) -> None:
    """Create the folder of a database if it is missing; a `.callgate` folder is excluded from version control.

    Raises:
        OSError: It cannot be created.
    """
    path = Path(folder)
    own = path.name == OWN_FOLDER
    path.mkdir(mode=0o700 if own else 0o777, parents=True, exist_ok=True)
    if own:
        with suppress(OSError):  # it exists already
            fd = os.open(path / ".gitignore", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with open(fd, "wb") as file:
                file.write(b"*\n")


def require_folder(folder: Path) -> None:
    """Check that the folder of a journal exists, because a mistyped path must not begin a journal without the calls of the old one.

    A `.callgate` folder is created.

    Raises:
        OSError: The folder does not exist or cannot be used.
    """
    if folder.name == OWN_FOLDER:
        os.stat(folder.parent)
        make_folder(folder)
    else:
        os.stat(folder)


def make_private(path: str | os.PathLike[str]) -> None:
    """Create an empty file that only its owner can read, if there is none.

    SQLite creates its other files with the same mode. An existing file is not opened, because closing it would release
    its locks.
    """
    if os.fspath(path) == ":memory:":
        return
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
