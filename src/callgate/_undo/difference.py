"""What a move would change, for people: unified lines for text, a sentence for everything else."""

from __future__ import annotations

import difflib
from itertools import islice

from msgspec import Struct

from callgate._undo.objects import Objects
from callgate._undo.plan import Move
from callgate._undo.refusals import StoreDamaged
from callgate._undo.state import State, described

__all__ = ["Difference", "difference"]

_MOST_LINES = 2_000
_DIFFED_BYTES = 1_048_576


class Difference(Struct, frozen=True, kw_only=True):
    """One path."""

    path: str
    text: str
    """From what must be there to what would be put there."""


def difference(objects: Objects, move: Move) -> Difference:
    old, new = _lines(objects, move.expected), _lines(objects, move.target)
    facts = f"{described(move.expected)} -> {described(move.target)}"
    if old is None or new is None or not (move.expected.blob or move.target.blob):
        return Difference(path=move.path, text=facts)
    lines = difflib.unified_diff(old, new, move.path, move.path, lineterm="")
    shown = list(islice(lines, _MOST_LINES))
    return Difference(path=move.path, text="\n".join([facts, *shown, *(["…"] if len(shown) == _MOST_LINES else [])]))


def _lines(objects: Objects, state: State) -> list[str] | None:
    """The text's lines; None for what is no text, too large, or not kept."""
    if state.why or state.size > _DIFFED_BYTES:
        return None
    try:
        return objects.get(state.blob).decode().split("\n") if state.blob else []
    except (StoreDamaged, UnicodeDecodeError):
        return None
