"""What a long journal costs: opening it, checking its end, reading a page of a run."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from bench.measure import Counts, Row
from callgate import EventQuery, SqliteJournal
from callgate._clock import SystemClock
from callgate.events import Draft

__all__ = ["LongJournal"]

_RUNS = 1_000
_TAIL = 10_000
_PAGE = 100
_TOGETHER = 20_000


class LongJournal:
    """A file with a million events in a thousand runs, which take turns."""

    def __init__(self) -> None:
        self.opened = Row(
            "a long journal is opened and its last 10,000 events verify, wall", unit="ms", most=1_000, note="a million events"
        )
        self.page = Row("a page of any run of it, the slowest of 20, wall", unit="ms", most=100, note="100 events")
        self.tool = Row("a page of a rare tool's calls in it, wall", unit="ms", note="one call in ten thousand")
        self.rows = (self.opened, self.page, self.tool)

    async def open(self, counts: Counts) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="callgate-bench-")
        self.path = Path(self.folder.name) / "journal.db"
        journal = SqliteJournal(self.path, synchronous="normal")
        drafts = _drafts(counts.long_journal)
        while position := _append(journal, list(islice(drafts, _TOGETHER))):
            await journal.durable(position)
        await journal.close()

    async def round(self, counts: Counts) -> None:
        began = time.perf_counter()
        journal = SqliteJournal(self.path, SystemClock())
        if journal.verify(tail=min(_TAIL, counts.long_journal)) is not None:
            raise RuntimeError("the journal that is measured does not verify")
        self.opened.samples.append((time.perf_counter() - began) * 1e3)
        runs = [f"run-{number}" for number in range(0, _RUNS, _RUNS // 20)]
        self.page.samples.append(max(_ms(journal, EventQuery(run=run, after=counts.long_journal // 2, limit=_PAGE)) for run in runs))
        self.tool.samples.append(_ms(journal, EventQuery(tool="rare", limit=_PAGE)))
        await journal.close()

    async def close(self) -> None:
        self.folder.cleanup()


def _append(journal: SqliteJournal, drafts: list[Draft]) -> int:
    """The position of the last one; 0 for none."""
    return max((journal.append(draft) for draft in drafts), default=0)


def _drafts(count: int) -> Iterator[Draft]:
    """Three events a call; a thousand runs take turns."""
    for number in range(count // 3):
        run = f"run-{number % _RUNS}"
        call = f"{run}/0/{number // _RUNS}"
        name = "rare" if number % 10_000 == 7 else f"tool-{number % 50}"
        said = f'{{"id":"call_{number}","name":"{name}","arguments":"{{}}","scope":{{"actor":"a{number % 7}"}}}}'.encode()
        position = 3 * number
        yield Draft(kind="call.received", run=run, call=call, body=said)
        started = f'{{"tool":"{name}","effect":"once","verdict":"allow"}}'.encode()
        yield Draft(kind="call.started", run=run, call=call, body=started, parents=(position + 1,), attempt=1)
        yield Draft(kind="call.completed", run=run, call=call, body=b'{"status":"ok"}' + b" " * 200, parents=(position + 2,))


def _ms(journal: SqliteJournal, query: EventQuery) -> float:
    began = time.perf_counter()
    journal.find(query)
    return (time.perf_counter() - began) * 1e3
