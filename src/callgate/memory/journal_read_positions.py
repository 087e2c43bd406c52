"""Store how far a memory has read each journal, and marks: paths that may have changed and have not been read since.

Both are on disk, so that the next process continues where this one ended. A mark names a file, a folder or a whole
workspace. If a workspace has too many marks, one mark for the whole workspace replaces them. Does not read files.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from callgate.memory.database import Database

if TYPE_CHECKING:
    import apsw

__all__ = ["MOST_MARKS", "ChangeCause", "ChangedFile", "ReadPositions"]

MOST_MARKS: Final = 10_000
"""The maximum number of marks of one workspace."""
_EVERYTHING: Final = ""


class ChangeCause(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The call that may have changed files."""

    call: str
    run: str = ""
    tool: str = ""
    principal: str = ""
    actor: str = ""
    conversation: str = ""
    redacted: bool = False
    """Whether the call's engine redacts secrets. If so, only a memory that redacts may store the files."""


class ChangedFile(Struct, frozen=True, kw_only=True):
    """A path in a workspace that may have changed."""

    workspace: str
    path: str
    """Relative to the workspace; empty for all of it."""
    since_ns: int
    """When the call that may have changed the path was received, in UTC nanoseconds. Older files are unchanged."""
    cause: ChangeCause
    number: int = 0
    failures: int = 0


_cause = msgspec.json.Decoder(ChangeCause).decode


class ReadPositions:
    """The positions and marks of a memory."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def position(self, journal: str) -> int:
        """Return the position up to which a journal was read; 0 if it was not read."""
        with self._database.reading() as connection:
            return int(connection.execute("SELECT coalesce(max(position), 0) FROM cursors WHERE journal = ?", (journal,)).get)

    def set_position(self, journal: str, position: int) -> None:
        with self._database.writing() as connection:
            connection.execute("INSERT OR REPLACE INTO cursors VALUES (?, ?)", (journal, position))

    def mark(self, marks: Sequence[ChangedFile]) -> None:
        """Add marks. A mark replaces an earlier mark of the same path."""
        if marks:
            with self._database.writing() as connection:
                for mark in marks:
                    _add(connection, mark)
                for workspace in {mark.workspace for mark in marks}:
                    _merge_marks(connection, workspace)

    def marks(self, *, redacting: bool, limit: int = 1_000) -> list[ChangedFile]:
        """Return the oldest marks.

        Args:
            redacting: Whether the memory redacts. If not, marks of calls whose engine redacts are left out.
            limit: The maximum number of marks.
        """
        sql = """SELECT number, workspace, path, since_ns, cause, failures FROM marks
            WHERE ? OR json_extract(cause, '$.redacted') IS NULL ORDER BY number LIMIT ?"""
        with self._database.reading() as connection:
            return [_mark(*row) for row in connection.execute(sql, (redacting, limit))]

    def marked_paths(self, workspace: str) -> set[str]:
        """Return the marked paths of a workspace."""
        with self._database.reading() as connection:
            return {str(path) for (path,) in connection.execute("SELECT path FROM marks WHERE workspace = ?", (workspace,))}

    def count(self) -> int:
        with self._database.reading() as connection:
            return int(connection.execute("SELECT count(*) FROM marks").get)

    def remove(self, mark: ChangedFile) -> None:
        """Remove a mark, unless its path was marked again in the meantime."""
        with self._database.writing() as connection:
            connection.execute("DELETE FROM marks WHERE number = ?", (mark.number,))

    def count_failure(self, mark: ChangedFile) -> int:
        """Count a failure of a mark; return the number of failures."""
        with self._database.writing() as connection:
            connection.execute("UPDATE marks SET failures = failures + 1 WHERE number = ?", (mark.number,))
        return mark.failures + 1


def _add(connection: apsw.Connection, mark: ChangedFile) -> None:
    """Add a mark with a new number. If the path is already marked, keep the earlier `since_ns`."""
    connection.execute(
        """INSERT OR REPLACE INTO marks (workspace, path, since_ns, cause, failures) VALUES (?1, ?2, min(?3,
            coalesce((SELECT since_ns FROM marks WHERE workspace = ?1 AND path = ?2), ?3)), ?4, 0)""",
        (mark.workspace, mark.path, mark.since_ns, msgspec.json.encode(mark.cause).decode()),
    )


def _merge_marks(connection: apsw.Connection, workspace: str) -> None:
    """Replace the marks of a workspace by one for the whole workspace if there are more than `MOST_MARKS`."""
    if int(connection.execute("SELECT count(*) FROM marks WHERE workspace = ?", (workspace,)).get) > MOST_MARKS:
        since, cause = next(connection.execute("SELECT min(since_ns), cause FROM marks WHERE workspace = ?", (workspace,)))
        connection.execute("DELETE FROM marks WHERE workspace = ?", (workspace,))
        _add(connection, ChangedFile(workspace=workspace, path=_EVERYTHING, since_ns=int(since), cause=_cause(str(cause))))


def _mark(number: int, workspace: str, path: str, since_ns: int, cause: str, failures: int) -> ChangedFile:
    return ChangedFile(workspace=workspace, path=path, since_ns=since_ns, cause=_cause(cause), number=number, failures=failures)
