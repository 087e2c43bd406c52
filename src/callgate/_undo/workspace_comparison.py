"""Compare two observations of the paths that a call may write: one before the call and one after it. Pure.

A path that the first observation left out may have existed before the call, even if only the second one contains it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from msgspec import Struct

from callgate._undo.path_state import ABSENT, Seen, Signature, State, are_same
from callgate._undo.stored_change import Gap

__all__ = ["Observation", "folders_above", "has_moved", "merge_gaps", "moved_outside", "state_at", "without_hidden"]

_NAMED = 10


class Observation(Struct, frozen=True, kw_only=True):
    """The state of a workspace, or of parts of it, at one moment."""

    seen: dict[str, Seen] = {}
    gaps: tuple[Gap, ...] = ()
    unseen: frozenset[str] = frozenset()
    outside: dict[str, Signature] = {}
    """The signatures of paths that were left out."""
    partly: bool = False
    """Whether some left-out paths are missing from `outside`, because there are too many."""


def folders_above(path: str) -> list[str]:
    names = path.split("/")[:-1]
    return ["/".join(names[: end + 1]) for end in range(len(names))]


def state_at(seen: dict[str, Seen], path: str) -> State:
    return seen[path].state if path in seen else ABSENT


def without_hidden(seen: dict[str, Seen], before: Collection[str], unseen: frozenset[str]) -> tuple[dict[str, Seen], list[Gap]]:
    """Remove the paths that the first observation left out from the second one.

    Return the rest, and a gap for the removed paths.

    Such a path may have existed before the call, but was ignored or unreadable.
    """
    if not unseen:
        return seen, []
    hidden = {path for path in seen if path not in before and (path in unseen or not unseen.isdisjoint(folders_above(path)))}
    gaps = [Gap(why="ignored", paths=tuple(sorted(hidden)[:_NAMED]), count=len(hidden))] if hidden else []
    return {path: one for path, one in seen.items() if path not in hidden}, gaps


def moved_outside(before: Observation, after: Observation) -> list[Gap]:
    """Return a gap for the left-out paths that have changed between the two observations. Their content is not stored."""
    paths = before.outside.keys() & after.outside.keys() if before.partly or after.partly else before.outside.keys() | after.outside.keys()
    moved = sorted(
        path for path in paths if before.outside.get(path) != after.outside.get(path) and path not in before.seen and path not in after.seen
    )
    return [Gap(why="left_out", paths=tuple(moved[:_NAMED]), count=len(moved))] if moved else []


def merge_gaps(gaps: Iterable[Gap]) -> list[Gap]:
    """Merge the gaps of two observations into one per reason."""
    found: dict[str, Gap] = {}
    for gap in gaps:
        known = found.get(gap.why, gap)
        paths = tuple(dict.fromkeys((*known.paths, *gap.paths)))
        count = max(known.count, gap.count, len(paths))
        found[gap.why] = Gap(why=gap.why, paths=paths[:_NAMED], count=count, blocks=known.blocks or gap.blocks)
    return list(found.values())


def has_moved(before: Seen | None, after: Seen | None) -> bool:
    if before is None or after is None:
        return before is not after
    return before.signature != after.signature or not (are_same(before.state, after.state) or before.state == after.state)
