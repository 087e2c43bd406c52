"""Recognise the paths that a killed undo or redo left unfinished. Pure.

A file replaces a file in one step, together with its time and owner. Replacing a file with a folder, or a folder with a
file, takes two steps, and the modes, owners and attributes of folders are set last. After a kill, a path may therefore
be in neither its old nor its wanted state. This module distinguishes such a path from one that somebody else has
changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from callgate._undo.path_state import State, are_same
from callgate._undo.stored_change import Change, Step

__all__ = ["interrupted_states", "interrupted_steps"]


def interrupted_steps(steps: Iterable[Step], targets: Mapping[str, State]) -> tuple[tuple[Step, ...], tuple[str, ...]]:
    """Return the steps that the undo made towards `targets`, and the unfinished paths.

    An unfinished path is in neither its old nor its wanted state.
    """
    own, halfway = list[Step](), list[str]()
    for step in steps:
        target = targets.get(step.path)
        if target is None:
            continue
        if step.after == target:
            own.append(step)
        elif _is_between(step, target):
            own.append(step)
            halfway.append(step.path)
    return tuple(own), tuple(halfway)


def interrupted_states(changes: Iterable[Change]) -> dict[str, dict[str, State]]:
    """Return the states of the paths that an undo or redo left unfinished, by the id of the change it applied to.

    Args:
        changes: All changes, oldest first.
    """
    found: dict[str, dict[str, State]] = {}
    for change in changes:
        for of in change.of:
            left = found.setdefault(of, {})
            for step in change.steps:
                left.pop(step.path, None)
                if step.path in change.halfway:
                    left[step.path] = step.after
    return found


def _is_between(step: Step, target: State) -> bool:
    if step.after.kind == "absent":
        return step.before.kind != target.kind and "directory" in (step.before.kind, target.kind)
    return are_same(step.after, target) or step.after.kind == target.kind == "directory"
