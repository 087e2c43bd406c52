"""Undo what tools wrote: exactly, or not at all and saying why.

`Shadows` goes into an engine and keeps what its calls change; `Shadow` is one workspace's changes, to look at, undo, redo and prune. The
door; the work is done in `_undo`.
"""

from __future__ import annotations

from callgate._undo.changes import Call, Change, Gap, Step
from callgate._undo.checkpoints import Checkpoint
from callgate._undo.difference import Difference
from callgate._undo.keeping import UndoLimits
from callgate._undo.plan import Move, Plan
from callgate._undo.refusals import Conflict, StoreDamaged, UndoFailed, UndoRefused
from callgate._undo.shadow import Shadow, Undone
from callgate._undo.shadows import Shadows
from callgate._undo.state import State

__all__ = [
    "Call",
    "Change",
    "Checkpoint",
    "Conflict",
    "Difference",
    "Gap",
    "Move",
    "Plan",
    "Shadow",
    "Shadows",
    "State",
    "Step",
    "StoreDamaged",
    "UndoFailed",
    "UndoLimits",
    "UndoRefused",
    "Undone",
]
