"""The inbox of a journal: rows that any process may add, and that the holder of a run folds into its record, each once.

Outside the chain and outside the leases, because whoever writes here holds nothing: an answer to a question, a stop, a kill. A row for a
run that nobody holds waits for whoever holds it next. Knows no database and no engine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from callgate._journal.leases import Ask
from callgate.protocols import Letter

__all__ = ["ADD_LETTER", "FATE", "LetterBox"]

_MOST_AT_ONCE: Final = 1_024
ADD_LETTER: Final = "INSERT INTO inbox (run, kind, target, actor, reason, at_ns, folded) VALUES (?, ?, ?, ?, ?, ?, 0) RETURNING id"
FATE: Final = "SELECT folded FROM inbox WHERE id = ?"
_WAITING: Final = """
    SELECT inbox.id, inbox.run, inbox.kind, inbox.target, inbox.actor, inbox.reason, inbox.at_ns
    FROM inbox JOIN leases ON leases.run = inbox.run
    WHERE inbox.folded = 0 AND leases.holder = ? ORDER BY CASE inbox.kind WHEN 'kill' THEN 0 WHEN 'stop' THEN 1 ELSE 2 END, inbox.id LIMIT ?
"""
"""A kill comes first, however many rows were there before it."""
_QUESTION: Final = "SELECT coalesce(max(position), 0) FROM events WHERE call = ? AND call <> '' AND kind = 'call.suspended'"
_LATEST: Final = "SELECT coalesce(max(position), 0) FROM events WHERE run = ?"
_FOLDED: Final = "UPDATE inbox SET folded = ? WHERE id = ? AND folded = 0"


class LetterBox:
    """What one opened journal has seen of the inbox; used by its writing thread."""

    def __init__(self, holder: int) -> None:
        self._holder = holder
        self._handed_out: dict[int, str] = {}
        """The run of each row that is on its way into the record."""
        self.more = False
        """Whether there were more rows than were handed out at once."""

    def look(self, ask: Ask) -> list[Letter]:
        """What has come for the runs that are held, and was not handed out yet; not more than can be taken in at once."""
        rows = ask(_WAITING, (self._holder, _MOST_AT_ONCE + len(self._handed_out)))
        new = [row for row in rows if row[0] not in self._handed_out]
        self.more = len(new) >= _MOST_AT_ONCE
        latest: dict[str, int] = {}
        letters = [_letter(ask, row, latest) for row in new[:_MOST_AT_ONCE]]
        self._handed_out.update((letter.id, letter.run) for letter in letters)
        return letters

    def forget(self, runs: Iterable[str]) -> None:
        """Hand out again what has come for runs that are held anew."""
        for run in runs:
            for id in [id for id, of_run in self._handed_out.items() if of_run == run]:
                del self._handed_out[id]

    def fold(self, ask: Ask, positions: Mapping[int, int]) -> None:
        """Mark rows as folded in, each by the event at a position; inside that event's commit."""
        for id, position in positions.items():
            ask(_FOLDED, (position, id))
            self._handed_out.pop(id, None)


def _letter(ask: Ask, row: tuple[Any, ...], latest: dict[str, int]) -> Letter:
    id, run, kind, target, actor, reason, at_ns = row
    if kind in ("approve", "deny"):
        ((cause,),) = ask(_QUESTION, (target,))
    elif (cause := latest.get(run)) is None:
        ((cause,),) = ask(_LATEST, (run,))
        latest[run] = cause
    return Letter(id=id, run=run, kind=kind, target=target, actor=actor, reason=reason, at_ns=at_ns, cause=int(cause))
