"""Errors of undo. Each is raised before anything was changed, or after the changes were reverted as far as possible."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from callgate.errors import CallgateError

__all__ = ["Conflict", "StoreDamaged", "UndoFailed", "UndoRefused", "Why"]

Why = Literal["changed", "changed_between", "later_call", "not_kept", "interrupted", "not_empty", "unsafe", "damaged"]
_SHOWN = 20


class Conflict(Struct, frozen=True, kw_only=True):
    """One path that cannot be restored."""

    path: str
    why: Why
    text: str
    """A sentence that says what was expected, what is there, and what to do."""


class UndoRefused(CallgateError):
    """Some paths cannot be restored exactly, so nothing was changed. The user must decide what to do."""

    code = "undo_refused"

    def __init__(self, conflicts: tuple[Conflict, ...]) -> None:
        lines = [f"  {one.path}: {one.text}" for one in conflicts[:_SHOWN]]
        if len(conflicts) > _SHOWN:
            lines.append(f"  and {len(conflicts) - _SHOWN} more")
        many = f"{len(conflicts)} path{'s' if len(conflicts) != 1 else ''}"
        super().__init__("\n".join([f"Nothing was changed: {many} cannot be put back exactly.", *lines]))
        self.conflicts = conflicts


class UndoFailed(CallgateError):
    """The system refused a step of the undo. The operator must act.

    `left` names the paths that could not be reverted to their earlier state.
    """

    code = "undo_failed"

    def __init__(self, path: str, why: str, left: tuple[str, ...] = ()) -> None:
        state = f"These paths are not as they were: {', '.join(left)}." if left else "Everything is as it was before."
        super().__init__(
            f"{path} could not be put back: {why}. {state} The stored content is kept; make room or give rights, and try again."
        )
        self.path = path
        self.left = left


class StoreDamaged(CallgateError):
    """A stored object is missing or altered. The operator must act."""

    code = "undo_store_damaged"

    def __init__(self, folder: str, name: str) -> None:
        super().__init__(f"Object {name[:12]} of {folder} is missing or altered, so it was not used. Restore that folder from a backup.")
        self.name = name
