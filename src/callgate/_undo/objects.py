"""A git repository's objects and one branch, written by hand: bytes in, a name out, and the same bytes back or an error.

The format is git's own, so that `git log`, `git show` and `git fsck` read the store. Written here and not by a git program or library,
because this decides itself what is on disk before it goes on, runs no hook, filter or configuration of anybody, and costs no process
per call. Knows nothing of files, calls or undo.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Literal

from callgate._undo.refusals import StoreDamaged

__all__ = ["Node", "Objects", "Tree", "blob_name"]

Kind = Literal["blob", "tree", "commit"]
Node = tuple[int, str]
"""A tree entry: git's mode (0o100644, 0o100755, 0o120000, 0o40000) and the object's name."""
Tree = Mapping[str, Node]

_BRANCH = "refs/heads/main"
_PRUNED = "pruned"
_HEADS = "callgate.heads"
_FEW = 8
"""Objects that are flushed one by one; more of them with everything else there is to flush."""
_CONFIG = "[core]\n\trepositoryformatversion = 0\n\tbare = true\n"


def blob_name(data: bytes) -> str:
    """The name that git gives these bytes."""
    return _name("blob", data)


def _name(kind: Kind, data: bytes) -> str:
    return hashlib.sha1(b"%s %d\0" % (kind.encode(), len(data)) + data, usedforsecurity=False).hexdigest()


class Objects:
    """One repository. Not thread-safe; `locked` keeps other processes out.

    Args:
        folder: Made where it is missing, for this user alone.
        sync: Whether `flush` waits for the disk.
    """

    def __init__(self, folder: str, *, sync: bool = True) -> None:
        self.folder = folder
        self.written = 0
        """Objects written since it was opened."""
        self._sync = sync
        self._flushed = False
        self._depth = 0
        self._lock = -1
        self.unflushed: set[str] = set()
        """Objects that a power cut could take."""
        os.makedirs(folder, mode=0o700, exist_ok=True)
        for name in ("objects", "refs/heads"):
            os.makedirs(os.path.join(folder, name), mode=0o700, exist_ok=True)
        for name, text in (("config", _CONFIG), ("HEAD", f"ref: {_BRANCH}\n")):
            if not os.path.exists(os.path.join(folder, name)):
                self.replace(name, text.encode())

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Alone among processes, for as long as the branch is read and moved. May be nested."""
        if self._depth == 0:
            self._lock = os.open(os.path.join(self.folder, "callgate.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX)
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            if self._depth == 0:
                os.close(self._lock)

    @property
    def pruned(self) -> int:
        """Moves whenever objects were dropped, by whatever process."""
        try:
            found = os.stat(os.path.join(self.folder, _PRUNED))
        except FileNotFoundError:
            return 0
        return found.st_mtime_ns ^ found.st_ino

    # Objects

    def put(self, kind: Kind, data: bytes) -> str:
        """Keep an object. It survives this process at once, and a power cut after `flush`."""
        name = _name(kind, data)
        path = self._path(name)
        if os.path.exists(path):
            return name
        draft = os.path.join(self.folder, "objects", f"tmp_obj_{secrets.token_hex(8)}")
        try:
            _write(draft, zlib.compress(b"%s %d\0" % (kind.encode(), len(data)) + data, 1), sync=False)
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            os.rename(draft, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(draft)
            raise
        self.unflushed.add(name)
        self.written += 1
        return name

    def mend(self, data: bytes) -> None:
        """Make sure that the blob of these bytes is whole; a power cut may have left an empty one."""
        name = blob_name(data)
        try:
            self.get(name)
        except StoreDamaged:
            with suppress(FileNotFoundError):
                os.unlink(self._path(name))
            self.put("blob", data)

    def flush(self) -> None:
        """Return when every object survives a power cut."""
        if self._sync and (self.unflushed or not self._flushed):
            if len(self.unflushed) > _FEW or not self._flushed:  # an earlier process may have left some
                os.sync()
            else:
                for name in self.unflushed:
                    _flush(self._path(name))
        self._flushed = True
        self.unflushed.clear()

    def get(self, name: str, kind: Kind = "blob") -> bytes:
        """An object's bytes, checked against its name.

        Raises:
            StoreDamaged: It is missing, or is not what was put.
        """
        try:
            with open(self._path(name), "rb") as file:
                head, _, data = zlib.decompress(file.read()).partition(b"\0")
        except (OSError, zlib.error) as error:
            raise StoreDamaged(self.folder, name) from error
        if head.partition(b" ")[0] != kind.encode() or _name(kind, data) != name:
            raise StoreDamaged(self.folder, name)
        return data

    def tree(self, entries: Tree) -> str:
        """Take in a folder's listing."""
        order = sorted(entries, key=lambda name: os.fsencode(name) + (b"/" if entries[name][0] == 0o40000 else b""))
        data = b"".join(b"%o %s\0%s" % (entries[name][0], os.fsencode(name), bytes.fromhex(entries[name][1])) for name in order)
        return self.put("tree", data)

    def entries(self, name: str) -> dict[str, Node]:
        """A listing as it was put."""
        found: dict[str, Node] = {}
        data = self.get(name, "tree")
        while data:
            head, _, rest = data.partition(b"\0")
            mode, _, entry = head.partition(b" ")
            found[os.fsdecode(entry)] = int(mode, 8), rest[:20].hex()
            data = rest[20:]
        return found

    # The branch

    def head(self) -> str:
        """The newest commit's name; empty where there is none."""
        try:
            with open(os.path.join(self.folder, _BRANCH), encoding="ascii") as file:
                return file.read().strip()
        except FileNotFoundError:
            return ""

    def floor(self) -> str:
        """The oldest commit that is kept, where older ones were dropped; git calls it shallow."""
        try:
            with open(os.path.join(self.folder, "shallow"), encoding="ascii") as file:
                return file.read().strip()
        except FileNotFoundError:
            return ""

    def heads(self) -> list[str]:
        """Every commit that was ever the newest and is kept, the oldest first: the way past one that was lost."""
        try:
            with open(os.path.join(self.folder, _HEADS), encoding="ascii") as file:
                return file.read().split()
        except FileNotFoundError:
            return []

    def move_head(self, commit: str) -> None:
        fd = os.open(os.path.join(self.folder, _HEADS), os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, f"{commit}\n".encode())
        finally:
            os.close(fd)
        self.replace(_BRANCH, f"{commit}\n".encode())

    def fill(self, fd: int, data: bytes) -> None:
        """Write all of `data` to an open file, to the disk."""
        _fill(fd, data, sync=self._sync)

    def keep_only(self, commits: list[str]) -> None:
        """Drop every object that none of these commits, the newest first, reaches by its tree."""
        self.replace(_PRUNED, b"")
        self.replace(_HEADS, "".join(f"{commit}\n" for commit in reversed(commits)).encode(), sync=True)
        reached = set(commits)
        for commit in commits:
            self._reach(self.get(commit, "commit").split(b"\n", 1)[0][5:].decode(), reached)
        self.replace("shallow", f"{commits[-1]}\n".encode() if commits else b"", sync=True)
        if not commits:
            os.unlink(os.path.join(self.folder, "shallow"))
            os.unlink(os.path.join(self.folder, _BRANCH))
        for folder, _, names in os.walk(os.path.join(self.folder, "objects")):
            for name in names:
                if os.path.basename(folder) + name not in reached:
                    os.unlink(os.path.join(folder, name))

    def _reach(self, tree: str, reached: set[str]) -> None:
        if tree not in reached:
            reached.add(tree)
            for mode, name in self.entries(tree).values():
                if mode == 0o40000:
                    self._reach(name, reached)
                reached.add(name)

    def replace(self, name: str, data: bytes, *, sync: bool = False) -> None:
        """Make `data` the whole of a file of the repository that is no object."""
        path = os.path.join(self.folder, name)
        draft = f"{path}.{secrets.token_hex(4)}.tmp"
        try:
            _write(draft, data, sync=sync and self._sync)
            os.rename(draft, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(draft)
            raise

    def _path(self, name: str) -> str:
        return f"{self.folder}/objects/{name[:2]}/{name[2:]}"


def _write(path: str, data: bytes, *, sync: bool) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        _fill(fd, data, sync=sync)
    finally:
        os.close(fd)


def _fill(fd: int, data: bytes, *, sync: bool) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]
    if sync:
        os.fsync(fd)


def _flush(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
