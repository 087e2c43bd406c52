"""Records of calls that have begun and not finished.

A record is written to disk before a call may write, and deleted when the call's commit exists.

The process of a call locks the record as long as it lives. If another process can lock it, the call's process has died.
A record that is empty or incomplete belongs to a call that never began.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress

import msgspec
from msgspec import Struct

from callgate._undo.git_objects import Objects
from callgate._undo.path_state import State
from callgate._undo.stored_change import Change

__all__ = ["PendingChange", "PendingChanges", "PendingLock"]

_STALE_S = 60.0
"""The age in seconds after which an empty record is deleted.

Its process was killed before it could write the content.
"""


class PendingChange(Struct, frozen=True, kw_only=True):
    """The content of a record."""

    change: Change
    roots: tuple[str, ...]
    """The paths that the call may write. An empty path stands for the whole workspace."""
    before: dict[str, State]
    unseen: frozenset[str] = frozenset()
    """The paths that the snapshot left out. They may have existed before the call."""
    blobs: tuple[bytes, ...] = ()
    """Contents that are not on disk yet and could be lost in a power cut. They are stored again at recovery."""
    own: tuple[str, ...] = ()
    """The host's own files, which were left out. Another process that recovers the record needs them."""
    targets: dict[str, State] = {}
    """The wanted states of an undo or redo, by path; empty for a call."""
    head: str | None = None
    """The newest commit when the call began; None if not known."""


class _Roots(Struct, frozen=True):
    """The part of a record that other calls read."""

    roots: tuple[str, ...]


class PendingLock(Struct, kw_only=True, eq=False):
    """The lock of this process on a record."""

    path: str
    lock: int
    ended: bool = False

    def drop(self) -> None:
        """Delete the record and release the lock, because the call has a commit or has changed nothing. Idempotent."""
        if not self.ended:
            with suppress(FileNotFoundError):
                os.unlink(self.path)
            self.leave()

    def leave(self) -> None:
        """Release the lock, but keep the record for recovery, because the call could not be committed. Idempotent."""
        if not self.ended:
            self.ended = True
            os.close(self.lock)


_encode = msgspec.json.encode
_decode = msgspec.json.Decoder(PendingChange).decode
_decode_roots = msgspec.json.Decoder(_Roots).decode


class PendingChanges:
    """The records of one repository."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._folder = os.path.join(objects.folder, "pending")
        os.makedirs(self._folder, mode=0o700, exist_ok=True)

    def write(self, pending: PendingChange) -> PendingLock:
        """Write a record and return it locked. The record is on disk when this returns."""
        path = os.path.join(self._folder, f"{pending.change.id}.json")
        note = PendingLock(path=path, lock=os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        try:
            fcntl.flock(note.lock, fcntl.LOCK_EX)
            self._objects.fill(note.lock, _encode(pending))
        except BaseException:
            note.drop()
            raise
        return note

    def any(self) -> bool:
        """Return whether a call of any process has begun and not finished."""
        return any(name.endswith(".json") for name in os.listdir(self._folder))

    def others(self, ours: Collection[str]) -> list[tuple[str, ...]]:
        """Return, for each open call that is not in `ours`, the paths that the call may write.

        Args:
            ours: Ids of changes to leave out.
        """
        found = []
        for name in os.listdir(self._folder):
            if name.endswith(".json") and name.removesuffix(".json") not in ours:
                with suppress(FileNotFoundError, msgspec.DecodeError), open(os.path.join(self._folder, name), "rb") as file:
                    found.append(_decode_roots(file.read()).roots)
        return found

    def left(self) -> Iterator[PendingChange]:
        """Yield the records of dead processes. A record is deleted when the caller continues the loop after it."""
        for name in sorted(os.listdir(self._folder)):
            if name.endswith(".json"):
                with _lock_record(os.path.join(self._folder, name)) as pending:
                    if pending is not None:
                        yield pending


@contextmanager
def _lock_record(path: str) -> Iterator[PendingChange | None]:
    """Lock a record and yield its content. Yield None if its process lives or the content is not complete.

    If the process is dead and the block ends without an error, the record is deleted; an empty record only if it is
    stale.
    """
    try:
        lock = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        yield None
        return
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with open(path, "rb") as file:
                said = file.read()
        except (BlockingIOError, FileNotFoundError):
            yield None
            return
        pending = _read(said)
        yield pending
        if pending is not None or said or time.time() - os.fstat(lock).st_mtime > _STALE_S:
            with suppress(FileNotFoundError):
                os.unlink(path)
    finally:
        os.close(lock)


def _read(said: bytes) -> PendingChange | None:
    try:
        return _decode(said)
    except msgspec.DecodeError:
        return None
