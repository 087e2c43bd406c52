"""Keep what a call is about to change, before it may, and what it left, after it has.

What a call declares is looked at by name; for one that declares nothing the whole workspace is. Before the call starts, the old content
and a note of the call are on disk (`pending/`), so that neither a kill nor a power cut in the middle takes them; after it, one commit
holds both sides and the note is dropped. A note whose process is gone becomes a commit that says nobody saw the end.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from callgate._undo.changes import Call, Change, Gap, Step, write_change
from callgate._undo.objects import Objects
from callgate._undo.snapshot import Seen, Taker
from callgate._undo.state import ABSENT, State, same, sees
from callgate._workspace import PathRefused, Workspace

__all__ = ["Keeping", "Open", "UndoLimits"]

_INLINE_BYTES = 1_048_576
_GITIGNORE_BYTES = 1_048_576
_NAMED = 10


class UndoLimits(Struct, frozen=True, kw_only=True):
    """How much is kept."""

    declared_file_bytes: int = 67_108_864
    """The largest file kept for a call that names it."""
    tree_file_bytes: int = 16_777_216
    """The largest file kept for a call that may write anything."""
    tree_entries: int = 100_000
    """Files, links and folders that are looked at for such a call."""


class Pending(Struct, frozen=True, kw_only=True):
    """What is on disk before a call starts."""

    change: Change
    roots: tuple[str, ...]
    """What the call may write; an empty one is everything."""
    before: dict[str, State]
    blobs: tuple[bytes, ...] = ()
    """Content that a power cut could still take from the store."""


class Open(Struct, kw_only=True, eq=False):
    """A call between its two looks."""

    change: Change
    roots: tuple[str, ...]
    before: dict[str, Seen]
    gaps: tuple[Gap, ...]
    lock: int
    """Holds the note; whoever can lock it knows that this process is gone."""
    note: str
    beside: list[Open]
    """Calls that were open at the same time."""
    ended: bool = False


_encode = msgspec.json.encode
_decode = msgspec.json.Decoder(Pending).decode


class Keeping:
    """Keeps the changes of one workspace. Safe to use from several threads."""

    def __init__(self, workspace: str, objects: Objects, limits: UndoLimits, own: Iterable[str] = ()) -> None:
        self.objects = objects
        self.limits = limits
        self.mutex = threading.RLock()
        self._workspace = workspace
        self._own = [objects.folder, os.path.dirname(objects.folder), *(os.path.abspath(path) for path in own)]
        self._open: list[Open] = []
        self.taker = Taker(most=limits.tree_entries, file_bytes=limits.tree_file_bytes, own=self._is_own)
        self._pruned = objects.pruned
        self._own_stats: set[tuple[int, int]] = set()
        self._notes = os.path.join(objects.folder, "pending")
        os.makedirs(self._notes, mode=0o700, exist_ok=True)

    # Around a call

    def begin(self, call: Call, keys: Iterable[str] | None) -> Open:
        """Look at what the call may write, and have it on disk when this returns.

        Args:
            keys: Paths below the root, as text; None: anything.
        """
        with self.mutex, Workspace(self._workspace, sync=False) as workspace:
            self.recover()
            if self._pruned != self.objects.pruned:
                self._pruned = self.objects.pruned
                self.taker.forget()
            roots = ("",) if keys is None else tuple(dict.fromkeys(_real(workspace, keys)))
            seen, gaps = self._look(workspace, roots)
            change = Change(id=secrets.token_hex(8), call=call, at_ns=time.time_ns())
            note, lock = self._write_note(change, roots, {path: one.state for path, one in seen.items()})
            opened = Open(change=change, roots=roots, before=seen, gaps=gaps, lock=lock, note=note, beside=list(self._open))
            for other in self._open:
                other.beside.append(opened)
            self._open.append(opened)
            return opened

    def finish(self, opened: Open) -> Change | None:
        """Commit what has changed since `begin`; None where nothing has."""
        with self.mutex:
            self._open = [one for one in self._open if one is not opened]
            try:
                return self._committed(opened)
            except BaseException:
                self.leave_note(opened)
                raise
            finally:
                self.drop_note(opened)

    def _committed(self, opened: Open) -> Change | None:
        with Workspace(self._workspace, sync=False) as workspace:
            seen, gaps = self._look(workspace, opened.roots)
        steps = [
            Step(path=path, before=_state(opened.before, path), after=_state(seen, path))
            for path in sorted(opened.before.keys() | seen.keys())
            if _moved(opened.before.get(path), seen.get(path))
        ]
        mine, overlaps = _apart(opened, steps)
        if not mine and not overlaps:
            return None
        told = {gap.why: gap for gap in (*opened.gaps, *gaps)}
        return self.commit(replace(opened.change, steps=tuple(mine), gaps=(*told.values(), *overlaps)))

    def commit(self, change: Change) -> Change:
        with self.objects.locked():
            commit = write_change(self.objects, change, parent=self.objects.head())
            self.objects.move_head(commit)
        return replace(change, commit=commit)

    def _look(self, workspace: Workspace, roots: tuple[str, ...]) -> tuple[dict[str, Seen], tuple[Gap, ...]]:
        self._own_stats = set(_identities(self._own))
        seen: dict[str, Seen] = {}
        gaps: list[Gap] = []
        with workspace.folder() as root:
            for path in roots:
                for above in _above(path):
                    seen[above] = self._one(root, above)
                found = self._one(root, path) if path else None
                if found is not None:
                    seen[path] = found
                if found is None or found.state.kind == "directory":
                    taken = self.taker.take(root, self._keep, lambda name: _text(workspace, name), path)
                    seen |= taken.seen
                    gaps += taken.gaps
        return {path: one for path, one in seen.items() if one.state.kind != "absent"}, tuple(gaps)

    def _one(self, root: int, path: str) -> Seen:
        signature, state = sees(root, path, self._keep, self.limits.declared_file_bytes)
        return Seen(signature=signature, state=state, settled=False)

    def _keep(self, data: bytes) -> str:
        return self.objects.put("blob", data)

    def _is_own(self, found: os.stat_result) -> bool:
        return (found.st_dev, found.st_ino) in self._own_stats

    # Notes

    def _write_note(self, change: Change, roots: tuple[str, ...], before: dict[str, State]) -> tuple[str, int]:
        """Have everything on disk that takes the files back, whatever happens next."""
        blobs: tuple[bytes, ...] = ()
        if roots == ("",) or sum(state.size for state in before.values()) > _INLINE_BYTES:
            self.objects.flush()
        else:
            blobs = tuple(self.objects.get(state.blob) for state in before.values() if state.blob)
        note = os.path.join(self._notes, f"{change.id}.json")
        draft = f"{note}.tmp"
        lock = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)  # before it has its name: a note that nobody holds is taken for a dead process's
            self.objects.fill(lock, _encode(Pending(change=change, roots=roots, before=before, blobs=blobs)))
            os.rename(draft, note)
        except BaseException:
            os.close(lock)
            with suppress(OSError):
                os.unlink(draft)
            raise
        return note, lock

    def hold(self, change: Change, before: dict[str, State]) -> Open:
        """A note for an undo or redo, which changes exactly these paths."""
        note, lock = self._write_note(change, tuple(before), before)
        return Open(change=change, roots=tuple(before), before={}, gaps=(), lock=lock, note=note, beside=[])

    def drop_note(self, opened: Open) -> None:
        """Forget the note: its call has a commit, or changed nothing. Idempotent."""
        if not opened.ended:
            opened.ended = True
            with suppress(FileNotFoundError):
                os.unlink(opened.note)
            os.close(opened.lock)

    @property
    def busy(self) -> bool:
        """Whether some process has a call between its two looks."""
        self.recover()
        return any(name.endswith(".json") for name in os.listdir(self._notes))

    def leave_note(self, opened: Open) -> None:
        """Leave the note to whoever comes next: its call could not be committed now."""
        if not opened.ended:
            opened.ended = True
            os.close(opened.lock)

    def recover(self) -> list[Change]:
        """Make commits of notes whose process is gone; returns them."""
        found: list[Change] = []
        for name in sorted(os.listdir(self._notes)):
            if not name.endswith(".json"):
                continue
            note = os.path.join(self._notes, name)
            with suppress(FileNotFoundError, BlockingIOError):
                lock = os.open(note, os.O_RDWR | os.O_CLOEXEC)
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    found += self._taken_in(note)
                    os.unlink(note)
                finally:
                    os.close(lock)
        return found

    def _taken_in(self, note: str) -> list[Change]:
        with open(note, "rb") as file:
            pending = _decode(file.read())
        for blob in pending.blobs:
            self.objects.mend(blob)
        with Workspace(self._workspace, sync=False) as workspace:
            seen, gaps = self._look(workspace, pending.roots)
        paths = sorted(pending.before.keys() | seen.keys())
        steps = [Step(path=path, before=pending.before.get(path, ABSENT), after=_state(seen, path)) for path in paths]
        moved = tuple(step for step in steps if not same(step.before, step.after) and not _unmoved(step))
        if not moved:
            return []
        ended = replace(pending.change, steps=moved, gaps=gaps, interrupted=pending.change.kind == "call")
        return [self.commit(ended)]


def _real(workspace: Workspace, keys: Iterable[str]) -> Iterable[str]:
    """The names that these paths have below the root: of a link itself, and of what it leads to. One outside is not this workspace's."""
    for key in keys:
        with suppress(PathRefused):
            if not key.strip("/."):
                yield ""
                continue
            above, _, name = key.rstrip("/").rpartition("/")
            if name not in (".", ".."):
                folder = workspace.normalise(above) if above else ""
                yield f"{folder}/{name}" if folder else name
            yield workspace.normalise(key)


def _identities(paths: Iterable[str]) -> Iterator[tuple[int, int]]:
    for path in paths:
        with suppress(OSError):
            found = os.stat(path)
            yield found.st_dev, found.st_ino


def _above(path: str) -> list[str]:
    names = path.split("/")[:-1]
    return ["/".join(names[: end + 1]) for end in range(len(names))]


def _state(seen: dict[str, Seen], path: str) -> State:
    return seen[path].state if path in seen else ABSENT


def _moved(before: Seen | None, after: Seen | None) -> bool:
    if before is None or after is None:
        return before is not after
    return before.signature != after.signature or not (same(before.state, after.state) or before.state == after.state)


def _unmoved(step: Step) -> bool:
    """A file whose content was not kept, with the same size and time as before."""
    return bool(step.before.why) and step.before == step.after


def _apart(opened: Open, steps: list[Step]) -> tuple[list[Step], list[Gap]]:
    """A call's own steps, and what calls beside it wrote: theirs where they say so, nobody's where neither does."""
    if opened.roots != ("",):
        return steps, []
    claimed = tuple(root for other in opened.beside for root in other.roots if root)
    theirs = [step.path for step in steps if any(_within(step.path, root) for root in claimed)]
    mine = [step for step in steps if step.path not in set(theirs)]
    gaps = [Gap(why="overlap", paths=tuple(theirs[:_NAMED]), count=len(theirs))] if theirs else []
    if mine and any("" in other.roots for other in opened.beside):
        paths = tuple(step.path for step in mine)
        return [], [*gaps, Gap(why="overlap", paths=paths[:_NAMED], count=len(paths), blocks=True)]
    return mine, gaps


def _within(path: str, root: str) -> bool:
    """Whether `path` is `root`, in it, or a folder that was made for it."""
    return path == root or path.startswith(f"{root}/") or root.startswith(f"{path}/")


def _text(workspace: Workspace, path: str) -> str:
    with suppress(PathRefused):
        return workspace.read_bytes(path, limit=_GITIGNORE_BYTES).decode("utf-8", "replace")
    return ""
