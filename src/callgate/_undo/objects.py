"""A git repository's objects and one branch, written by hand: bytes in, a name out, and the same bytes back or an error.

The format is git's own, so that `git log`, `git show` and `git fsck` read the store, and `git gc` may tidy it. Written here and not by a
git program or library, because this decides itself what is on disk before it goes on, runs no hook, filter or configuration of anybody,
and costs no process per call. A few objects are files of their own, many at once are a pack. Knows nothing of files, calls or undo.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress

from callgate._undo.pack_reader import PackReader
from callgate._undo.pack_writer import FEW, Kind, ObjectBatch
from callgate._undo.refs import drop_ref, read_ref
from callgate._undo.refusals import StoreDamaged

__all__ = ["BRANCH", "HEADS", "HELD", "PRUNED", "Node", "Objects", "Tree", "blob_name"]

Node = tuple[int, str]
"""A tree entry: git's mode (0o100644, 0o100755, 0o120000, 0o40000) and the object's name."""
Tree = Mapping[str, Node]

BRANCH = "refs/heads/main"
PRUNED = "pruned"
HEADS = "callgate.heads"
HELD = "refs/callgate/held"
"""Names what no commit has yet, so that git's collector does not take it."""
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
        self._batch: ObjectBatch | None = None
        self._depth = 0
        self._lock = -1
        self.unflushed: set[str] = set()
        """Objects that a power cut could take."""
        self._flushed: set[str] = set()
        self.packs = PackReader(os.path.join(folder, "objects", "pack"))
        self.made()

    def made(self) -> bool:
        """Make the repository where it is missing, at first or because somebody has deleted it; whether it was made."""
        if os.path.exists(os.path.join(self.folder, "HEAD")):
            return False
        for name in ("", "objects", "refs/heads"):
            os.makedirs(os.path.join(self.folder, name), mode=0o700, exist_ok=True)
        for name, text in (("config", _CONFIG), ("HEAD", f"ref: {BRANCH}\n")):
            self.replace(name, text.encode())
        self._flushed.clear()
        self.unflushed.clear()
        self.packs.refresh(surely=True)
        return True

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
            found = os.stat(os.path.join(self.folder, PRUNED))
        except FileNotFoundError:
            return 0
        return found.st_mtime_ns ^ found.st_ino

    # Objects

    def put(self, kind: Kind, data: bytes) -> str:
        """Keep an object. It survives this process at once (in a batch: when that ends), and a power cut after `flush`."""
        name = _name(kind, data)
        if name in self.packs:
            return name
        if os.path.exists(self.path(name)):
            if name not in self._flushed:
                self.unflushed.add(name)  # whoever wrote it may not have waited for the disk
        elif self._batch is not None:
            self._batch.add(name, kind, data)
        else:
            self.put_alone(name, kind, data)
        return name

    @contextmanager
    def batch(self) -> Iterator[list[str]]:
        """Take in what is put until the block ends, as a pack where it is much. Yields what becomes a file of its own, known at the end."""
        self.packs.refresh()
        self._batch = batch = ObjectBatch(os.path.join(self.folder, "objects", "pack"))
        fresh: list[str] = []
        try:
            yield fresh
            self._batch = None
            if batch.pack is not None:
                self._take_in(batch)
            for name, (kind, data) in batch.few.items():
                self.put_alone(name, kind, data)
                fresh.append(name)
        finally:
            self._batch = None
            batch.abandon()

    def hold(self, names: Iterable[str]) -> None:
        """Give these blobs a name until commits have them: git's collector takes what has none."""
        wanted = [name for name in names if name not in self.packs]
        held = self._held() if wanted else []
        fresh = list(dict.fromkeys(name for name in wanted if name not in held))
        if len(held) + len(fresh) > FEW:
            batch = ObjectBatch(os.path.join(self.folder, "objects", "pack"))
            for name in (*held, *fresh):
                with suppress(StoreDamaged):
                    batch.add(name, "blob", self.get(name))
            self._take_in(batch)
            drop_ref(self.folder, HELD)
        elif fresh:
            tree = self.tree({name: (0o100644, name) for name in (*held, *fresh)})
            self.replace(HELD, f"{tree}\n".encode())

    def _take_in(self, batch: ObjectBatch) -> None:
        self.written += batch.close(sync=self._sync)
        self.packs.refresh(surely=True)

    def _held(self) -> list[str]:
        """What is held apart from packs."""
        with suppress(StoreDamaged):
            tree = read_ref(self.folder, HELD)
            return list(self.entries(tree)) if tree else []
        return []

    def put_alone(self, name: str, kind: Kind, data: bytes) -> None:
        """Make an object a file of its own, whatever packs have."""
        path = self.path(name)
        draft = os.path.join(self.folder, "objects", f"tmp_obj_{secrets.token_hex(8)}")
        try:
            _write(draft, zlib.compress(b"%s %d\0" % (kind.encode(), len(data)) + data, 1), sync=False)
            _named(draft, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(draft)
            raise
        self.unflushed.add(name)
        self.written += 1

    def mend(self, data: bytes) -> None:
        """Make sure that the blob of these bytes is whole; a power cut may have left an empty one."""
        name = blob_name(data)
        try:
            self.get(name)
        except StoreDamaged:
            with suppress(FileNotFoundError):
                os.unlink(self.path(name))
            self.put("blob", data)

    def flush(self) -> None:
        """Return when every object survives a power cut."""
        if self._sync and len(self.unflushed) > FEW:
            os.sync()
        elif self._sync:
            for name in self.unflushed:
                with suppress(FileNotFoundError):  # git has packed it, and waits for the disk itself
                    _flush(self.path(name))
        self._flushed |= self.unflushed
        self.unflushed.clear()

    def get(self, name: str, kind: Kind = "blob") -> bytes:
        """An object's bytes, checked against its name.

        Raises:
            StoreDamaged: It is missing, or is not what was put.
        """
        found, data = self._alone(name) or self.packs.get(name) or ("", b"")
        if found != kind or _name(kind, data) != name:
            raise StoreDamaged(self.folder, name)
        return data

    def _alone(self, name: str) -> tuple[str, bytes] | None:
        """An object that is a file of its own."""
        try:
            with open(self.path(name), "rb") as file:
                head, _, data = zlib.decompress(file.read()).partition(b"\0")
        except FileNotFoundError:
            return None
        except (OSError, zlib.error) as error:
            raise StoreDamaged(self.folder, name) from error
        return head.partition(b" ")[0].decode("ascii", "replace"), data

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
        return read_ref(self.folder, BRANCH)

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
            with open(os.path.join(self.folder, HEADS), encoding="ascii") as file:
                return file.read().split()
        except FileNotFoundError:
            return []

    def move_head(self, commit: str) -> None:
        fd = os.open(os.path.join(self.folder, HEADS), os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, f"{commit}\n".encode())
        finally:
            os.close(fd)
        self.replace(BRANCH, f"{commit}\n".encode())

    def fill(self, fd: int, data: bytes) -> None:
        """Write all of `data` to an open file, to the disk."""
        _fill(fd, data, sync=self._sync)

    def replace(self, name: str, data: bytes, *, sync: bool = False) -> None:
        """Make `data` the whole of a file of the repository that is no object."""
        path = os.path.join(self.folder, name)
        draft = os.path.join(self.folder, f"{secrets.token_hex(8)}.tmp")  # not among the branches, where git would take it for one
        try:
            _write(draft, data, sync=sync and self._sync)
            _named(draft, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(draft)
            raise

    def path(self, name: str) -> str:
        """Where an object is, or would be, as a file of its own."""
        return f"{self.folder}/objects/{name[:2]}/{name[2:]}"


def _named(draft: str, path: str) -> None:
    """Give a whole file its name, and its folder where that is missing."""
    try:
        os.rename(draft, path)
    except FileNotFoundError:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        os.rename(draft, path)


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
