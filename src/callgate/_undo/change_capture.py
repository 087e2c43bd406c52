"""Store the content that a call may change before the call starts, and the resulting content after the call has ended.

The paths that a call declares are observed by name. For a call that declares nothing, the whole workspace is observed.
Before the call starts, the old content and a record of the pending call (a file in `pending/`) are written to disk, so
that neither a kill nor a power cut loses them. After the call, both states are stored in one commit and the record is
deleted. If a process dies, the next one converts its records to commits that are marked as interrupted.
"""

from __future__ import annotations

import itertools
import os
import secrets
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

from msgspec import Struct
from msgspec.structs import replace

from callgate._option_checks import Options, Whole
from callgate._undo.apply_undo import drop_drafts
from callgate._undo.change_attribution import EVERYTHING, attribute
from callgate._undo.git_objects import Objects
from callgate._undo.interrupted_undo import interrupted_steps
from callgate._undo.path_state import ABSENT, Seen, Signature, State, sees
from callgate._undo.pending_changes import PendingChange, PendingChanges, PendingLock
from callgate._undo.snapshot import SnapshotTaker
from callgate._undo.snapshot_cache import load_seen, save_seen
from callgate._undo.stored_change import Change, ChangeSource, Gap, Step, history, write_change
from callgate._undo.workspace_comparison import Observation, folders_above, has_moved, merge_gaps, moved_outside, state_at, without_hidden
from callgate._workspace import PathRefused, Workspace

__all__ = ["CallCapture", "ChangeCapture", "UndoLimits"]

_INLINE_BYTES = 1_048_576
_GITIGNORE_BYTES = 1_048_576
_WORTH = 64
"""The snapshot cache is saved again after more than this many files were read."""


class UndoLimits(Options, frozen=True, kw_only=True):
    """Limits on what undo observes and stores."""

    declared_file_bytes: Whole = 67_108_864
    """The largest file that is stored for a call that declares the file's path."""
    tree_file_bytes: Whole = 16_777_216
    """The largest file that is stored for a call that may write anything."""
    tree_entries: Whole = 100_000
    """How many files, links and folders are observed for a call that may write anything."""
    left_out_entries: Whole = 20_000
    """How many of the paths left out of a snapshot are compared, without storing them.

    An undo reports which have changed.
    """


class CallCapture(Struct, kw_only=True, eq=False):
    """A call that has begun and not finished."""

    change: Change
    roots: tuple[str, ...]
    before: Observation
    note: PendingLock
    head: str
    """The newest commit when the call began."""
    overlapping: list[CallCapture]
    """The calls that were open at the same time."""


class ChangeCapture:
    """Capture the changes of calls in one workspace. Safe to use from several threads."""

    def __init__(self, workspace: str, objects: Objects, limits: UndoLimits, own: Iterable[str] = ()) -> None:
        self.objects = objects
        self.limits = limits
        self.mutex = threading.RLock()
        self._workspace = workspace
        self._store = (objects.folder, os.path.dirname(objects.folder))
        self._own = tuple(os.path.abspath(path) for path in own)
        self._open: list[CallCapture] = []
        self.snapshots = SnapshotTaker(
            most=limits.tree_entries, file_bytes=limits.tree_file_bytes, outside=limits.left_out_entries, own=self._is_own
        )
        self._pruned = -1
        self._remembered = 0
        self._own_stats: set[tuple[int, int]] = set()
        self._pending = PendingChanges(objects)

    def leave_out(self, paths: Iterable[str]) -> None:
        """Leave these files of the host out of all further observations."""
        with self.mutex:
            self._own = tuple(dict.fromkeys((*self._own, *(os.path.abspath(path) for path in paths))))

    # Around a call

    def begin(self, call: ChangeSource, keys: Iterable[str] | None) -> CallCapture:
        """Store everything that the call may write. The content is on disk when this returns.

        Args:
            keys: The paths that the call may write, as text, below the workspace's root; None: the call may write anything.
        """
        with self.mutex, Workspace(self._workspace, sync=False) as workspace:
            if self.objects.made():
                self._pending, self._pruned, self.snapshots.known = PendingChanges(self.objects), -1, {}
            with self.objects.locked():  # so that nobody prunes what no record names yet
                return self._begin_capture(workspace, call, keys)

    def _begin_capture(self, workspace: Workspace, call: ChangeSource, keys: Iterable[str] | None) -> CallCapture:
        self.recover()
        roots = EVERYTHING if keys is None else tuple(dict.fromkeys(_real(workspace, keys)))
        if roots == EVERYTHING:
            self._trust()
        elif self._pruned != self.objects.pruned:
            self.snapshots.known = {}
        head = self.objects.head()
        with self.objects.batch() as fresh:
            before = self._look(workspace, roots)
        change = Change(id=secrets.token_hex(8), call=call, at_ns=time.time_ns())
        note = self._note(change, roots, {path: one.state for path, one in before.seen.items()}, before.unseen, fresh, head=head)
        if self.snapshots.read - self._remembered > _WORTH:
            self._remembered = self.snapshots.read
            save_seen(self.objects, self.snapshots.known)
        opened = CallCapture(change=change, roots=roots, before=before, note=note, head=head, overlapping=list(self._open))
        for other in self._open:
            other.overlapping.append(opened)
        self._open.append(opened)
        return opened

    def _trust(self) -> None:
        """Load the saved snapshot on first use, and again after any process has pruned stored content."""
        if self._pruned != self.objects.pruned:
            self._pruned = self.objects.pruned
            self.snapshots.known = load_seen(self.objects)

    def finish(self, opened: CallCapture) -> Change | None:
        """Commit what has changed since `begin` and return the change; return None if nothing has changed."""
        with self.mutex:
            self._open = [one for one in self._open if one is not opened]
            try:
                return self._commit_locked(opened)
            except BaseException:
                opened.note.leave()
                raise
            finally:
                opened.note.drop()

    def _commit_locked(self, opened: CallCapture) -> Change | None:
        with self.objects.locked():
            return self._commit(opened)

    def _commit(self, opened: CallCapture) -> Change | None:
        with Workspace(self._workspace, sync=False) as workspace:
            after = self._look(workspace, opened.roots, opened.before.seen)
        before, (known, hidden) = opened.before.seen, without_hidden(after.seen, opened.before.seen, opened.before.unseen)
        steps = [
            Step(path=path, before=state_at(before, path), after=state_at(known, path))
            for path in sorted(before.keys() | known.keys())
            if has_moved(before.get(path), known.get(path))
        ]
        ours = {one.change.id for one in (opened, *self._open)}
        overlapping = [*(one.roots for one in opened.overlapping), *self._pending.others(ours)]
        mine, overlaps = attribute(steps, opened.roots, overlapping, self._since(opened.head))
        outside = moved_outside(opened.before, after)
        if not mine and not overlaps and not outside:
            return None
        gaps = (*merge_gaps([*opened.before.gaps, *after.gaps, *hidden]), *overlaps, *outside)
        return self.commit(replace(opened.change, steps=tuple(mine), gaps=gaps))

    def _since(self, head: str) -> list[Change]:
        """Return the changes that were committed after the commit `head`, the oldest first."""
        if self.objects.head() == head:
            return []
        return list(itertools.takewhile(lambda change: change.commit != head, history(self.objects)))[::-1]

    def commit(self, change: Change) -> Change:
        with self.objects.locked():
            commit = write_change(self.objects, change, parent=self.objects.head())
            self.objects.move_head(commit)
        return replace(change, commit=commit)

    def _look(self, workspace: Workspace, roots: tuple[str, ...], before: Iterable[str] = ()) -> Observation:
        """Observe the roots, and the paths in `before` even if the snapshot leaves them out now."""
        self._own_stats = set(_identities((*self._store, *self._own)))
        seen: dict[str, Seen] = {}
        gaps, unseen = list[Gap](), set[str]()
        outside, partly = dict[str, Signature](), False
        declared, tree = self.limits.declared_file_bytes, self.limits.tree_file_bytes
        with workspace.folder() as root:
            for path in roots:
                for above in folders_above(path):
                    seen[above] = self._one(root, above, declared)
                found = seen[path or "."] = self._one(root, path or ".", declared)
                if found.state.kind == "directory":
                    taken = self.snapshots.take(root, self._keep, lambda name: _text(workspace, name), path)
                    seen |= taken.seen
                    gaps += taken.gaps
                    unseen |= taken.unseen
                    outside |= taken.outside
                    partly = partly or taken.partly
            for path in before:
                if path not in seen:
                    seen[path] = self._one(root, path, tree)
        there = {path: one for path, one in seen.items() if one.state.kind != "absent"}
        return Observation(seen=there, gaps=tuple(gaps), unseen=frozenset(unseen), outside=outside, partly=partly)

    def _one(self, root: int, path: str, limit: int) -> Seen:
        signature, state = sees(root, path, self._keep, limit)
        return Seen(signature=signature, state=state, settled=False)

    def _keep(self, data: bytes) -> str:
        return self.objects.put("blob", data)

    def _is_own(self, found: os.stat_result) -> bool:
        return (found.st_dev, found.st_ino) in self._own_stats

    # Pending records

    def _note(
        self,
        change: Change,
        roots: tuple[str, ...],
        before: dict[str, State],
        unseen: frozenset[str] = frozenset(),
        fresh: Iterable[str] = (),
        targets: dict[str, State] | None = None,
        head: str | None = None,
    ) -> PendingLock:
        """Write a record of the call to disk, with everything that is needed to restore the files after a kill or a power cut.

        Returns:
            The record, locked.
        """
        blobs: tuple[bytes, ...] = ()
        if roots == EVERYTHING:
            self.objects.hold(fresh)
            self.objects.flush()
        elif sum(state.size for state in before.values()) > _INLINE_BYTES:
            self.objects.hold(state.blob for state in before.values() if state.blob)
            self.objects.flush()
        else:
            blobs = tuple(self.objects.get(state.blob) for state in before.values() if state.blob)
        pending = PendingChange(
            change=change, roots=roots, before=before, unseen=unseen, blobs=blobs, own=self._own, targets=targets or {}, head=head
        )
        return self._pending.write(pending)

    def hold(self, change: Change, before: dict[str, State], targets: dict[str, State]) -> CallCapture:
        """Write the pending record of an undo or redo, which changes exactly the paths in `before`."""
        roots = tuple(before)
        note = self._note(change, roots, before, targets=targets)
        return CallCapture(change=change, roots=roots, before=Observation(), note=note, head="", overlapping=[])

    @property
    def busy(self) -> bool:
        """Return whether a call of any process has begun and not finished."""
        self.recover()
        return self._pending.any()

    def recover(self) -> list[Change]:
        """Commit the changes of calls whose process has died, and return these changes."""
        return [change for pending in self._pending.left() for change in self._taken_in(pending)]

    def _taken_in(self, pending: PendingChange) -> list[Change]:
        if any(change.id == pending.change.id for change in history(self.objects)):
            return []  # committed already; a power cut brought the deleted record back
        self.leave_out(pending.own)
        for blob in pending.blobs:
            self.objects.mend(blob)
        with Workspace(self._workspace, sync=False) as workspace:
            with workspace.folder() as root:
                drop_drafts(root, pending.targets or pending.roots)
            after = self._look(workspace, pending.roots, pending.before)
        seen, hidden = without_hidden(after.seen, pending.before, pending.unseen)
        paths = sorted(pending.before.keys() | seen.keys())
        steps = [Step(path=path, before=pending.before.get(path, ABSENT), after=state_at(seen, path)) for path in paths]
        moved = tuple(step for step in steps if step.before != step.after)
        if pending.targets:
            own, halfway = interrupted_steps(moved, pending.targets)
            ended = replace(pending.change, steps=own, halfway=halfway)
        else:
            mine, overlaps = self._left_by(pending, moved)
            gaps = (*hidden, *after.gaps, *overlaps)
            ended = replace(pending.change, steps=tuple(mine), gaps=gaps, interrupted=pending.change.kind == "call")
        return [self.commit(ended)] if ended.steps else []

    def _left_by(self, pending: PendingChange, moved: Sequence[Step]) -> tuple[list[Step], list[Gap]]:
        """Return the steps of a call whose process was killed, and the overlaps with other calls.

        If several killed calls declared nothing, changes that belong to no other call are attributed to the first of
        them.
        """
        since = self._since(pending.head) if pending.head is not None else []
        overlapping = [roots for roots in self._pending.others({pending.change.id}) if roots != EVERYTHING]
        return attribute(moved, pending.roots, overlapping, since)


def _real(workspace: Workspace, keys: Iterable[str]) -> Iterable[str]:
    """Yield the real paths of these keys, below the root and with links resolved.

    For a link, yield the link itself and its target. Skip paths outside of the workspace.
    """
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


def _text(workspace: Workspace, path: str) -> str:
    with suppress(PathRefused):
        return workspace.read_bytes(path, limit=_GITIGNORE_BYTES).decode("utf-8", "replace")
    return ""
