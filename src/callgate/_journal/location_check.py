"""Check whether a journal could be opened for writing in a file or on a server. Creates and changes nothing.

The messages are those that opening the journal would give. What only writing shows, such as a full disk, is not found.
"""

from __future__ import annotations

import os
from pathlib import Path

from callgate._database_file_checks import OWN_FOLDER, refused_by_system
from callgate._journal.journal_reader import is_url
from callgate._unusable_paths import refused_paths, resolved

__all__ = ["refuse_unusable_location"]


def refuse_unusable_location(place: str) -> None:
    """Raise if no journal can be written at this file or `postgresql://` address.

    Raises:
        UsageError: The file is something else, its folder does not exist or cannot be written, the server cannot be reached, or its driver
            is not installed.
    """
    if is_url(place):
        from callgate._journal.postgres_server import PostgresSchema

        PostgresSchema(place, "callgate").connect().close()
    else:
        _refuse_unusable_file(resolved(place, "a journal"))


def _refuse_unusable_file(path: Path) -> None:
    with refused_paths(path, "a journal"):
        folder = path.parent
        os.stat(folder.parent if folder.name == OWN_FOLDER and not folder.exists() else folder)
        is_written = path.exists() and (path.is_dir() or path.stat().st_size > 0)
    if refused := refused_by_system(path):
        raise refused
    if is_written:
        from callgate._journal.sqlite_reader import SqliteReader

        SqliteReader(path).close()
