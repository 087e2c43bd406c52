"""Give events positions at once, and correct them when a batch is written.

Several engines may write one journal. `append` has to give a position without asking anybody, so what it gives is a `ProvisionalPosition`:
where the event will stand unless somebody else writes first. Whoever writes the batch knows the journal's true end, and `EventPositions`
remembers by how much each stretch of positions was moved; causes that were named by a provisional position are put right as they are
written. A position that was read is a plain number and is never moved. Knows no store.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from callgate._journal.event_rows import GENESIS, chain
from callgate.events import Event

__all__ = ["EventPositions", "JournalEnd", "PlacedEvents", "ProvisionalPosition"]

_MOST_MOVES: Final = 262_144
"""Ranges of positions whose move is remembered; a cause from before them is no longer named."""


class ProvisionalPosition(int):
    """A position as `append` gave it, before the event was written. Only the journal that gave it knows where the event stands."""

    __slots__ = ()


class JournalEnd(Struct, frozen=True):
    """The last event of a stored journal."""

    position: int = 0
    hash: str = GENESIS


class PlacedEvents(Struct, frozen=True):
    """A batch with its final positions."""

    events: list[Event]
    tail: JournalEnd
    left_out: list[Event]
    """Events of runs that another engine has taken."""


class EventPositions:
    """The journal's end as it was last seen, and the final position of each provisional one."""

    def __init__(self, tail: JournalEnd, epoch: int) -> None:
        self.tail = tail
        self._epoch = epoch
        self._seqs: dict[str, int] = {}
        self._moves = array("q"), array("q")
        """From which provisional position on, and by how much."""
        self._first = 0
        """The first provisional position whose move is known."""

    def of(self, position: int) -> int:
        """Return the position of an event, or where it will stand if nobody else writes first; 0 where that is no longer known."""
        starts, moves = self._moves
        if type(position) is not ProvisionalPosition or not starts:
            return int(position)
        if position < self._first:
            return 0
        found = bisect_right(starts, position) - 1
        return position + moves[found] if found >= 0 else int(position)

    def shown(self, event: Event) -> Event:
        """Return a pending event with the positions that it would have now."""
        return replace(event, position=self.of(ProvisionalPosition(event.position)), parents=self._causes(event))

    def place(
        self, batch: Iterable[Event], tail: JournalEnd, epochs: Mapping[str, int | None], last_seq: Callable[[str], int]
    ) -> PlacedEvents:
        """Chain a batch to the journal's end.

        Args:
            tail: The end of the journal in this commit.
            epochs: The epoch in which each run is written; None: another engine has taken the run.
            last_seq: The number of a run's last stored event.
        """
        if tail.hash != self.tail.hash:
            self._seqs.clear()  # others have written: what was known of runs may not be so any more
        events: list[Event] = []
        left_out: list[Event] = []
        for event in batch:
            epoch = epochs.get(event.run, self._epoch)
            if epoch is not self._epoch and not event.leased:
                epoch = self._epoch  # a note, which anybody may leave
            if epoch is None:
                left_out.append(event)
                continue
            provisional, position = event.position, tail.position + 1
            self._moved(provisional, position - provisional)
            seq = self._seqs.get(event.run) or last_seq(event.run)
            self._seqs[event.run] = seq = seq + 1
            event = chain(event, tail.hash, epoch=epoch, position=position, seq=seq, parents=self._causes(event))
            tail = JournalEnd(position, event.hash)
            events.append(event)
        return PlacedEvents(events, tail, left_out)

    def _causes(self, event: Event) -> tuple[int, ...]:
        if not self._moves[0]:
            return tuple(map(int, event.parents))
        return tuple(at for at in map(self.of, event.parents) if at)

    def _moved(self, provisional: int, by: int) -> None:
        starts, moves = self._moves
        if by == (moves[-1] if moves else 0):
            return
        moves.append(by)
        starts.append(provisional)
        if len(starts) > _MOST_MOVES:
            half = _MOST_MOVES // 2
            self._first, self._moves = starts[half], (starts[half:], moves[half:])
