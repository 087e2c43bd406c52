"""What SQLite writes over without asking: a file too small for a database is an empty one to it, whoever's it is.

Below everything that keeps a database. Opens nothing: to close a second opening of a database would let go of its locks.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Final

from callgate._paths import path_error
from callgate.errors import UsageError

__all__ = ["refuse_scrap", "refused_by_system"]

_SMALLEST: Final = 512
"""Bytes of the smallest database."""


def refuse_scrap(path: str | os.PathLike[str], kind: str, then: str) -> None:
    """Refuse a file that is not empty and cannot be a database.

    Args:
        kind: What it should be.
        then: What to do instead, as a sentence.

    Raises:
        UsageError: It is one.
    """
    try:
        size = os.stat(path).st_size
    except FileNotFoundError:
        return
    if 0 < size < _SMALLEST:
        raise UsageError(f"{os.fspath(path)} is no {kind}: {size} byte{'s' if size > 1 else ''} can be no database. {then}")


def refused_by_system(path: Path, *, to_read: bool = False) -> UsageError | None:
    """Why SQLite could not open or write a journal's file, which it does not say itself; None where the system has nothing against it.

    Args:
        to_read: Nothing is to be written.
    """
    if path.is_dir():
        return path_error(path, "a journal", IsADirectoryError(errno.EISDIR, "", str(path)))
    needed = os.R_OK if to_read else os.R_OK | os.W_OK
    for one in (path, path.parent):
        if one.exists() and not os.access(one, needed):
            number = errno.EROFS if not to_read and os.statvfs(one).f_flag & os.ST_RDONLY else errno.EACCES
            return path_error(path, "a journal", OSError(number, "", str(one)))
    return None
