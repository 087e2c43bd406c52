"""Observe and store every file of a tree, for a call that does not declare what it writes.

A file is read again only if its signature (device, inode, mode, owner, link count, size, mtime, ctime) has changed, or
if it was read so soon after its last modification that a later write may not change its times. Paths that `.gitignore`
names, version control, installed packages, and paths above the limits are left out and reported. callgate's own folders
are left out without a report. Links are never followed, and nothing outside the given folder is opened.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable

from msgspec import Struct

from callgate._undo.path_state import Keep, Seen, Signature, look, opened_parent, signature
from callgate._undo.stored_change import Gap
from callgate._workspace.ignored_files import IgnoredFiles

__all__ = ["Snapshot", "SnapshotTaker"]

_FRESH_NS = 100_000_000
"""A file that is read within this time after its modification is read again, as a later write may keep its times."""
_NAMED = 10
_OWN = ".callgate"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Snapshot(Struct, frozen=True, kw_only=True):
    """The state of a tree at one moment."""

    seen: dict[str, Seen]
    gaps: tuple[Gap, ...]
    unseen: frozenset[str]
    """The paths that were left out. Nothing at or below them was observed."""
    outside: dict[str, Signature]
    """The signatures of paths that were left out."""
    partly: bool
    """Whether some left-out paths are missing from `outside`, because there are too many."""


class SnapshotTaker:
    """Takes snapshots of one tree, and remembers the last snapshot of the whole tree.

    Args:
        most: The maximum number of entries to observe.
        file_bytes: The largest file whose content is stored.
        outside: The maximum number of left-out paths whose signatures are recorded.
        own: Returns whether a file or folder belongs to callgate or the host. If so, it is left out without a report.
    """

    def __init__(self, *, most: int, file_bytes: int, outside: int, own: Callable[[os.stat_result], bool]) -> None:
        self._most = most
        self.outside = outside
        self._file_bytes = file_bytes
        self._own = own
        self.known: dict[str, Seen] = {}
        """The observations of the last snapshot of the whole tree, by path."""
        self.read = 0
        """How many files and links have been read."""

    def take(self, root: int, keep: Keep, text: Callable[[str], str], below: str = "") -> Snapshot:
        """Observe everything below the open folder `root`, or below one folder in it.

        Args:
            text: Returns the text of the `.gitignore` file at a path; empty if there is none.
            below: The path of the folder to observe; empty: all of `root`.
        """
        walk = _TreeWalk(self, root, keep, IgnoredFiles(text, exclude=False))
        walk.folder(root, below)
        if not below:
            self.known = walk.seen
        outside, partly = walk.outside()
        return Snapshot(seen=walk.seen, gaps=walk.gaps(), unseen=walk.unseen(), outside=outside, partly=partly)

    def state(self, folder: int, name: str, path: str, found: os.stat_result, keep: Keep) -> Seen:
        known = self.known.get(path)
        now = signature(found)
        if known is not None and known.settled and known.signature == now:
            return known
        at_ns = time.time_ns()
        seen, state = look(folder, name, keep, self._file_bytes)
        if state.kind == "directory":
            return Seen(signature=seen, state=state, settled=False)
        self.read += 1
        settled = state.why != "changing" and at_ns - max(found.st_mtime_ns, found.st_ctime_ns) > _FRESH_NS
        return Seen(signature=seen, state=state, settled=settled)

    def passes_over(self, found: os.stat_result) -> bool:
        return self._own(found)

    def full(self, count: int) -> bool:
        return count >= self._most


class _TreeWalk:
    """One walk over a tree, depth first. Each folder is opened one name at a time from the root."""

    def __init__(self, snapshots: SnapshotTaker, root: int, keep: Keep, ignore: IgnoredFiles) -> None:
        self._taker = snapshots
        self._root = root
        self._keep = keep
        self._ignore = ignore
        self._left: dict[str, list[str]] = {"ignored": [], "limit": [], "name": [], "unreadable": []}
        self._outside: list[str] = []
        """Paths that are left out and can still be observed, with the system's own spelling of the name."""
        self.seen: dict[str, Seen] = {}

    def folder(self, above: int, path: str) -> None:
        todo = [path]
        while todo:
            path = todo.pop()
            try:
                fd = _open_folder(self._root, path)
            except OSError:
                if path:
                    self._left["unreadable"].append(path)
                continue
            try:
                todo += self._entries(fd, path)
            except PermissionError:  # a folder with read but without execute permission
                self._left["unreadable"].append(path)
            finally:
                os.close(fd)

    def _entries(self, fd: int, path: str) -> list[str]:
        below: list[str] = []
        with os.scandir(fd) as names:
            for entry in names:
                inner = f"{path}/{entry.name}" if path else entry.name
                try:
                    found = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                if self._leave_out(inner, entry, found):
                    continue
                self.seen[inner] = self._taker.state(fd, entry.name, inner, found, self._keep)
                if entry.is_dir(follow_symlinks=False):
                    below.append(inner)
        return below

    def _leave_out(self, path: str, entry: os.DirEntry[str], found: os.stat_result) -> bool:
        if entry.name == _OWN or self._taker.passes_over(found):
            return True
        why = ""
        if self._taker.full(len(self.seen)):
            why = "limit"
        elif not _is_text(entry.name):
            self._outside.append(path)
            why, path = "name", _printable_path(path)
        elif self._ignore.ignores_entry(path, directory=entry.is_dir(follow_symlinks=False)):
            self._outside.append(path)
            why = "ignored"
        if why:
            self._left[why].append(path)
        return bool(why)

    def outside(self) -> tuple[dict[str, Signature], bool]:
        """Return the signatures of the left-out paths, and whether the limit was reached.

        Does not read their content.
        """
        found: dict[str, Signature] = {}
        todo = sorted(self._outside, reverse=True)
        while todo:
            path = todo.pop()
            if len(found) >= self._taker.outside:
                return found, True
            try:
                with opened_parent(self._root, path) as (folder, name):
                    at = os.stat(name, dir_fd=folder, follow_symlinks=False)
                    below = _names(folder, name) if stat.S_ISDIR(at.st_mode) else []
            except OSError:
                continue
            if not self._taker.passes_over(at):
                found[_printable_path(path)] = signature(at)
                todo += [f"{path}/{name}" for name in below if name != _OWN]
        return found, False

    def unseen(self) -> frozenset[str]:
        return frozenset(path for paths in self._left.values() for path in paths)

    def gaps(self) -> tuple[Gap, ...]:
        return tuple(
            Gap(why=why, paths=tuple(sorted(paths)[:_NAMED]), count=len(paths), blocks=why == "limit")  # type: ignore[arg-type]
            for why, paths in self._left.items()
            if paths
        )


def _open_folder(root: int, path: str) -> int:
    """Open the folder at `path`. Every name on the way must be a real folder."""
    held = os.open(".", _FOLDER, dir_fd=root)
    for name in path.split("/") if path else ():
        try:
            below = os.open(name, _FOLDER, dir_fd=held)
        finally:
            os.close(held)
        held = below
    return held


def _names(above: int, name: str) -> list[str]:
    """Return the names in a folder in reverse order."""
    fd = os.open(name, _FOLDER, dir_fd=above)
    try:
        return sorted(os.listdir(fd), reverse=True)
    finally:
        os.close(fd)


def _printable_path(path: str) -> str:
    """Return a path as valid text. Bytes that are not UTF-8 are escaped."""
    return path.encode("utf-8", "backslashreplace").decode()


def _is_text(name: str) -> bool:
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
