"""An index of the text files of workspaces, so that a search reads only files that can match.

The index stores each file's stamp (its state according to the file system), its trigrams, and whether it is text, but
not its text. It stores nothing about files whose names contain secrets. A search asks the index about every file. If a
file is unknown, changed, or marked as possibly changed, the search reads it, so that the results are the same as
without an index. Outdated files are indexed again later, in the background.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, Literal

from msgspec import Struct

from callgate._terminal_text import one_line
from callgate._workspace import DirectoryEntry, PathRefused, Workspace, is_protected, stamp_of
from callgate.builtins._text_pages import decode_text, is_binary
from callgate.builtins._text_search import MAX_FILE
from callgate.memory.database import Database
from callgate.memory.journal_read_positions import ReadPositions
from callgate.memory.memory_limits import LOGGED_CHARS

if TYPE_CHECKING:
    import apsw

__all__ = ["IndexedFile", "WorkspaceIndex", "fold_case", "grams"]

log = logging.getLogger("callgate")
_GRAM: Final = 3
_MOST_GRAMS: Final = 24
_LARGEST_FILE: Final = 1_048_576
_MOST_BYTES: Final = 268_435_456
_AT_ONCE: Final = 200
_TICK_S: Final = 0.05
_COARSE_TICK_S: Final = 2.0

Kind = Literal["text", "binary", "large", "unread"]


class IndexedFile(Struct, frozen=True):
    """The entry of one file in the index."""

    number: int
    stamp: str
    kind: Kind


def fold_case(text: str) -> str:
    """Return the text in lower case with the same number of characters. A substring of the text remains a substring."""
    return text.replace("\u03a3", "\u03c3").lower().replace("\u03c2", "\u03c3").replace("\0", "\1")


def grams(pattern: str) -> list[str]:
    """Return trigrams that every text containing this pattern contains, ignoring case.

    If there are many, return only some.
    """
    text = fold_case(pattern)
    if any("\ud800" <= char <= "\udfff" for char in text):
        return []
    found = list(dict.fromkeys(text[at : at + _GRAM] for at in range(len(text) - _GRAM + 1)))
    return found[:: max(1, -(-len(found) // _MOST_GRAMS))]


class WorkspaceIndex:
    """The index of all workspaces that calls name.

    Args:
        wanted: Called with a workspace's root and the outdated paths that a search found; the paths are None if
            the whole workspace must be indexed.
        secret: Returns whether a file's name contains a secret. Such a file is treated as unknown.
    """

    def __init__(
        self,
        database: Database,
        positions: ReadPositions,
        wanted: Callable[[str, list[str] | None], None],
        *,
        most_workspaces: int,
        secret: Callable[[str], bool],
    ) -> None:
        self._database = database
        self._most_workspaces = most_workspaces
        self._positions = positions
        self._wanted = wanted
        self._secret = secret

    # Searching

    def look(self, workspace: Workspace, pattern: str) -> _IndexPass | None:
        """See `TextIndex`."""
        try:
            asked = grams(pattern)
            marked = self._positions.marked_paths(workspace.root)
            with self._database.reading() as connection:
                known = _indexed_files(connection, workspace.root)
                matching = _matching(connection, asked) if asked and known else None
            return _IndexPass(known, matching, marked, lambda paths: self._wanted(workspace.root, paths), self._database.identities)
        except Exception as error:
            log.error(
                "Memory: the index of %s cannot be used, so files are read: %s",
                one_line(workspace.root),
                one_line(str(error), LOGGED_CHARS),
            )
            return None

    def has(self, root: str) -> bool:
        """Return whether this workspace has been indexed."""
        with self._database.reading() as connection:
            return bool(connection.execute("SELECT count(*) FROM trees WHERE root = ?", (root,)).get)

    def count(self) -> int:
        """Return the number of indexed files."""
        with self._database.reading() as connection:
            return int(connection.execute("SELECT count(*) FROM indexed").get)

    # Updating

    def refresh(self, root: str, paths: Iterable[str] | None, stopped: Callable[[], bool]) -> None:
        """Index these files and folders again, or the whole workspace if `paths` is None. Ends early if `stopped` returns True."""
        with Workspace(root, sync=False) as workspace:
            with self._database.reading() as connection:
                known = _indexed_files(connection, root)
            stale, gone = _find_outdated(workspace, known, ("",) if paths is None else tuple(paths))
            hidden = {path for path in stale if self._secret(path)}
            self._forget(root, [*gone, *(hidden & known.keys())])
            stale = [path for path in stale if path not in hidden]
            for at in range(0, max(1, len(stale)), _AT_ONCE):
                if stopped():
                    return
                self._take(workspace, root, stale[at : at + _AT_ONCE], stopped)

    def _take(self, workspace: Workspace, root: str, paths: list[str], stopped: Callable[[], bool]) -> None:
        read = [(path, *_read(workspace, path)) for path in paths if not stopped()]
        with self._database.writing() as connection:
            connection.execute("INSERT OR IGNORE INTO trees (root) VALUES (?)", (root,))
            _drop_first_trees(connection, self._most_workspaces)
            tree = int(connection.execute("SELECT number FROM trees WHERE root = ?", (root,)).get)
            left = _MOST_BYTES - int(connection.execute("SELECT coalesce(sum(bytes), 0) FROM indexed WHERE tree = ?", (tree,)).get)
            for path, stamp, kind, text in read:
                left -= len(text)
                _put(connection, tree, path, stamp, "unread" if kind == "text" and left < 0 else kind, text if left >= 0 else "")

    def _forget(self, root: str, paths: list[str]) -> None:
        if paths:
            with self._database.writing() as connection:
                tree = int(connection.execute("SELECT coalesce(max(number), 0) FROM trees WHERE root = ?", (root,)).get)
                for path in paths:
                    _drop(connection, tree, path)


class _IndexPass:
    """The indexed files of a workspace, as read at the start of one search."""

    def __init__(
        self,
        known: dict[str, IndexedFile],
        matching: set[int] | None,
        marked: set[str],
        outdated: Callable[[list[str] | None], None],
        own: set[tuple[int, int]],
    ) -> None:
        self._known = known
        self._matching = matching
        self._marked = marked
        self._everything = "" in marked
        self._outdated = outdated
        self._own = {inode for _, inode in own}
        self._stale: list[str] = []

    def judge(self, entry: DirectoryEntry) -> Literal["read", "pass", "skip"]:
        known = self._known.get(entry.path)
        if known is None or known.stamp != entry.stamp:
            if int(entry.stamp.partition(":")[0] or 0) not in self._own:
                self._stale.append(entry.path)
            return "read"
        if self._marked and (self._everything or self._is_marked(entry.path)):
            return "read"
        if known.kind in ("binary", "large"):
            return "skip"
        return "pass" if known.kind == "text" and self._matching is not None and known.number not in self._matching else "read"

    def _is_marked(self, path: str) -> bool:
        names = path.split("/")
        return any("/".join(names[: end + 1]) in self._marked for end in range(len(names)))

    def close(self) -> None:
        if self._stale:
            self._outdated(self._stale if self._known and len(self._stale) <= _AT_ONCE else None)


def _find_outdated(workspace: Workspace, known: dict[str, IndexedFile], paths: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return the files to index, and the indexed files that are gone. A file in `paths` is indexed again even if its stamp is unchanged."""
    stale, here, below = list[str](), set[str](), list[str]()
    for path in paths:
        kind = workspace.kind(path or ".")
        if kind == "file":
            stale.append(path)
            here.add(path)
            continue
        below.append(f"{path}/" if path else "")
        for entry in workspace.walk(path or ".") if kind == "directory" else ():
            if entry is not None and entry.kind == "file":
                here.add(entry.path)
                if entry.path not in known or known[entry.path].stamp != entry.stamp:
                    stale.append(entry.path)
    asked = set(paths)
    gone = [path for path in known if path not in here and (path in asked or path.startswith(tuple(below)))]
    return list(dict.fromkeys(stale)), gone


def _indexed_files(connection: apsw.Connection, root: str) -> dict[str, IndexedFile]:
    sql = "SELECT path, indexed.number, stamp, kind FROM indexed JOIN trees ON trees.number = tree WHERE root = ?"
    return {path: IndexedFile(number, stamp, kind) for path, number, stamp, kind in connection.execute(sql, (root,))}


def _matching(connection: apsw.Connection, asked: list[str]) -> set[int]:
    expression = " AND ".join('"{}"'.format(gram.replace('"', '""')) for gram in asked)
    return {int(number) for (number,) in connection.execute("SELECT rowid FROM grams WHERE grams MATCH ?", (expression,))}


def _read(workspace: Workspace, path: str) -> tuple[str, Kind, str]:
    """Return the file's stamp, its kind and its text. The text is empty if it must not be indexed."""
    try:
        found = workspace.stat(path)
        if is_protected(path):
            return stamp_of(found), "unread", ""
        _wait_a_tick(found)
        with workspace.open_read(path) as file:
            before = os.fstat(file.fileno())
            data = file.read(_LARGEST_FILE + 1) if before.st_size <= MAX_FILE else b""
            after = os.fstat(file.fileno())
    except (PathRefused, OSError):
        return "", "unread", ""
    return stamp_of(before), *_kind_and_text(data, before.st_size, same=stamp_of(before) == stamp_of(after))


def _kind_and_text(data: bytes, size: int, *, same: bool) -> tuple[Kind, str]:
    if size > MAX_FILE:
        return "large", ""
    if not same or len(data) != min(size, _LARGEST_FILE + 1):
        return "unread", ""
    if is_binary(data):
        return "binary", ""
    return ("unread", "") if size > _LARGEST_FILE else ("text", fold_case(decode_text(data)[0]))


def _wait_a_tick(found: os.stat_result) -> None:
    """Wait until later writes of the file get another timestamp, because the clocks of file systems are coarse."""
    coarse = found.st_ctime_ns % 1_000_000_000 == 0 and found.st_mtime_ns % 1_000_000_000 == 0
    tick_s = _COARSE_TICK_S if coarse else _TICK_S
    age_s = (time.time_ns() - max(found.st_ctime_ns, found.st_mtime_ns)) / 1e9
    if 0 <= age_s < tick_s:
        time.sleep(tick_s - age_s)


def _put(connection: apsw.Connection, tree: int, path: str, stamp: str, kind: Kind, text: str) -> None:
    _drop(connection, tree, path)
    sql = "INSERT INTO indexed (tree, path, stamp, kind, bytes) VALUES (?, ?, ?, ?, ?)"
    connection.execute(sql, (tree, path, stamp, kind, len(text)))
    if kind == "text":
        connection.execute("INSERT INTO grams (rowid, text) VALUES (last_insert_rowid(), ?)", (text,))


def _drop_first_trees(connection: apsw.Connection, most: int) -> None:
    """Remove the oldest indexes if there are more than `most`."""
    for (tree,) in list(connection.execute("SELECT number FROM trees ORDER BY number DESC LIMIT -1 OFFSET ?", (most,))):
        connection.execute("DELETE FROM grams WHERE rowid IN (SELECT number FROM indexed WHERE tree = ?)", (tree,))
        connection.execute("DELETE FROM indexed WHERE tree = ?", (tree,))
        connection.execute("DELETE FROM trees WHERE number = ?", (tree,))


def _drop(connection: apsw.Connection, tree: int, path: str) -> None:
    for (number,) in list(connection.execute("SELECT number FROM indexed WHERE tree = ? AND path = ?", (tree, path))):
        connection.execute("DELETE FROM grams WHERE rowid = ?", (number,))
        connection.execute("DELETE FROM indexed WHERE number = ?", (number,))
