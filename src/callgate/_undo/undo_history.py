"""List, undo and redo the changes of one workspace.

An undo selects changes by a call, a run, a turn or a checkpoint, plans and checks all moves, and then applies all or
none of them. Every undo and redo is itself a change like that of a call: the old content is stored first, the change is
committed, and `changes` lists it. Knows nothing of engines or journals.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from msgspec import Struct
from msgspec.structs import replace

from callgate._option_checks import by_name
from callgate._undo.apply_undo import Action, ReadyMove, apply, check, take_back
from callgate._undo.change_capture import ChangeCapture, UndoLimits
from callgate._undo.checkpoints import Checkpoint, Checkpoints
from callgate._undo.git_objects import Objects
from callgate._undo.patch_text import UndoDiff, differences
from callgate._undo.path_state import State, sees
from callgate._undo.repository_path import default_folder, repository_path
from callgate._undo.stored_change import Change, ChangeSource, Step, history, read_change
from callgate._undo.undo_errors import StoreDamaged, UndoFailed, UndoRefused
from callgate._undo.undo_plan import Direction, Move, UndoPlan, plan, undone_paths
from callgate._workspace.listing import Glob
from callgate.errors import UsageError

__all__ = ["UndoHistory", "Undone"]

_Scope = tuple[Iterable[str], Iterable[str]]
"""Globs of the paths to include (empty: all paths), and globs of the paths to exclude."""


class Undone(Struct, frozen=True, kw_only=True):
    """The result of an undo or redo, or of its dry run."""

    direction: Direction
    calls: tuple[str, ...]
    """The uids of the calls, in the order in which they were made."""
    runs: tuple[str, ...]
    paths: tuple[str, ...]
    """The paths that were restored."""
    actions: dict[str, Action] = {}
    """The action for each of `paths`."""
    already: tuple[str, ...] = ()
    """The paths that already had the wanted state."""
    stay: tuple[str, ...] = ()
    """Folders that a call created and that were not removed, because they contain something that no call wrote."""
    left: tuple[str, ...] = ()
    """Paths that these calls changed, but that `paths` and `exclude` did not select. They were not touched."""
    told: tuple[str, ...] = ()
    """One sentence for each possible effect of the calls that was not stored, and so not undone or redone."""
    not_kept: tuple[str, ...] = ()
    """Paths that the calls changed and that undo does not store; only the first ones of each call."""
    commit: str = ""
    """The commit of this undo or redo. Empty for a dry run, and if nothing had to be done."""

    @property
    def partial(self) -> bool:
        """Return whether some effects of the calls may not have been undone or redone."""
        return bool(self.left or self.stay or self.told or self.not_kept)


class UndoHistory:
    """The stored changes of one workspace.

    Args:
        workspace: The workspace's root folder.
        place: The folder that contains the repositories of all workspaces. Default: `CALLGATE_UNDO`, or `callgate/undo`
            in the user's state folder.
        own: Paths of the host's own files inside the workspace, such as a journal. Snapshots leave them out.

    Raises:
        UsageError: The workspace is not a folder.
    """

    @by_name
    def __init__(
        self,
        workspace: str | os.PathLike[str],
        *,
        place: str | os.PathLike[str] | None = None,
        limits: UndoLimits | None = None,
        sync: bool = True,
        own: Iterable[str] = (),
    ) -> None:
        self.workspace = os.path.realpath(workspace)
        if not os.path.isdir(self.workspace):
            raise UsageError(f"There is no folder {self.workspace}. Give the workspace whose changes are meant.")
        self.folder = repository_path(self.workspace, os.fspath(place) if place is not None else default_folder())
        """The repository's folder. `git --git-dir FOLDER log` shows its commits."""
        self._objects = Objects(self.folder, sync=sync)
        self._objects.replace("description", f"What callgate's calls changed in {self.workspace}\n".encode("utf-8", "backslashreplace"))
        self.capture = ChangeCapture(self.workspace, self._objects, limits or UndoLimits(), own)
        self.checkpoints = Checkpoints(self._objects, self.capture.mutex)

    # Listing and selection

    def changes(self) -> list[Change]:
        """Return every stored change, undos and redos included, the oldest first."""
        with self.capture.mutex:
            self.capture.recover()
            return list(history(self._objects))[::-1]

    def select(self, words: str, changes: list[Change], direction: Direction = "undo") -> frozenset[str]:
        """Return the ids of the changes that `words` names.

        Args:
            words: A call's uid or the end of one, a run, a conversation, a turn of a run or conversation (`RUN@TURN`),
                a checkpoint's name, or `last`.

        Raises:
            UsageError: Nothing has this name, or several uids end with it.
        """
        undone = undone_paths(changes)
        calls = [change for change in changes if change.kind == "call"]
        fitting = [one for one in calls if (direction == "undo") == any(step.path not in undone.get(one.id, ()) for step in one.steps)]
        run, _, turn = words.rpartition("@")
        tries = (
            [one for one in calls if words in (one.call.uid, one.id)],
            [one for one in calls if one.call.run == words],
            [one for one in calls if words and one.call.conversation == words],
            [one for one in calls if run and run in (one.call.run, one.call.conversation) and str(one.call.turn) == turn],
            self._since(words, changes),
            (_newest(fitting, calls) if direction == "undo" else self._changes_of_last_undo(changes)) if words == "last" else [],
        )
        for found in tries:
            if found:
                return frozenset(one.id for one in found)
        if self.checkpoints.get(words) is not None:
            return frozenset()  # no call has changed a file since the checkpoint
        ending = {one.call.uid: one for one in calls if one.call.uid.endswith(f"/{words.lstrip('/')}")}
        if len(ending) == 1:
            return frozenset(one.id for one in calls if one.call.uid in ending)
        if not calls:
            raise UsageError(
                f"Nothing is kept of {self.workspace}: no call has changed a file there while changes were kept. They are found by their"
                " folder's path, so stand in the one that was worked in."
            )
        if words == "last":
            nothing = "Every kept call is undone already." if direction == "undo" else "No call is undone here: there is nothing to redo."
            raise UsageError(f"{nothing} `callgate undo` without words lists what was kept.")
        latest = ", ".join(one.call.uid for one in calls[-3:])
        why = f"{len(ending)} calls end so" if ending else "no call, run, conversation, turn or checkpoint here is called so"
        raise UsageError(f"'{words[:80]}' does not say what is meant: {why}. The latest calls that changed files: {latest}.")

    def _since(self, name: str, changes: list[Change]) -> list[Change]:
        mark = self.checkpoints.get(name)
        if mark is None:
            return []
        commits = [change.commit for change in changes]
        if mark.commit and mark.commit not in commits:
            raise UsageError(f"The changes since checkpoint '{name}' are not all kept any more. Undo runs or calls that are.")
        return [one for one in changes[commits.index(mark.commit) + 1 if mark.commit else 0 :] if one.kind == "call"]

    @staticmethod
    def _changes_of_last_undo(changes: list[Change]) -> list[Change]:
        undone = undone_paths(changes)
        last = next((one for one in reversed(changes) if one.kind == "undo" and any(undone.get(of) for of in one.of)), None)
        return [one for one in changes if last is not None and one.id in last.of]

    # Undo, redo and diff

    def plan(
        self,
        words: str,
        *,
        paths: Iterable[str] = (),
        exclude: Iterable[str] = (),
        direction: Direction = "undo",
        interrupted: bool = False,
    ) -> UndoPlan:
        """Return what an undo or redo would expect and write at each path. Does not read the workspace's files."""
        changes = self.changes()
        selected = self.select(words, changes, direction)
        start = next((place for place, change in enumerate(changes) if change.id in selected), len(changes))
        globs, excluded = [Glob(pattern) for pattern in paths], [Glob(pattern) for pattern in exclude]
        return plan(
            changes[start:],
            selected,
            direction,
            wanted=lambda path: (not globs or _any_matches(globs, path)) and not _any_matches(excluded, path),
            whole=not globs and not excluded,
            interrupted=interrupted,
        )

    def undo(
        self, words: str, *, paths: Iterable[str] = (), exclude: Iterable[str] = (), dry_run: bool = False, interrupted: bool = False
    ) -> Undone:
        """Restore the state before the calls: content, mode, kind, time and owner, or the absence of a file.

        Restores all paths or none.

        Args:
            words: The changes to undo; see `select`.
            paths: Globs; only paths that match one of them are restored. Default: all paths.
            exclude: Globs; paths that match one of them are not restored.
            dry_run: Check everything and change nothing.
            interrupted: Also undo calls whose end was not observed.

        Raises:
            UndoRefused: Something cannot be restored exactly. Nothing was changed.
            UndoFailed: The system refused a step. The steps before it were reverted.
        """
        return self._carry_out(words, "undo", (paths, exclude), dry_run, interrupted)

    def redo(self, words: str, *, paths: Iterable[str] = (), exclude: Iterable[str] = (), dry_run: bool = False) -> Undone:
        """Restore the changes of undone calls.

        Arguments and errors are as for `undo`. Interrupted calls are included.
        """
        return self._carry_out(words, "redo", (paths, exclude), dry_run, interrupted=True)

    def diff(self, words: str, *, paths: Iterable[str] = (), exclude: Iterable[str] = (), direction: Direction = "undo") -> list[UndoDiff]:
        """Return the changes of the calls as a patch for each path.

        The lines that the calls wrote begin with `+`, whatever the direction.

        Args:
            words: As for `undo`.
            paths: As for `undo`.
            exclude: As for `undo`.
            direction: `undo`: changes that are not undone; `redo`: changes that are undone.
        """
        planned = self.plan(words, paths=paths, exclude=exclude, direction=direction, interrupted=True)
        ends = [(move.target, move.expected) if direction == "undo" else (move.expected, move.target) for move in planned.moves]
        return differences(self._objects, [(move.path, *states) for move, states in zip(planned.moves, ends, strict=True)])

    def _carry_out(self, words: str, direction: Direction, scope: _Scope, dry_run: bool, interrupted: bool) -> Undone:
        with self.capture.mutex, self._objects.locked(), self._root() as root, _store_errors_as_failures(self.folder):
            planned = self.plan(words, paths=scope[0], exclude=scope[1], direction=direction, interrupted=interrupted)
            ready, conflicts, stay = check(root, planned.moves, self._objects, self.capture.limits.declared_file_bytes)
            first = {one.path: one for one in (*conflicts, *planned.conflicts)}
            if first:
                raise UndoRefused(tuple(first.values()))
            done = Undone(
                direction=direction,
                calls=tuple(change.call.uid for change in planned.changes),
                runs=tuple(dict.fromkeys(change.call.run for change in planned.changes)),
                paths=tuple(one.move.path for one in ready),
                actions={one.move.path: one.action for one in ready},
                already=tuple(sorted({move.path for move in planned.moves} - {one.move.path for one in ready} - set(stay))),
                stay=tuple(stay),
                left=planned.left,
                told=planned.told,
                not_kept=planned.not_kept,
            )
            if dry_run or not planned.moves:
                return done
            return replace(done, commit=self._apply_and_commit(root, planned, ready, stay))

    def _apply_and_commit(self, root: int, planned: UndoPlan, ready: list[ReadyMove], stay: list[str]) -> str:
        call = ChangeSource(uid=planned.changes[-1].call.uid, run=planned.changes[-1].call.run, tool=planned.direction)
        of = tuple(change.id for change in planned.changes)
        change = Change(id=secrets.token_hex(8), kind=planned.direction, call=call, of=of, at_ns=time.time_ns())
        now = {one.move.path: one.now for one in ready}
        opened = self.capture.hold(change, now, {one.move.path: one.move.target for one in ready})
        limit = self.capture.limits.declared_file_bytes
        try:
            apply(root, ready, self._objects, limit)
            try:
                steps = tuple(self._step(root, move, now) for move in planned.moves if move.path not in stay)
                return self.capture.commit(replace(change, steps=steps)).commit
            except (OSError, StoreDamaged) as error:
                raise UndoFailed(self.folder, str(error), take_back(root, ready, self._objects, limit)) from error
        finally:
            opened.note.drop()

    def _step(self, root: int, move: Move, before: dict[str, State]) -> Step:
        keep = lambda data: self._objects.put("blob", data)  # noqa: E731
        after = sees(root, move.path, keep, self.capture.limits.declared_file_bytes)[1]
        earlier = before.get(move.path, after)
        return Step(path=move.path, before=earlier, after=after)

    @contextmanager
    def _root(self) -> Iterator[int]:
        try:
            fd = os.open(self.workspace, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise UsageError(f"There is no folder {self.workspace} any more. Put it back where it was, and try again.") from error
        try:
            yield fd
        finally:
            os.close(fd)

    # Retention

    def checkpoint(self, name: str = "", *, kind: str = "explicit") -> Checkpoint:
        """Add a checkpoint for the current moment. `undo(name)` later undoes every change since this moment."""
        with self.capture.mutex:
            self.capture.recover()
            return self.checkpoints.add(name, kind, self._objects.head(), time.time_ns())

    def prune(self, *, keep_days: float = 30.0) -> int:
        """Delete changes that are older than `keep_days` and that no checkpoint needs; return how many were deleted.

        Only the stored changes are deleted. The files in the workspace stay as they are.

        Raises:
            UsageError: A call has begun and not finished.
        """
        with self.capture.mutex, self._objects.locked():
            if self.capture.busy:
                raise UsageError("A call is changing files just now, so nothing was dropped. Try again when it has ended.")
            return self.checkpoints.prune(list(history(self._objects)), time.time_ns(), keep_days=keep_days)

    def verify(self) -> list[str]:
        """Return a sentence for each missing or altered object of the store; empty if every stored byte is intact."""
        found: dict[str, None] = {}
        with self.capture.mutex:
            for commit in self._objects.heads():
                try:
                    read_change(self._objects, commit)
                except StoreDamaged as error:
                    found[str(error)] = None
            for change in history(self._objects):
                for blob in {state.blob for step in change.steps for state in (step.before, step.after) if state.blob}:
                    try:
                        self._objects.get(blob)
                    except StoreDamaged as error:
                        found[str(error)] = None
        return list(found)


def _newest(fitting: list[Change], calls: list[Change]) -> list[Change]:
    """Return the newest call that can be undone, and all later calls of whose changes nothing was stored."""
    start = calls.index(fitting[-1]) if fitting else 0
    return [*fitting[-1:], *(one for one in calls[start:] if not one.steps and any(gap.why == "left_out" for gap in one.gaps))]


def _any_matches(globs: Iterable[Glob], path: str) -> bool:
    return any(glob.matches(path) for glob in globs)


@contextmanager
def _store_errors_as_failures(folder: str) -> Iterator[None]:
    """Convert an `OSError` of the store to `UndoFailed`. Used before any file is changed."""
    try:
        yield
    except OSError as error:
        raise UndoFailed(folder, error.strerror or str(error)) from error
