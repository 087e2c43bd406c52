"""Decide what an undo or redo expects at each path, and what it writes there. Pure.

To undo several changes at once, one move per path suffices: from the state after the newest change to the state before
the oldest. This is correct only if nothing else changed the path in between. A change in between that is not undone
with them, or that was not recorded, is a conflict.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Literal

from msgspec import Struct

from callgate._undo.interrupted_undo import interrupted_states
from callgate._undo.path_state import State, are_same, describe_state
from callgate._undo.stored_change import Change, Gap, Step
from callgate._undo.undo_errors import Conflict

__all__ = ["Direction", "Move", "UndoPlan", "plan", "undone_paths"]

Direction = Literal["undo", "redo"]
Wanted = Callable[[str], bool]


class Move(Struct, frozen=True, kw_only=True):
    """The state that a path must have, and the state that an undo or redo gives it."""

    path: str
    expected: State
    target: State


class UndoPlan(Struct, frozen=True, kw_only=True):
    """The moves of an undo or redo. If there are conflicts, none is made."""

    direction: Direction
    changes: tuple[Change, ...]
    """The selected changes that have a move, the oldest first."""
    moves: tuple[Move, ...]
    conflicts: tuple[Conflict, ...] = ()
    left: tuple[str, ...] = ()
    """Paths of the selected changes that are not wanted. They are not touched."""
    told: tuple[str, ...] = ()
    """One sentence for each possible effect of the changes that cannot be undone."""
    not_kept: tuple[str, ...] = ()
    """Paths that the changes affected and whose content was not stored; only the first ones of each change."""


def undone_paths(changes: Iterable[Change]) -> dict[str, set[str]]:
    """Return the paths that are undone now, by the id of the change that wrote them.

    Args:
        changes: All changes, the oldest first.
    """
    undone: dict[str, set[str]] = {}
    for change in changes:
        for of in change.of:
            paths = undone.setdefault(of, set())
            done = {step.path for step in change.steps}.difference(change.halfway)
            (paths.update if change.kind == "undo" else paths.difference_update)(done)
    return undone


def plan(
    changes: Sequence[Change], selected: frozenset[str], direction: Direction, *, wanted: Wanted, whole: bool, interrupted: bool = False
) -> UndoPlan:
    """Return the moves and conflicts of an undo or redo.

    Args:
        changes: All changes since the oldest selected one, oldest first, including undos and redos.
        selected: Ids of the changes to undo or redo.
        wanted: Returns whether a path is to be undone or redone.
        whole: Whether every path is wanted. If so, content that was not stored is a conflict.
        interrupted: Whether a call whose end was not observed may be undone.
    """
    undone, between = undone_paths(changes), interrupted_states(changes)
    rows, outside = _rows_by_path(changes, selected, direction, wanted, undone, between)
    later = _live_later(changes, selected, undone) if direction == "redo" else {}
    moves, conflicts, used = [], [], set[str]()
    for path, row in rows.items():
        moved = _rows_to_move(row, selected, direction)
        if not moved:
            continue
        fault = _fault(path, moved, selected, later.get(path), interrupted=interrupted)
        conflicts += [fault] if fault else []
        moves.append(_move(path, moved, direction, between))
        used.update(change.id for change, _ in moved if change.id in selected)
    chosen = tuple(change for change in changes if change.id in selected)
    conflicts += [one for change in chosen if whole for one in _gaps(change)]
    told = tuple(dict.fromkeys(text for change in chosen for text in _describe_gaps(change)))
    return UndoPlan(
        direction=direction,
        changes=tuple(change for change in chosen if change.id in used),
        moves=tuple(sorted(moves, key=lambda move: move.path)),
        conflicts=tuple(conflicts),
        left=tuple(sorted(outside)),
        told=told,
        not_kept=tuple(dict.fromkeys(path for change in chosen for gap in change.gaps if gap.why == "left_out" for path in gap.paths)),
    )


_Row = tuple[Change, Step]
"""What one change did to one path."""


def _rows_by_path(
    changes: Sequence[Change],
    selected: frozenset[str],
    direction: Direction,
    wanted: Wanted,
    undone: Mapping[str, set[str]],
    between: Mapping[str, Mapping[str, State]],
) -> tuple[dict[str, list[_Row]], set[str]]:
    """Return what calls did to each wanted path and what can be moved in this direction, and the paths of selected changes that are not
    wanted.
    """
    rows: dict[str, list[_Row]] = {}
    outside: set[str] = set()
    for change in changes:
        for step in change.steps:
            gone = step.path in undone.get(change.id, ())
            fits = gone == (direction == "redo") or step.path in between.get(change.id, ())
            if change.kind == "call" and fits:
                if wanted(step.path):
                    rows.setdefault(step.path, []).append((change, step))
                elif change.id in selected:
                    outside.add(step.path)
    return rows, outside


def _rows_to_move(row: Sequence[_Row], selected: frozenset[str], direction: Direction) -> Sequence[_Row]:
    """Return the part of a path's row that moves: for an undo, from the first selected change on; for a redo, the selected changes."""
    if direction == "redo":
        return [one for one in row if one[0].id in selected]
    first = next((place for place, (change, _) in enumerate(row) if change.id in selected), len(row))
    return row[first:]


def _move(path: str, moved: Sequence[_Row], direction: Direction, between: Mapping[str, Mapping[str, State]]) -> Move:
    """Return the move of a path. If an undo or redo of it was interrupted, it is expected as that has left it."""
    before, after = moved[0][1].before, moved[-1][1].after
    left = next((between[change.id][path] for change, _ in moved if path in between.get(change.id, ())), None)
    if direction == "redo":
        return Move(path=path, expected=left or before, target=after)
    return Move(path=path, expected=left or after, target=before)


def _live_later(changes: Sequence[Change], selected: frozenset[str], undone: dict[str, set[str]]) -> dict[str, Change]:
    """Return, for each path, a call that wrote it later than the selected changes and is not undone."""
    seen, found = False, dict[str, Change]()
    for change in changes:
        seen = seen or change.id in selected
        if seen and change.kind == "call" and change.id not in selected:
            found |= {step.path: change for step in change.steps if step.path not in undone.get(change.id, ())}
    return found


def _fault(path: str, row: Sequence[_Row], selected: frozenset[str], later: Change | None, *, interrupted: bool) -> Conflict | None:
    other = later or next((change for change, _ in row if change.id not in selected), None)
    if other is not None:
        text = f"{other.call.tool or 'a call'} ({other.call.uid}) wrote it later. Undo that first, or both at once."
        return Conflict(path=path, why="later_call", text=text)
    for change, step in row:
        if change.interrupted and not interrupted:
            text = f"nobody saw the end of {change.call.uid}, so what is there may be somebody else's. Look, then allow interrupted calls."
            return Conflict(path=path, why="interrupted", text=text)
        why = step.before.why or step.after.why
        if why:
            return Conflict(path=path, why="not_kept", text=f"its content was not kept ({why.replace('_', ' ')}). Leave this path out.")
    for (_, one), (change, two) in pairwise(row):
        if not are_same(one.after, two.before):
            became = f"{describe_state(one.after)} became {describe_state(two.before)}"
            text = f"it was changed before {change.call.uid} by somebody else: {became}. Undo {change.call.uid} alone."
            return Conflict(path=path, why="changed_between", text=text)
    return None


def _gaps(change: Change) -> list[Conflict]:
    return [
        Conflict(
            path=path, why="not_kept", text=f"{change.call.uid} may have changed it, and it was not kept ({gap.why}). Leave this path out."
        )
        for gap in change.gaps
        if gap.blocks
        for path in gap.paths or ("*",)
    ]


def _describe_gaps(change: Change) -> list[str]:
    return [
        f"{change.call.uid}: {_left_out(gap)} ({', '.join(gap.paths)}{', …' if gap.count > len(gap.paths) else ''})"
        for gap in change.gaps
        if not gap.blocks
    ]


def _left_out(gap: Gap) -> str:
    paths = f"{gap.count:,} path{'s' if gap.count != 1 else ''}"
    match gap.why:
        case "left_out":
            return f"{paths} changed while it ran, but left out of what is kept: not undone"
        case "overlap":
            return f"{paths} left to another call that wrote meanwhile"
        case "name":
            return f"{paths} not looked at, whose name is not UTF-8"
        case "unreadable":
            return f"{paths} not looked at, as nobody may read there"
    return f"{gap.count:,} ignored path{'s' if gap.count != 1 else ''} not looked at"
