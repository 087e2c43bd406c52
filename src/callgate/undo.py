"""Undo what tools have written. A change is restored exactly, or refused with the reason.

Pass an `UndoStore` to an engine to store what its calls change. `UndoHistory` lists the changes in one workspace, and
undoes, redoes and prunes them. The implementation is in `_undo`.
"""

from __future__ import annotations

from callgate._undo.change_capture import UndoLimits
from callgate._undo.checkpoints import Checkpoint
from callgate._undo.patch_text import UndoDiff
from callgate._undo.path_state import State
from callgate._undo.stored_change import Change, ChangeSource, Gap, Step
from callgate._undo.undo_errors import Conflict, StoreDamaged, UndoFailed, UndoRefused
from callgate._undo.undo_history import UndoHistory, Undone
from callgate._undo.undo_plan import Move, UndoPlan
from callgate._undo.undo_store import UndoStore

__all__ = [
    "Change",
    "ChangeSource",
    "Checkpoint",
    "Conflict",
    "Gap",
    "Move",
    "State",
    "Step",
    "StoreDamaged",
    "UndoDiff",
    "UndoFailed",
    "UndoHistory",
    "UndoLimits",
    "UndoPlan",
    "UndoRefused",
    "UndoStore",
    "Undone",
]
