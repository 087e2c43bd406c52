"""Decide which call made a change, where calls were open at the same time: in one engine, in several, or during an undo. Pure.

What another call committed meanwhile belongs to that call. A path that a call declares is not attributed to a call that declares nothing.
What cannot be told apart is attributed to no call, and reported as a gap.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from msgspec.structs import replace

from callgate._undo.changes import Change, Gap, Step
from callgate._undo.path_state import same

__all__ = ["EVERYTHING", "attribute"]

EVERYTHING = ("",)
"""The roots of a call that does not say what it writes."""
_NAMED = 10


def attribute(
    steps: Sequence[Step], roots: tuple[str, ...], overlapping: Collection[tuple[str, ...]], since: Sequence[Change]
) -> tuple[list[Step], list[Gap]]:
    """The steps that are a call's own, and what else it may have done.

    Args:
        steps: What is different from when the call began.
        roots: What the call may write.
        overlapping: The same, of each call that was open at the same time.
        since: What was committed since the call began, the oldest first.
    """
    left = {step.path: step.after for change in since for step in change.steps}
    claimed = {root for other in overlapping for root in other if root} if roots == EVERYTHING else set()
    mine, theirs = list[Step](), list[str]()
    for step in steps:
        found = left.get(step.path)
        if (found is not None and same(found, step.after)) or any(_within(step.path, root) for root in claimed):
            theirs.append(step.path)
        else:
            mine.append(step if found is None else replace(step, before=found))
    gaps = [_gap(theirs, blocks=False)] if theirs and roots == EVERYTHING else []
    if mine and roots == EVERYTHING and _nobodys(overlapping, since):
        return [], [*gaps, _gap([step.path for step in mine], blocks=True)]
    return mine, gaps


def _nobodys(overlapping: Collection[tuple[str, ...]], since: Sequence[Change]) -> bool:
    """Whether another call that may have written anything was open, or had to say that it could not tell."""
    return any("" in other for other in overlapping) or any(gap.why == "overlap" and gap.blocks for change in since for gap in change.gaps)


def _gap(paths: Sequence[str], *, blocks: bool) -> Gap:
    return Gap(why="overlap", paths=tuple(paths[:_NAMED]), count=len(paths), blocks=blocks)


def _within(path: str, root: str) -> bool:
    """Whether `path` is `root`, in it, or a folder that was made for it."""
    return path == root or path.startswith(f"{root}/") or root.startswith(f"{path}/")
