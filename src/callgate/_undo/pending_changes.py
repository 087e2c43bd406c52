"""Notes of calls that have begun: on disk before a call may write, deleted when its commit is there.

The process of a call locks its note for as long as it lives; whoever can take the lock knows that nobody saw the call end. A note gets its
name before its content, so that one flush keeps both: a note that is not whole belongs to a call that never began.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress

import msgspec
from msgspec import Struct

from callgate._undo.changes import Change
from callgate._undo.objects import Objects
from callgate._undo.path_state import State

__all__ = ["PendingChange", "PendingChanges", "PendingLock"]

_STALE_S = 60.0
"""A note without content, so old, is of a process that was killed before it could write it."""


class PendingChange(Struct, frozen=True, kw_only=True):
    """The content of a note."""

    change: Change
    roots: tuple[str, ...]
    """What the call may write; an empty one is everything."""
    before: dict[str, State]
    unseen: frozenset[str] = frozenset()
    """What was left out: it may have been there."""
    blobs: tuple[bytes, ...] = ()
    """Content that a power cut could still take from the store."""
    own: tuple[str, ...] = ()
    """What was left out as the host's own; whoever comes after a kill does not know it."""
    targets: dict[str, State] = {}
    """What an undo or redo makes of its paths."""
    head: str | None = None
    """The newest commit when it began; None: not known."""


class _Roots(Struct, frozen=True):
    """The part of a note that other calls read."""

    roots: tuple[str, ...]


class PendingLock(Struct, kw_only=True, eq=False):
    """A note of this process, locked."""

    path: str
    lock: int
    ended: bool = False

    def drop(self) -> None:
        """Forget the note: its call has a commit, or changed nothing. Idempotent."""
        if not self.ended:
            with suppress(FileNotFoundError):
                os.unlink(self.path)
            self.leave()

    def leave(self) -> None:
        """Leave the note to whoever comes next: its call could not be committed now."""
        if not self.ended:
            self.ended = True
            os.close(self.lock)


_encode = msgspec.json.encode
_decode = msgspec.json.Decoder(PendingChange).decode
_decode_roots = msgspec.json.Decoder(_Roots).decode


class PendingChanges:
    """The notes of one repository."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._folder = os.path.join(objects.folder, "pending")
        os.makedirs(self._folder, mode=0o700, exist_ok=True)

    def write(self, pending: PendingChange) -> PendingLock:
        """Write a note, on disk when this returns."""
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
        """Return what open calls of other processes may write; `ours` are the changes of this process."""
        found = []
        for name in os.listdir(self._folder):
            if name.endswith(".json") and name.removesuffix(".json") not in ours:
                with suppress(FileNotFoundError, msgspec.DecodeError), open(os.path.join(self._folder, name), "rb") as file:
                    found.append(_decode_roots(file.read()).roots)
        return found

    def left(self) -> Iterator[PendingChange]:
        """Yield the notes that no process holds; each is deleted once the loop has gone on from it."""
        for name in sorted(os.listdir(self._folder)):
            if name.endswith(".json"):
                with _taken(os.path.join(self._folder, name)) as pending:
                    if pending is not None:
                        yield pending


@contextmanager
def _taken(path: str) -> Iterator[PendingChange | None]:
    """A note, and it is gone when the block has ended without an error; None where its process lives, or it says nothing."""
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
