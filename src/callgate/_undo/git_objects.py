"""The objects and the only branch of a git repository: store bytes under a name, and return exactly these bytes.

The format is git's own, so `git log`, `git show` and `git fsck` can read the store, and `git gc` may run on it. This
module uses no git program or library, in order to control what is on disk before it continues, to run no hook, filter
or user configuration, and to start no process per call. A few new objects are stored as one file each; many new objects
are stored in one pack. Knows nothing of files, calls or undo.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress

from callgate._undo.git_refs import drop_ref, read_ref
from callgate._undo.pack_reader import PackReader
from callgate._undo.pack_writer import FEW, Kind, ObjectBatch
from callgate._undo.undo_errors import StoreDamaged

__all__ = ["BRANCH", "HEADS", "HELD", "PRUNED", "Node", "Objects", "Tree", "blob_name"]

Node = tuple[int, str]
"""A tree entry: git's mode (0o100644, 0o100755, 0o120000, 0o40000) and the object's name."""
Tree = Mapping[str, Node]

BRANCH = "refs/heads/main"
_NAME_CHARS = 40
PRUNED = "pruned"
HEADS = "callgate.heads"
HELD = "refs/callgate/held"
"""A ref to a tree of blobs that no commit references yet. It prevents git's garbage collector from deleting them."""
_CONFIG = "[core]\n\trepositoryformatversion = 0\n\tbare = true\n"


def blob_name(data: bytes) -> str:
    """Return git's name of a blob with this content."""
    return _name("blob", data)


def _name(kind: Kind, data: bytes) -> str:
    return hashlib.sha1(b"%s %d\0" % (kind.encode(), len(data)) + data, usedforsecurity=False).hexdigest()


class Objects:
    """One repository. Not thread-safe. `locked` excludes other processes.

    Args:
        folder: The repository's folder. If it is missing, it is created with access for this user only.
        sync: Whether `flush` waits for the disk.
    """

    def __init__(self, folder: str, *, sync: bool = True) -> None:
        self.folder = folder
        self.written = 0
        """How many objects have been written since the repository was opened."""
        self._sync = sync
        self._batch: ObjectBatch | None = None
        self._depth = 0
        self._lock = -1
        self.unflushed: set[str] = set()
        """Objects that a power cut could still lose."""
        self._flushed: set[str] = set()
        self.packs = PackReader(os.path.join(folder, "objects", "pack"))
        self.made()

    def made(self) -> bool:
        """Create the repository if it is missing, and return whether it was created.

        Also called later, because somebody may have deleted the repository.
        """
        if os.path.exists(os.path.join(self.folder, "HEAD")):
            return False
        os.makedirs(os.path.dirname(self.folder), mode=0o700, exist_ok=True)
        for name in ("", "objects", "refs", "refs/heads"):
            os.makedirs(os.path.join(self.folder, name), mode=0o700, exist_ok=True)
        for name, text in (("config", _CONFIG), ("HEAD", f"ref: {BRANCH}\n")):
            self.replace(name, text.encode())
        self._flushed.clear()
        self.unflushed.clear()
        self.packs.refresh(surely=True)
        return True

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock of this repository while the block runs, so that no other process moves the branch.

        May be nested.
        """
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
        """A number that changes whenever any process has pruned objects."""
        try:
            found = os.stat(os.path.join(self.folder, PRUNED))
        except FileNotFoundError:
            return 0
        return found.st_mtime_ns ^ found.st_ino

    # Objects

    def put(self, kind: Kind, data: bytes) -> str:
        """Store an object and return its name.

        After `put` returns (in a batch: after the batch ends), the object survives the end of this process. After
        `flush`, it also survives a power cut.
        """
        name = _name(kind, data)
        if name in self.packs:
            return name
        if os.path.exists(self.path(name)):
            if name not in self._flushed:
                self.unflushed.add(name)  # its writer may not have waited for the disk
        elif self._batch is not None:
            self._batch.add(name, kind, data)
        else:
            self.put_alone(name, kind, data)
        return name

    @contextmanager
    def batch(self) -> Iterator[list[str]]:
        """Collect the objects that are put while the block runs.

        At its end, write them as one pack if they are many, else as single files.

        Yields:
            A list of the names of the objects written as single files. It is filled when the block ends.
        """
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
        """Reference these blobs until commits do, because git's garbage collector deletes unreferenced objects."""
        wanted = [name for name in names if name not in self.packs]
        held = self._held_blobs() if wanted else []
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

    def _held_blobs(self) -> list[str]:
        """Return the names of the blobs in the tree of the `HELD` ref."""
        with suppress(StoreDamaged):
            tree = read_ref(self.folder, HELD)
            return list(self.entries(tree)) if tree else []
        return []

    def put_alone(self, name: str, kind: Kind, data: bytes) -> None:
        """Write an object as a single file, even if a pack contains it."""
        path = self.path(name)
        draft = os.path.join(self.folder, "objects", f"tmp_obj_{secrets.token_hex(8)}")
        try:
            _write(draft, zlib.compress(b"%s %d\0" % (kind.encode(), len(data)) + data, 1), sync=False)
            _rename_complete(draft, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(draft)
            raise
        self.unflushed.add(name)
        self.written += 1

    def mend(self, data: bytes) -> None:
        """Store a blob again if it is missing or damaged, because a power cut may have left an empty file."""
        name = blob_name(data)
        try:
            self.get(name)
        except StoreDamaged:
            with suppress(FileNotFoundError):
                os.unlink(self.path(name))
            self.put("blob", data)

    def flush(self) -> None:
        """Wait until every object is on disk and survives a power cut."""
        if self._sync and len(self.unflushed) > FEW:
            os.sync()
        elif self._sync:
            for name in self.unflushed:
                with suppress(FileNotFoundError):  # git has packed the object, and flushes packs itself
                    _flush(self.path(name))
        self._flushed |= self.unflushed
        self.unflushed.clear()

    def get(self, name: str, kind: Kind = "blob") -> bytes:
        """Return an object's bytes, checked against its name.

        Raises:
            StoreDamaged: The object is missing, is of another kind, or does not match its name.
        """
        found, data = self._alone(name) or self.packs.get(name) or ("", b"")
        if found != kind or _name(kind, data) != name:
            raise StoreDamaged(self.folder, name)
        return data

    def _alone(self, name: str) -> tuple[str, bytes] | None:
        """Return the kind and the bytes of an object that is stored as a single file; None if there is no such file."""
        try:
            with open(self.path(name), "rb") as file:
                head, _, data = zlib.decompress(file.read()).partition(b"\0")
        except FileNotFoundError:
            return None
        except (OSError, zlib.error) as error:
            raise StoreDamaged(self.folder, name) from error
        return head.partition(b" ")[0].decode("ascii", "replace"), data

    def tree(self, entries: Tree) -> str:
        """Store a git tree with these entries and return its name."""
        order = sorted(entries, key=lambda name: os.fsencode(name) + (b"/" if entries[name][0] == 0o40000 else b""))
        data = b"".join(b"%o %s\0%s" % (entries[name][0], os.fsencode(name), bytes.fromhex(entries[name][1])) for name in order)
        return self.put("tree", data)

    def entries(self, name: str) -> dict[str, Node]:
        """Return the entries of the tree with this name."""
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
        """Return the newest commit's name; empty if there is no commit.

        If a power cut has left the branch without a name, it is the newest commit that the branch has pointed to.
        """
        found = read_ref(self.folder, BRANCH)
        return found if _is_name(found) else next(filter(_is_name, reversed(self.heads())), "")

    def floor(self) -> str:
        """Return the oldest commit that is kept (git's `shallow`).

        Return an empty string if no commit was ever pruned.
        """
        try:
            with open(os.path.join(self.folder, "shallow"), encoding="ascii") as file:
                return file.read().strip()
        except FileNotFoundError:
            return ""

    def heads(self) -> list[str]:
        """Return every kept commit that the branch has pointed to, oldest first.

        `history` needs them to continue after a damaged commit.
        """
        try:
            with open(os.path.join(self.folder, HEADS), encoding="ascii", errors="replace") as file:
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
        """Write all of `data` to an open file and wait for the disk, if `sync` is on."""
        _fill(fd, data, sync=self._sync)

    def replace(self, name: str, data: bytes, *, sync: bool = False) -> None:
        """Write a file of the repository that is not an object, or replace it atomically."""
        path = os.path.join(self.folder, name)
        draft = os.path.join(self.folder, f"{secrets.token_hex(8)}.tmp")  # not in refs/heads, where git would read it as a branch
        try:
            _write(draft, data, sync=sync and self._sync)
            _rename_complete(draft, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(draft)
            raise

    def path(self, name: str) -> str:
        """Return the path at which an object is stored if it is a single file."""
        return f"{self.folder}/objects/{name[:2]}/{name[2:]}"


def _is_name(text: str) -> bool:
    return len(text) == _NAME_CHARS and not text.strip("0123456789abcdef")


def _rename_complete(draft: str, path: str) -> None:
    """Rename a complete file to its final name, and create the folder if it is missing."""
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
