"""The events of a journal in memory: in order, limited in number, and indexed by run and by call.

Above `most` events the oldest are dropped, and `forgotten` counts them. Each event is indexed at the next read. Writing is therefore cheap,
and reading a run does not scan other runs' events. The latest claim of each key of an effect is kept when its event is dropped, because
without it a second call with the key would start.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from itertools import islice

from callgate.event_queries import FACT_KINDS, CallFacts, EventQuery, facts_of, merged, select
from callgate.events import Draft, Event

__all__ = ["MemoryEvents"]


class MemoryEvents:
    """Events by position.

    Args:
        most: How many events are kept at most.
        lock: Acquired while events are read or dropped.
    """

    def __init__(self, most: int, lock: threading.RLock) -> None:
        self.rows: list[tuple[Draft, int, float, int]] = []
        """Each event as it was written: the draft, the time in UTC nanoseconds, the time in monotonic seconds, and the epoch."""
        self._most = most
        self.full = most
        """The position above which the oldest events are dropped."""
        self.last = 0
        """The position of the last event."""
        self._seqs: list[int] = []
        """The number of each indexed event in its run."""
        self._counts: dict[str, int] = {}
        """How many events each run has had."""
        self._by_run: dict[str, list[int]] = {}
        """The positions of the indexed events of each run."""
        self._by_call: dict[str, list[int]] = {}
        self._claims: dict[str, Event] = {}
        """The latest dropped claim of each key of an effect, by the run of the key."""
        self._facts: dict[str, CallFacts] = {}
        """The facts of each call according to the events up to `_facts_to`."""
        self._facts_to = 0
        self._lock = lock
        self.forgotten = 0
        """How many of the oldest events were dropped."""

    def append(self, draft: Draft, at_ns: int, mono: float, epoch: int) -> int:
        """Add the event and return its position."""
        self.rows.append((draft, at_ns, mono, epoch))
        self.last = position = self.last + 1
        if position > self.full:
            self.forget()
        return position

    def forget(self) -> None:
        """Drop the oldest quarter of the events, so that dropping is rare."""
        surplus = self._most // 4
        with self._lock:
            self._index(surplus)
            gone = [row[0] for row in islice(self.rows, surplus)]
            first = self.forgotten + 1
            self._claims.update({draft.run: self._event(first + n) for n, draft in enumerate(gone) if draft.kind == "effect.claimed"})
            _drop_first(self._by_run, Counter(draft.run for draft in gone))
            _drop_first(self._by_call, Counter(draft.call for draft in gone if draft.call))
            del self.rows[:surplus], self._seqs[:surplus]
            self.forgotten += surplus
            self.full += surplus
            self._facts = {call: facts for call, facts in self._facts.items() if call in self._by_call}
            self._forget_counts()

    def _forget_counts(self) -> None:
        """Limit the counts of runs that have no event left to `most` entries."""
        surplus = len(self._counts) - len(self._by_run) - self._most
        if surplus > 0:
            for run in list(islice((run for run in self._counts if run not in self._by_run), surplus)):
                del self._counts[run]

    def _index(self, rows: int) -> None:
        """Index the events up to this row. This is done at reads and not at writes, because few events are ever read."""
        position = self.forgotten + len(self._seqs)
        for draft, _, _, _ in self.rows[len(self._seqs) : rows]:
            position += 1
            seq = self._counts[draft.run] = self._counts.get(draft.run, 0) + 1
            self._seqs.append(seq)
            self._by_run.setdefault(draft.run, []).append(position)
            if draft.call:
                self._by_call.setdefault(draft.call, []).append(position)

    def read(
        self, *, run: str | None = None, call: str | None = None, after: int = 0, limit: int | None = None, newest_first: bool = False
    ) -> list[Event]:
        """See `Journal.read`."""
        with self._lock:
            self._index(len(self.rows))
            positions = self._positions(run, call)
            positions = positions[bisect_right(positions, after) :]
            if not positions and run in self._claims and call is None and after < self._claims[run].position:
                return [self._claims[run]]
            found = (
                position
                for position in (reversed(positions) if newest_first else positions)
                if run is None or call is None or self._draft(position).run == run
            )
            return [self._event(position) for position in islice(found, limit)]

    def find(self, query: EventQuery) -> list[Event]:
        """See `Journal.find`. Only events that may match are encoded."""
        if query.caused_by is not None:
            return select(self.read(), query)
        with self._lock:
            self._index(len(self.rows))
            if query.by_call:
                self._learn_facts()
            positions = self._positions(query.run, query.call)
            ordered = reversed(positions) if query.newest_first else positions
            found = (self._event(at) for at in ordered if self._may_match(self._draft(at), query))
            return list(islice(filter(query.holds, found), query.limit))

    def _may_match(self, draft: Draft, query: EventQuery) -> bool:
        return query.is_of_kind(draft.kind) and (not query.by_call or query.is_about(self._facts.get(draft.call)))

    def _learn_facts(self) -> None:
        """Read what the events since the last time say of their calls; many queries never ask."""
        for position in range(max(self._facts_to, self.forgotten) + 1, self.last + 1):
            if self._draft(position).kind in FACT_KINDS and (facts := facts_of(event := self._event(position))) is not None:
                self._facts[event.call] = merged(self._facts.get(event.call), facts)
        self._facts_to = self.last

    def _positions(self, run: str | None, call: str | None) -> Sequence[int]:
        """Return the positions, in order: of a call's events, or else of a run's, or else of all."""
        if call is not None:
            return self._by_call.get(call, ()) if call else [at for at in self._all_positions() if not self._draft(at).call]
        return self._all_positions() if run is None else self._by_run.get(run, ())

    def _all_positions(self) -> range:
        return range(self.forgotten + 1, self.forgotten + len(self.rows) + 1)

    def _draft(self, position: int) -> Draft:
        return self.rows[position - self.forgotten - 1][0]

    def _event(self, position: int) -> Event:
        place = position - self.forgotten - 1
        draft, at_ns, mono, epoch = self.rows[place]
        return draft.sealed(position=position, seq=self._seqs[place], at_ns=at_ns, mono=mono, epoch=epoch)


def _drop_first(index: dict[str, list[int]], counts: Counter[str]) -> None:
    """Remove the first positions of each key from an index, as many as `counts` says."""
    for key, count in counts.items():
        del index[key][:count]
        if not index[key]:
            del index[key]
