"""Decide which call made a change when several calls ran at the same time. Pure.

The calls may be of one engine or of several, and an undo may run at the same time.

A change that another call has already committed belongs to that call. A change to a path that one call declares is not
attributed to a call that declares nothing. A change that may be of several calls is attributed to none of them and
reported as a gap.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from msgspec.structs import replace

from callgate._undo.path_state import are_same
from callgate._undo.stored_change import Change, Gap, Step

__all__ = ["EVERYTHING", "attribute"]

EVERYTHING = ("",)
"""The roots of a call that does not declare what it writes."""
_NAMED = 10


def attribute(
    steps: Sequence[Step], roots: tuple[str, ...], overlapping: Collection[tuple[str, ...]], since: Sequence[Change]
) -> tuple[list[Step], list[Gap]]:
    """Return the steps that this call made, and gaps for changes that another call may have made.

    Args:
        steps: The differences between the beginning of the call and now.
        roots: The paths that the call may write.
        overlapping: For each call that ran at the same time, the paths that it may write.
        since: The changes that were committed since the call began, oldest first.
    """
    left = {step.path: step.after for change in since for step in change.steps}
    claimed = {root for other in overlapping for root in other if root} if roots == EVERYTHING else set()
    mine, theirs = list[Step](), list[str]()
    for step in steps:
        found = left.get(step.path)
        if (found is not None and are_same(found, step.after)) or any(_within(step.path, root) for root in claimed):
            theirs.append(step.path)
        else:
            mine.append(step if found is None else replace(step, before=found))
    gaps = [_gap(theirs, blocks=False)] if theirs and roots == EVERYTHING else []
    if mine and roots == EVERYTHING and _nobodys(overlapping, since):
        return [], [*gaps, _gap([step.path for step in mine], blocks=True)]
    return mine, gaps


def _nobodys(overlapping: Collection[tuple[str, ...]], since: Sequence[Change]) -> bool:
    """Return whether another call may have made the changes of a call that declares nothing.

    True if another call that declares nothing ran at the same time, or if a change committed since has a blocking
    overlap.
    """
    return any("" in other for other in overlapping) or any(gap.why == "overlap" and gap.blocks for change in since for gap in change.gaps)


def _gap(paths: Sequence[str], *, blocks: bool) -> Gap:
    return Gap(why="overlap", paths=tuple(paths[:_NAMED]), count=len(paths), blocks=blocks)


def _within(path: str, root: str) -> bool:
    """Return whether `path` is `root`, is below `root`, or is a folder above `root`."""
    return path == root or path.startswith(f"{root}/") or root.startswith(f"{path}/")
