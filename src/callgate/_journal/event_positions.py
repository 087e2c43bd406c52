"""Assign provisional positions to events, and correct them when a batch is written.

Several engines may write one journal. `append` must return a position without waiting, so it returns a `ProvisionalPosition`: the event's
position unless another engine writes first. The commit knows the journal's true end, and `EventPositions` remembers by how much each range
of positions was moved. An event's parents that are provisional positions are corrected when the event is written. A position that was read
from a journal is a plain number and never changes. Knows no store.
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
"""How many ranges of positions are remembered. A parent that is older than all of them is left out."""


class ProvisionalPosition(int):
    """A position that `append` returned before the event was written.

    Only the journal that returned it can convert it to the final position.
    """

    __slots__ = ()


class JournalEnd(Struct, frozen=True):
    """The position and the hash of the last event of a stored journal."""

    position: int = 0
    hash: str = GENESIS


class PlacedEvents(Struct, frozen=True):
    """A batch with its final positions."""

    events: list[Event]
    tail: JournalEnd
    left_out: list[Event]
    """Events of runs that another engine has taken."""


class EventPositions:
    """The last known end of the journal, and the final position of each provisional one.

    Args:
        epoch: The journal's writer number, which is the epoch of events that need no lease.
    """

    def __init__(self, tail: JournalEnd, epoch: int) -> None:
        self.tail = tail
        self._epoch = epoch
        self._seqs: dict[str, int] = {}
        self._moves = array("q"), array("q")
        """Two arrays: the first provisional position of each range, and by how much the range was moved."""
        self._first = 0
        """The first provisional position whose move is still known."""

    def final(self, position: int) -> int:
        """Return the event's final position, as far as it is known.

        For a pending event, this is the position if no other engine writes first. 0: the final position is not known any more.
        """
        starts, moves = self._moves
        if type(position) is not ProvisionalPosition or not starts:
            return int(position)
        if position < self._first:
            return 0
        found = bisect_right(starts, position) - 1
        return position + moves[found] if found >= 0 else int(position)

    def with_current_positions(self, event: Event) -> Event:
        """Return a pending event with the positions that it would get now."""
        return replace(event, position=self.final(ProvisionalPosition(event.position)), parents=self._parents_of(event))

    def place(
        self, batch: Iterable[Event], tail: JournalEnd, epochs: Mapping[str, int | None], last_seq: Callable[[str], int]
    ) -> PlacedEvents:
        """Assign final positions to a batch and chain it to the journal's end.

        Args:
            tail: The end of the journal in this commit.
            epochs: The epoch of each run's lease; None: another engine has taken the run.
            last_seq: Return the number of a run's last stored event.
        """
        if tail.hash != self.tail.hash:
            self._seqs.clear()  # other engines have written: the remembered numbers may be outdated
        events: list[Event] = []
        left_out: list[Event] = []
        for event in batch:
            epoch = epochs.get(event.run, self._epoch)
            if epoch is not self._epoch and not event.leased:
                epoch = self._epoch  # an event that needs no lease
            if epoch is None:
                left_out.append(event)
                continue
            provisional, position = event.position, tail.position + 1
            self._record_move(provisional, position - provisional)
            seq = self._seqs.get(event.run) or last_seq(event.run)
            self._seqs[event.run] = seq = seq + 1
            event = chain(event, tail.hash, epoch=epoch, position=position, seq=seq, parents=self._parents_of(event))
            tail = JournalEnd(position, event.hash)
            events.append(event)
        return PlacedEvents(events, tail, left_out)

    def _parents_of(self, event: Event) -> tuple[int, ...]:
        if not self._moves[0]:
            return tuple(map(int, event.parents))
        return tuple(at for at in map(self.final, event.parents) if at)

    def _record_move(self, provisional: int, by: int) -> None:
        starts, moves = self._moves
        if by == (moves[-1] if moves else 0):
            return
        moves.append(by)
        starts.append(provisional)
        if len(starts) > _MOST_MOVES:
            half = _MOST_MOVES // 2
            self._first, self._moves = starts[half], (starts[half:], moves[half:])
