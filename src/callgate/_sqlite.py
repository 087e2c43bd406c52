"""What SQLite writes over without asking: a file too small for a database is an empty one to it, whoever's it is.

Below everything that keeps a database. Opens nothing: to close a second opening of a database would let go of its locks.
"""

from __future__ import annotations

import os
from typing import Final

from callgate.errors import UsageError

__all__ = ["refuse_scrap"]

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
