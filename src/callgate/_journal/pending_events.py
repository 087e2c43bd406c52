"""The events that a journal has accepted and not written yet, with their provisional positions, and those that were left out.

An event is settled when it was written, or left out because another engine has taken its run. Knows no threads and no store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from callgate._clock import Clock
from callgate.errors import LeaseLost
from callgate.events import Draft, Event

__all__ = ["PendingEvents"]

_MOST_LEFT_OUT = 100_000


class PendingEvents:
    """The events that wait to be written. Used under the queue's lock.

    Args:
        last: The position of the journal's last event.
        last_seq: Returns the number of a run's last stored event, 0 for none. It must not wait for long, and may return
            an older number.
    """

    def __init__(self, clock: Clock, last: int, last_seq: Callable[[str], int]) -> None:
        self._clock = clock
        self._last_seq = last_seq
        self._seq: dict[str, int] = {}
        """The number of the last event of each run."""
        self.assigned = last
        """The last provisional position that was assigned."""
        self.settled = last
        """The last provisional position that was written or left out."""
        self.events: list[Event] = []
        self.recorded_messages: dict[int, int] = {}
        """Ids of the messages that events record, by provisional position."""
        self.left_out: dict[int, LeaseLost] = {}
        """Why events were left out, by provisional position."""

    def add(self, draft: Draft) -> int:
        """Accept an event, and return its provisional position."""
        last = self._seq.get(draft.run)
        position, seq = self.assigned + 1, (self._last_seq(draft.run) if last is None else last) + 1
        event = draft.sealed(position=position, seq=seq, at_ns=self._clock.wall_ns(), mono=self._clock.monotonic())
        self.assigned, self._seq[draft.run] = position, seq  # after `sealed`: an event that cannot be encoded must not leave a gap
        self.events.append(event)
        if draft.inbox:
            self.recorded_messages[position] = draft.inbox
        return position

    def forget_seqs(self, runs: Iterable[str]) -> None:
        """Forget the numbers of the last events of runs, to which another engine may have written."""
        for run in runs:
            self._seq.pop(run, None)

    def leave_out(self, batch: Iterable[Event], lost: Mapping[str, LeaseLost]) -> None:
        """Record which events of a batch were left out, and forget the messages that the batch recorded.

        Args:
            lost: The runs whose events were left out, and why.
        """
        for event in batch:
            self.recorded_messages.pop(event.position, None)
            if event.run in lost and event.leased:
                self.left_out[event.position] = lost[event.run]
        while len(self.left_out) > _MOST_LEFT_OUT:
            del self.left_out[next(iter(self.left_out))]

    def settle(self, batch: list[Event], written: int) -> None:
        """Remove a batch, the first of the events, because each of it was written or left out.

        Args:
            written: The final position of the journal's last event.
        """
        del self.events[: len(batch)]
        self.settled = batch[-1].position
        if not self.events:  # no pending position can change now: continue from the true end
            self.assigned = self.settled = max(self.settled, written)
