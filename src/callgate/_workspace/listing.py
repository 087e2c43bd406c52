"""List and walk folders, and match paths against a glob.

Never follows links: a link is listed as a link, without facts about its target. Each walk limits how many entries it visits and returns,
and reports whether it stopped early.
"""

from __future__ import annotations

import os
import re
import stat
import unicodedata
from collections.abc import Callable, Iterator
from itertools import zip_longest
from typing import Literal

from msgspec import Struct

from callgate._globs import glob_regex
from callgate._workspace.path_text import UNUSABLE

__all__ = ["MAX_FOLDER", "DirectoryEntry", "Glob", "Kind", "Listing", "entries", "kind_of", "stamp_of", "walk"]

Kind = Literal["file", "directory", "link", "special"]
MAX_FOLDER = 20_000
"""The number of names that are read of one folder."""

OpenFolder = Callable[[str], int]


class DirectoryEntry(Struct, frozen=True, kw_only=True):
    """One name in the workspace."""

    path: str
    """The path relative to the root, such as `a/b`.

    Bytes that are not UTF-8 and control characters are escaped. The file cannot be opened by this text then.
    """
    kind: Kind
    size: int | None = None
    """The size in bytes; None if this is not a file."""
    stamp: str = ""
    """For a file: a text that changes if the file may have been written (`stamp_of`). Empty for other kinds."""


class Listing(Struct, frozen=True, kw_only=True):
    """The entries found, ordered by path."""

    entries: tuple[DirectoryEntry, ...]
    truncated: bool
    """Whether there are more entries than were visited or requested."""


def kind_of(found: os.stat_result) -> Kind:
    if stat.S_ISREG(found.st_mode):
        return "file"
    if stat.S_ISDIR(found.st_mode):
        return "directory"
    return "link" if stat.S_ISLNK(found.st_mode) else "special"


def stamp_of(found: os.stat_result) -> str:
    """Return a stamp that every write changes, except a write within the same tick of the file system's clock."""
    return f"{found.st_ino}:{found.st_size}:{found.st_mtime_ns}:{found.st_ctime_ns}"


def entries(folder: int, prefix: str) -> tuple[list[DirectoryEntry], bool]:
    """Return the sorted entries of an open directory, and whether some were left out.

    Args:
        prefix: The path of the directory below the root; it begins the path of each entry.
    """
    found: list[DirectoryEntry] = []
    with os.scandir(folder) as names:
        for item in names:
            if len(found) == MAX_FOLDER:
                return sorted(found, key=_path), True
            try:
                status = item.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            kind = kind_of(status)
            path = f"{prefix}/{item.name}" if prefix else item.name
            if kind == "file":
                found.append(DirectoryEntry(path=_printable(path), kind=kind, size=status.st_size, stamp=stamp_of(status)))
            else:
                found.append(DirectoryEntry(path=_printable(path), kind=kind))
    return sorted(found, key=_path), False


def walk(
    open_folder: OpenFolder,
    start: str,
    *,
    depth: int,
    passes_over: Callable[[DirectoryEntry], bool],
    descends: Callable[[DirectoryEntry], bool] = lambda entry: True,
    most: int,
) -> Iterator[DirectoryEntry | None]:
    """Yield every entry below the folder `start`, each folder before its contents.

    If there are more than `most` entries, or more names in a folder than are read, yield None last.
    """
    pending = [(start, 0)]
    visited = 0
    while pending:
        folder, level = pending.pop()
        try:
            fd = open_folder(folder or ".")
        except OSError:
            if folder == start:
                raise
            continue  # removed or made unreadable since it was listed
        try:
            found, cut = entries(fd, folder)
        finally:
            os.close(fd)
        below: list[tuple[str, int]] = []
        for entry in found:
            if passes_over(entry):
                continue
            visited += 1
            if visited > most:
                yield None
                return
            yield entry
            if entry.kind == "directory" and level + 1 < depth and descends(entry):
                below.append((entry.path, level + 1))
        pending.extend(reversed(below))
        if cut:
            yield None
            return


class Glob:
    """A glob over paths below the root: `*`, `?` and `[...]` match within one name, `**` spans folders. Matching time is bounded."""

    def __init__(self, pattern: str) -> None:
        names = [name for name in pattern.split("/") if name not in ("", ".")]
        names = [name for name, next_name in zip_longest(names, names[1:]) if name != "**" or next_name != "**"]
        self._parts = [None if name == "**" else re.compile(glob_regex(name)) for name in names]
        fixed = 0
        while fixed < len(names) - 1 and not re.search(r"[*?\[]", names[fixed]):
            fixed += 1
        self.start = "/".join(names[:fixed])
        """The folder that contains everything the pattern can match."""

    def matches(self, path: str) -> bool:
        states = self._open({0})
        for name in path.split("/"):
            states = self._open({after for state in states for after in self._after(state, name)})
            if not states:
                return False
        return len(self._parts) in states

    def _after(self, state: int, name: str) -> tuple[int, ...]:
        if state == len(self._parts):
            return ()
        part = self._parts[state]
        if part is None:
            return (state,)
        return (state + 1,) if part.match(name) else ()

    def _open(self, states: set[int]) -> set[int]:
        """Add the states that are reachable because `**` may match nothing."""
        todo = list(states)
        while todo:
            state = todo.pop()
            if state < len(self._parts) and self._parts[state] is None and state + 1 not in states:
                states.add(state + 1)
                todo.append(state + 1)
        return states


def _path(entry: DirectoryEntry) -> str:
    return entry.path


def _printable(name: str) -> str:
    if name.isprintable():
        return name
    return "".join(char.encode("unicode_escape").decode() if unicodedata.category(char) in UNUSABLE else char for char in name)
