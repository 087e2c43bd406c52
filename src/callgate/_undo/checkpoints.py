"""Checkpoints, and how long changes are kept for them.

A checkpoint is a name for a moment in the history of changes. It needs no storage of its own, because every change is
stored anyway. An explicit checkpoint is kept for ever, an automatic one for 30 days, and one of a phase for 7 days. Old
changes that no checkpoint needs are deleted, oldest first.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from callgate._undo.git_objects import Objects
from callgate._undo.pruning import keep_only
from callgate._undo.stored_change import Change
from callgate.errors import UsageError

__all__ = ["KEPT_DAYS", "Checkpoint", "Checkpoints"]

KEPT_DAYS: dict[str, float | None] = {"explicit": None, "automatic": 30.0, "phase": 7.0}
"""How many days a checkpoint of each kind is kept; None: for ever."""
_DAY_NS = 86_400_000_000_000
_FILE = "checkpoints.json"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")


class Checkpoint(Struct, frozen=True, kw_only=True):
    """A name for a moment in the history of changes."""

    name: str
    kind: str
    commit: str
    """The newest change at that moment; empty if there was none."""
    at_ns: int


class Checkpoints:
    """The checkpoints of one repository."""

    def __init__(self, objects: Objects, mutex: threading.RLock) -> None:
        self._objects = objects
        self._mutex = mutex

    def all(self) -> list[Checkpoint]:
        """Return all checkpoints, the oldest first."""
        try:
            with open(os.path.join(self._objects.folder, _FILE), "rb") as file:
                return msgspec.json.decode(file.read(), type=list[Checkpoint])
        except FileNotFoundError:
            return []

    def get(self, name: str) -> Checkpoint | None:
        return next((one for one in self.all() if one.name == name), None)

    def add(self, name: str, kind: str, commit: str, at_ns: int) -> Checkpoint:
        """Store a checkpoint and return it.

        Args:
            name: The name; empty: `checkpoint-N`.
            commit: The newest change now; empty if there is none.

        Raises:
            UsageError: The name is taken or not valid, or there is no such kind.
        """
        found = self.all()
        name = name or f"checkpoint-{len(found) + 1}"
        if kind not in KEPT_DAYS:
            raise UsageError(f"'{kind[:40]}' is not a kind of checkpoint. There are: {', '.join(KEPT_DAYS)}.")
        if not _NAME.fullmatch(name) or name == "last":
            raise UsageError(f"'{name[:80]}' cannot be a checkpoint's name. Use letters, digits, '.', '_' and '-', and not 'last'.")
        if any(one.name == name for one in found):
            raise UsageError(f"There is a checkpoint '{name}' already. Choose another name, or drop that one.")
        one = Checkpoint(name=name, kind=kind, commit=commit, at_ns=at_ns)
        self._save([*found, one])
        return one

    def drop(self, name: str) -> None:
        """Delete a checkpoint.

        Raises:
            UsageError: There is no such checkpoint.
        """
        with self._mutex:
            found = self.all()
            rest = [one for one in found if one.name != name]
            if len(rest) == len(found):
                raise UsageError(f"There is no checkpoint '{name[:80]}'. There are: {', '.join(one.name for one in found) or 'none'}.")
            self._save(rest)

    def _save(self, all_of_them: list[Checkpoint]) -> None:
        self._objects.replace(_FILE, msgspec.json.encode(all_of_them), sync=True)

    def prune(self, changes: Sequence[Change], now_ns: int, *, keep_days: float) -> int:
        """Delete old changes and expired checkpoints; return how many changes were deleted.

        Args:
            changes: All changes, newest first.
            keep_days: The age in days up to which a change is kept even if no checkpoint needs it.
        """
        kept = [one for one in self.all() if not _is_over(one, now_ns)]
        needed = {one.commit for one in kept}
        young = sum(now_ns - change.at_ns <= keep_days * _DAY_NS for change in changes)
        last = max((place + 1 for place, change in enumerate(changes) if change.commit in needed), default=0)
        stay = len(changes) if "" in needed else max(young, last)
        self._save(kept)
        gone = len(changes) - stay
        if gone > 0:
            keep_only(self._objects, [change.commit for change in changes[:stay]])
        return max(0, gone)


def _is_over(one: Checkpoint, now_ns: int) -> bool:
    days = KEPT_DAYS[one.kind]
    return days is not None and now_ns - one.at_ns > days * _DAY_NS
