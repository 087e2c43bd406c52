"""Apply the moves of an undo or redo: check all of them first, then make all or none.

Everything that can be checked is checked before the first write: the state of each path, whether the stored content is
intact, and whether folders can be created or emptied. If the system refuses a step after that, the steps before it are
reverted. Folders are opened one name at a time, and links are never followed. Each path is checked again just before it
is replaced.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Literal

from msgspec import Struct

from callgate._undo.git_objects import Objects, blob_name
from callgate._undo.path_state import State, are_same, describe_state, look, opened_parent, sees
from callgate._undo.undo_errors import Conflict, StoreDamaged, UndoFailed
from callgate._undo.undo_plan import Move
from callgate._workspace.atomic_replace import put
from callgate._workspace.extended_attributes import set_attributes
from callgate._workspace.staged_file import drop_staged_file, staged_name

__all__ = ["Action", "ReadyMove", "apply", "check", "drop_drafts", "take_back"]

Action = Literal["made", "removed", "changed"]
_OWNERS = 0o700
_UNREAD = getattr(os, "O_PATH", 0)
"""The flag that opens files and folders even without read permission (`O_PATH`); 0 if the system has no such flag."""


class ReadyMove(Struct, frozen=True, kw_only=True):
    """A move that has been checked, and the state of its path when it was checked."""

    move: Move
    now: State

    @property
    def action(self) -> Action:
        if self.move.target.kind == "absent":
            return "removed"
        return "made" if self.now.kind == "absent" else "changed"


def check(root: int, moves: Sequence[Move], objects: Objects, limit: int) -> tuple[list[ReadyMove], list[Conflict], list[str]]:
    """Compare the moves with the workspace, and store the current content of each path.

    Args:
        limit: The size in bytes above which a file is not read.

    Returns:
        The moves to make, the conflicts, and the folders that are not removed because they contain something that no
            call wrote.
    """
    ready, conflicts, stay = list[ReadyMove](), list[Conflict](), list[str]()
    targets = {move.path: move.target for move in moves}
    emptied: dict[str, bool] = {}
    for move in sorted(moves, key=lambda move: move.path.count("/"), reverse=True):  # deepest first: `_emptied` recurses little
        now = sees(root, move.path, lambda data: objects.put("blob", data), limit)[1]
        if are_same(now, move.target) and (now == move.target or now != move.expected):
            continue  # already as wanted; if the call itself wrote the same bytes, the old time is still to be restored
        if now.kind == "directory" and move.target.kind != "directory" and not _becomes_empty(root, move.path, targets, emptied):
            if move.target.kind == "absent":
                stay.append(move.path)
            else:
                conflicts.append(
                    Conflict(path=move.path, why="not_empty", text="it is a folder that holds what no call wrote. Move that away.")
                )
            continue
        found = _fault(root, move, now, targets, objects)
        if found:
            conflicts.append(found)
        else:
            ready.append(ReadyMove(move=move, now=now))
    place = {move.path: number for number, move in enumerate(moves)}
    return sorted(ready, key=lambda one: place[one.move.path]), conflicts, stay


def _fault(root: int, move: Move, now: State, targets: dict[str, State], objects: Objects) -> Conflict | None:
    if not are_same(now, move.expected):
        found = f"expected {describe_state(move.expected)}, found {describe_state(now)}"
        return Conflict(path=move.path, why="changed", text=f"{found}. Somebody else changed it: save that, or leave this path out.")
    if move.target.kind == "absent":
        return None
    if not _has_folder(root, move.path, targets):
        return Conflict(path=move.path, why="unsafe", text="its folder is gone or is a link now. Put the folder back first.")
    if move.target.blob:
        try:
            objects.get(move.target.blob)
        except StoreDamaged as error:
            return Conflict(path=move.path, why="damaged", text=str(error))
    return None


def _becomes_empty(root: int, path: str, targets: dict[str, State], known: dict[str, bool]) -> bool:
    """Return whether the undo removes everything in this folder.

    Args:
        known: The results so far, by folder, so that each folder is listed only once.
    """
    if path not in known:
        known[path] = _all_go(root, path, targets, known)
    return known[path]


def _all_go(root: int, path: str, targets: dict[str, State], known: dict[str, bool]) -> bool:
    try:
        with opened_parent(root, f"{path}/x") as (folder, _):
            names = os.listdir(folder)
            folders = {name for name in names if stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)}
    except OSError:
        return False
    if any(targets.get(f"{path}/{name}", State(kind="special")) != State() for name in names):
        return False
    return all(_becomes_empty(root, f"{path}/{name}", targets, known) for name in folders)


def _has_folder(root: int, path: str, targets: dict[str, State]) -> bool:
    above = path.rpartition("/")[0]
    if above in targets:
        return targets[above].kind == "directory"
    try:
        with opened_parent(root, path):
            return True
    except OSError:
        return False


def apply(root: int, ready: Sequence[ReadyMove], objects: Objects, limit: int) -> None:
    """Make every move.

    Raises:
        UndoFailed: One move could not be made; the moves before it were reverted.
    """
    done: list[ReadyMove] = []
    try:
        for one in _shut(ready):
            done.append(one)
            with opened_parent(root, one.move.path) as (folder, name):
                _open_up(folder, name)
        for one in _in_order(ready):
            done.append(one)
            _carry_out(root, one, objects, limit)
        _set_folders(root, ready)
    except (OSError, StoreDamaged) as error:
        why = error.strerror or str(error) if isinstance(error, OSError) else str(error)
        raise UndoFailed(done[-1].move.path, why, take_back(root, done, objects, limit)) from error


def take_back(root: int, done: Sequence[ReadyMove], objects: Objects, limit: int) -> tuple[str, ...]:
    """Revert the moves in `done`. Do not touch a path that somebody else has changed meanwhile.

    Returns:
        The paths that were not touched or could not be reverted.
    """
    back, left = list[ReadyMove](), list[str]()
    for path, steps in _by_path(done).items():
        was, state = steps[0].now, sees(root, path, lambda data: objects.put("blob", data), limit)[1]
        if are_same(state, was):
            continue
        if any(_is_put(state, one.move.target) for one in steps):
            back.append(ReadyMove(move=Move(path=path, expected=state, target=was), now=state))
        else:
            left.append(path)
    for one in _in_order(back):
        try:
            _carry_out(root, one, objects, limit)
        except (OSError, StoreDamaged):
            left.append(one.move.path)
    with suppress(OSError):
        _set_folders(root, back)
    return tuple(dict.fromkeys(left))


def drop_drafts(root: int, paths: Iterable[str]) -> None:
    """Remove the staged files and links that a killed process left for these paths."""
    for path in paths:
        with suppress(OSError), opened_parent(root, path) as (folder, name):
            if not drop_staged_file(folder, name):
                _drop_link(folder, name)


def _by_path(done: Sequence[ReadyMove]) -> dict[str, list[ReadyMove]]:
    """Return the moves by path. A path has two moves if a folder and a file replace each other."""
    steps: dict[str, list[ReadyMove]] = {}
    for one in done:
        steps.setdefault(one.move.path, []).append(one)
    return steps


def _is_put(state: State, target: State) -> bool:
    """Return whether `state` may be the result of a move that wrote `target`.

    The mode of a folder is set last and is therefore not compared.
    """
    return are_same(state, target) or state.kind == target.kind == "directory"


def _in_order(ready: Sequence[ReadyMove]) -> Iterator[ReadyMove]:
    """Yield the removals first, deepest path first. Then yield the writes, each folder before its content."""
    for one in sorted(ready, key=lambda one: one.move.path.count("/"), reverse=True):
        if _goes(one):
            yield ReadyMove(move=Move(path=one.move.path, expected=one.now, target=State()), now=one.now)
    for one in sorted(ready, key=lambda one: one.move.path.count("/")):
        if one.move.target.kind != "absent":
            yield ReadyMove(move=one.move, now=State()) if _goes(one) else one


def _goes(one: ReadyMove) -> bool:
    """Return whether the current content must be removed before the target is written.

    A folder cannot replace a file, nor a file a folder.
    """
    target = one.move.target.kind
    return one.now.kind != "absent" and (target == "absent" or "directory" in (one.now.kind, target)) and one.now.kind != target


def _shut(ready: Sequence[ReadyMove]) -> list[ReadyMove]:
    """Return the moves of folders whose owner does not have all rights in them, outermost first."""
    return sorted(
        (one for one in ready if one.now.kind == "directory" and one.now.mode & _OWNERS != _OWNERS),
        key=lambda one: (one.move.path != ".", one.move.path.count("/")),
    )


def _open_up(folder: int, name: str) -> None:
    """Give the owner all rights in a folder until its mode is set or it is removed.

    A refused chmod is ignored, because the rights may not be needed.
    """
    fd = os.open(name, _UNREAD | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        with suppress(PermissionError):
            os.chmod(f"/proc/self/fd/{fd}" if _UNREAD else fd, stat.S_IMODE(os.fstat(fd).st_mode) | _OWNERS)
    finally:
        os.close(fd)


def _carry_out(root: int, one: ReadyMove, objects: Objects, limit: int) -> None:
    target = one.move.target
    with opened_parent(root, one.move.path) as (folder, name):
        still = _still(root, one, folder, name, limit)
        if target.kind == "file":
            data, replace = [objects.get(target.blob)], one.now.kind != "absent"
            put(folder, name, data, set_metadata=lambda fd: _dress(fd, target), replace=replace, still_there=still)
        elif target.kind == "link":
            _link(folder, name, os.fsdecode(objects.get(target.blob)), target, still)
        elif target.kind == "directory" and one.now.kind != "directory":
            os.mkdir(name, _OWNERS, dir_fd=folder)
            _open_up(folder, name)  # an access list of the parent folder may have removed rights
        elif target.kind == "absent":
            still()
            (os.rmdir if one.now.kind == "directory" else os.unlink)(name, dir_fd=folder)


def _still(root: int, one: ReadyMove, folder: int, name: str, limit: int) -> Callable[[], None]:
    """Return a function to call just before the write.

    It raises `OSError` if the path's folder or content is no longer the same as when it was checked.
    """

    def look_again() -> None:
        with opened_parent(root, one.move.path) as (again, _):
            if not os.path.samestat(os.fstat(again), os.fstat(folder)):
                raise OSError("its folder was moved meanwhile")
        now = look(folder, name, blob_name, limit)[1]
        if not _is_put(now, one.now):
            raise OSError(f"it was changed meanwhile to {describe_state(now)}")

    return look_again


def _link(folder: int, name: str, text: str, target: State, still: Callable[[], None]) -> None:
    draft = staged_name(name)
    _drop_link(folder, name)
    os.symlink(text, draft, dir_fd=folder)
    try:
        now = os.stat(draft, dir_fd=folder, follow_symlinks=False)
        if (now.st_uid, now.st_gid) != (target.uid, target.gid):
            os.chown(draft, target.uid, target.gid, dir_fd=folder, follow_symlinks=False)
        os.utime(draft, ns=(now.st_atime_ns, target.mtime_ns), dir_fd=folder, follow_symlinks=False)
        still()
        os.rename(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        _drop_link(folder, name)
        raise


def _drop_link(folder: int, name: str) -> None:
    draft = staged_name(name)
    with suppress(OSError):
        if stat.S_ISLNK(os.stat(draft, dir_fd=folder, follow_symlinks=False).st_mode):
            os.unlink(draft, dir_fd=folder)


def _dress(fd: int, target: State) -> None:
    """Restore the owner, the extended attributes, the mode and, for a file, the modification time."""
    now = os.fstat(fd)
    if (now.st_uid, now.st_gid) != (target.uid, target.gid):
        os.fchown(fd, target.uid, target.gid)
    set_attributes(fd, target.attributes)
    os.fchmod(fd, target.mode)
    if target.kind == "file":
        os.utime(fd, ns=(now.st_atime_ns, target.mtime_ns))


def _set_folders(root: int, ready: Sequence[ReadyMove]) -> None:
    """Set the metadata of all folders, deepest first and the workspace itself last.

    This order is necessary because the final mode of a folder may deny access to its contents.
    """
    for one in sorted(ready, key=lambda one: (one.move.path != ".", one.move.path.count("/")), reverse=True):
        if one.move.target.kind == "directory":
            with _open_folder(root, one.move.path) as fd:
                _dress(fd, one.move.target)


@contextmanager
def _open_folder(root: int, path: str) -> Iterator[int]:
    with opened_parent(root, f"{path}/x") as (folder, _):
        yield folder
