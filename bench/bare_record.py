"""The floor of what is on disk: the same rows in the same tables, in as many commits, without engine, queue and threads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path

from msgspec import structs

from callgate._journal.event_rows import GENESIS, chain
from callgate._journal.open_sqlite import open_file
from callgate._journal.sqlite_rows import insert
from callgate.events import Event

__all__ = ["BareRecord"]


class BareRecord:
    """A file to which the events of a sample are written again and again.

    Args:
        path: Of the file.
        sample: What one round of the loop writes, in order.
    """

    def __init__(self, path: Path, sample: Sequence[Event]) -> None:
        self._opened = open_file(path, "full")
        self._connection = self._opened.writing
        self._connection.wal_autocheckpoint(1_000)  # as SQLite does by itself
        self._sample = sample
        self._last = structs.replace(sample[0], position=0, hash=GENESIS)

    def write(self, rounds: int, *, commits: Iterable[int]) -> None:
        """Write the sample so many times, each time in commits of so many events each."""
        sizes = tuple(commits)
        for _ in range(rounds):
            call = f"bare/0/{self._last.position}"
            events = iter(self._sample)
            for size in sizes:
                self.commit([(call, event) for event in islice(events, size)])

    def commit(self, events: Iterable[tuple[str, Event]]) -> None:
        """Make one commit of events of the sample, each for a call."""
        with self._connection:
            insert(self._connection, [self._next(event, call) for call, event in events])

    def _next(self, event: Event, call: str) -> Event:
        position = self._last.position + 1
        parents = (position - 1,) if event.parents else ()
        placed = structs.replace(event, run="bare", call=call if event.call else "")
        self._last = chain(placed, self._last.hash, epoch=0, position=position, seq=position, parents=parents)
        return self._last

    def close(self) -> None:
        for connection in (self._opened.beside, self._opened.reading, self._connection):
            connection.close()
        self._opened.lock.close()
