"""Every file of a tree, kept: for a call that does not say what it writes.

A file is read again only where its facts moved (device, inode, mode, owner, size, mtime, ctime) or were too fresh when it was read for
a later write to show. Left out, and said: what `.gitignore` names, version control and installed packages, callgate's own folders, and
what is above the limits. Never follows a link, never leaves the file system's folder it was given.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable

from msgspec import Struct

from callgate._undo.changes import Gap
from callgate._undo.path_state import Keep, Seen, Signature, look, opened_parent, signature
from callgate._workspace.ignored_files import IgnoredFiles

__all__ = ["Snapshot", "SnapshotTaker"]

_FRESH_NS = 100_000_000
"""A file that changed so shortly before it was read may change again without moving its times: it is read again next time."""
_NAMED = 10
_OWN = ".callgate"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Snapshot(Struct, frozen=True, kw_only=True):
    """What there was."""

    seen: dict[str, Seen]
    gaps: tuple[Gap, ...]
    unseen: frozenset[str]
    """What was left out: no content is known of it, nor of what is below it."""
    outside: dict[str, Signature]
    """The facts of what was left out, without its content."""
    partly: bool
    """Whether there was more of that than is looked at."""


class SnapshotTaker:
    """Takes snapshots of one tree and remembers what it has read.

    Args:
        most: Entries that are looked at.
        file_bytes: The largest file whose content is kept.
        outside: Entries whose facts are looked at of what is left out.
        own: Real paths that are callgate's own and are left out.
    """

    def __init__(self, *, most: int, file_bytes: int, outside: int, own: Callable[[os.stat_result], bool]) -> None:
        self._most = most
        self.outside = outside
        self._file_bytes = file_bytes
        self._own = own
        self.known: dict[str, Seen] = {}
        """What the last look at everything found."""
        self.read = 0
        """Files and links whose content was read."""

    def take(self, root: int, keep: Keep, text: Callable[[str], str], below: str = "") -> Snapshot:
        """Look at everything below the open folder `root`, or below one folder in it.

        Args:
            text: A `.gitignore`'s text by its path; empty where there is none.
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
    """One walk: depth first, each folder opened from the one above."""

    def __init__(self, snapshots: SnapshotTaker, root: int, keep: Keep, ignore: IgnoredFiles) -> None:
        self._taker = snapshots
        self._root = root
        self._keep = keep
        self._ignore = ignore
        self._left: dict[str, list[str]] = {"ignored": [], "limit": [], "name": [], "unreadable": []}
        self._outside: list[str] = []
        """What is left out and can be looked at, by the names that the system has for it."""
        self.seen: dict[str, Seen] = {}

    def folder(self, above: int, path: str) -> None:
        todo = [path]
        while todo:
            path = todo.pop()
            try:
                fd = _opened(self._root, path)
            except OSError:
                if path:
                    self._left["unreadable"].append(path)
                continue
            try:
                todo += self._entries(fd, path)
            except PermissionError:  # its names may be read, and nothing else
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
                if self._passed(inner, entry, found):
                    continue
                self.seen[inner] = self._taker.state(fd, entry.name, inner, found, self._keep)
                if entry.is_dir(follow_symlinks=False):
                    below.append(inner)
        return below

    def _passed(self, path: str, entry: os.DirEntry[str], found: os.stat_result) -> bool:
        if entry.name == _OWN or self._taker.passes_over(found):
            return True
        why = ""
        if self._taker.full(len(self.seen)):
            why = "limit"
        elif not _is_text(entry.name):
            self._outside.append(path)
            why, path = "name", _shown(path)
        elif self._ignore.ignores_entry(path, directory=entry.is_dir(follow_symlinks=False)):
            self._outside.append(path)
            why = "ignored"
        if why:
            self._left[why].append(path)
        return bool(why)

    def outside(self) -> tuple[dict[str, Signature], bool]:
        """The facts of what is left out, by path, and whether there is more than that. Nothing of it is read."""
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
                found[_shown(path)] = signature(at)
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


def _opened(root: int, path: str) -> int:
    """The folder at `path`, each name on the way a real folder."""
    held = os.open(".", _FOLDER, dir_fd=root)
    for name in path.split("/") if path else ():
        try:
            below = os.open(name, _FOLDER, dir_fd=held)
        finally:
            os.close(held)
        held = below
    return held


def _names(above: int, name: str) -> list[str]:
    """What is in a folder, the last first."""
    fd = os.open(name, _FOLDER, dir_fd=above)
    try:
        return sorted(os.listdir(fd), reverse=True)
    finally:
        os.close(fd)


def _shown(path: str) -> str:
    """A path as text, whatever its bytes."""
    return path.encode("utf-8", "backslashreplace").decode()


def _is_text(name: str) -> bool:
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
