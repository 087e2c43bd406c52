"""Open a journal for reading only, whatever store it is in; a store's driver is loaded when it is asked for."""

from __future__ import annotations

from pathlib import Path

from callgate._journal.reading import Reader, is_url

__all__ = ["open_reader"]


def open_reader(where: str | Path) -> Reader:
    """A reader of the journal in this file, or at this `postgresql://` address.

    Raises:
        UsageError: There is none, or it cannot be read.
    """
    if is_url(where):
        from callgate._journal.postgres import PostgresReader

        return PostgresReader(str(where))
    from callgate._journal.sqlite_reader import SqliteReader

    return SqliteReader(where)
