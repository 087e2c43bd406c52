"""Recognise what an undo or redo left that was killed in the middle of a step. Pure.

A file takes a file's place in one step, with its time and owner. Where one of them is a folder there are two, and modes, owners and
attributes of folders come last: so a path may be neither what it was nor what it should be. This module tells such a path from one that
somebody else changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from callgate._undo.changes import Change, Step
from callgate._undo.path_state import State, same

__all__ = ["interrupted_steps", "left_interrupted"]


def interrupted_steps(steps: Iterable[Step], targets: Mapping[str, State]) -> tuple[tuple[Step, ...], tuple[str, ...]]:
    """Return the steps that the undo made towards `targets`, and the paths that it left between before and after."""
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


def left_interrupted(changes: Iterable[Change]) -> dict[str, dict[str, State]]:
    """Return, by the id of each change, the paths that are between before and after now, and what is there.

    Args:
        changes: All of them, the oldest first.
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
    return same(step.after, target) or step.after.kind == target.kind == "directory"
