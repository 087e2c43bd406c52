"""What the record costs beyond memory: the hash chain, redaction, the disk."""

from __future__ import annotations

import asyncio
import tempfile
import time
from itertools import islice
from pathlib import Path
from statistics import median

from msgspec import structs
from msgspec.structs import asdict

from bench.calls import RULES, raws_of, serial
from bench.floor import TEXT, floor_serial, no_op
from bench.measure import Counts, Row, cpu, wall
from callgate import Engine, RawCall, Rules, SqliteJournal, tool
from callgate._journal.rows import GENESIS, chain
from callgate._journal.sqlite import _insert, _prepared
from callgate.events import Event

__all__ = ["Chain", "Disk", "Redaction"]


class Chain:
    """SHA-256 over the events of one small call."""

    def __init__(self) -> None:
        self.row = Row("hash chain over a small call's 4 events / floor")
        self.rows = (self.row,)

    async def open(self, counts: Counts) -> None:
        async with Engine([tool(effect="none")(no_op)], run="bench") as engine:
            await engine.call(RawCall(name="no_op", arguments=TEXT))
            self.events = list(engine.journal.read())

    async def round(self, counts: Counts) -> None:
        floor = await cpu(lambda: floor_serial(counts.calls), counts.calls)
        self.row.ratio(await cpu(lambda: _chained(self.events, counts.calls), counts.calls), floor)

    async def close(self) -> None: ...


async def _chained(events: list[Event], times: int) -> None:
    for _ in range(times):
        previous = GENESIS
        for event in events:
            previous = chain(event, previous, epoch=0, position=event.position, seq=event.seq, parents=event.parents).hash


class ThreeSecrets:
    """A redactor with three registered values, each replaced wherever it stands."""

    def __init__(self) -> None:
        self.values = tuple(f"secret-{number}-0123456789abcdef".encode() for number in range(3))

    def redact(self, body: bytes) -> bytes:
        for value in self.values:
            body = body.replace(value, b"[redacted]")
        return body


class Redaction:
    """What a redactor adds to a small call: every body is encoded at once and searched, and so is the result."""

    def __init__(self) -> None:
        self.row = Row("redaction of a small call, 3 registered values / floor", note="a call with a redactor minus one without")
        self.rows = (self.row,)

    async def open(self, counts: Counts) -> None:
        made = [tool(effect="none")(no_op)]
        self.plain, self.redacted = Engine(made, run="bench"), Engine(made, run="bench", redactor=ThreeSecrets())
        self.raws = raws_of("no_op", counts.calls)

    async def round(self, counts: Counts) -> None:
        floor = await cpu(lambda: floor_serial(counts.calls), counts.calls)
        plain = await cpu(lambda: serial(self.plain, self.raws), counts.calls)
        redacted = await cpu(lambda: serial(self.redacted, self.raws), counts.calls)
        self.row.ratio(max(redacted - plain, 0.0), floor)

    async def close(self) -> None:
        await self.plain.close()
        await self.redacted.close()


_SAME = "two: the intent before it starts, and the result"


class Disk:
    """Calls with an effect in an SQLite record: the intent and the result are on disk before the next step."""

    def __init__(self) -> None:
        self.lone = Row("a durable call / a bare loop making the same commits, wall", most=1.3, note=_SAME)
        self.many = Row(
            "64 durable calls at once / one bare commit for each, wall", most=1 / 15, note="one message, no two touch the same thing"
        )
        self.each = Row("the median of 64 durable calls at once / a lone one, wall", most=2.5)
        self.rows = (self.lone, self.many, self.each)

    async def open(self, counts: Counts) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="callgate-bench-")
        made = tool(effect="once", writes="city:{city}")(no_op)
        journal = SqliteJournal(Path(self.folder.name) / "journal.db")
        self.engine = Engine([made], policies=(Rules.parse(RULES),), journal=journal, run="bench")
        self.fresh = 0
        await serial(self.engine, [self._raw()])
        self.events = list(journal.read())
        self.bare = _prepared(Path(self.folder.name) / "bare.db", "full")
        self.written = Event(**{**asdict(self.events[0]), "position": 0, "hash": GENESIS})
        await self._commits(1, by=(3, 1))

    async def round(self, counts: Counts) -> None:
        """The floor is made of the same rows in the same tables, without engine, queue and threads."""
        twice = await wall(lambda: self._commits(counts.durable, by=(3, 1))) / counts.durable
        lone = await wall(lambda: serial(self.engine, [self._raw() for _ in range(counts.durable)])) / counts.durable
        self.lone.ratio(lone, twice)
        together = [self._raw() for _ in range(counts.threads)]
        once = await wall(lambda: self._commits(counts.durable, by=(4,))) / counts.durable
        self.many.ratio(await wall(lambda: self.engine.call_many(together)) / counts.threads, once)
        self.each.ratio(await self._median_of_many(counts.threads), lone)

    async def _median_of_many(self, count: int) -> float:
        """What one of so many callers waits for its own call."""

        async def timed(raw: RawCall) -> float:
            began = time.perf_counter()
            await self.engine.call(raw)
            return time.perf_counter() - began

        return median(await asyncio.gather(*(timed(self._raw()) for _ in range(count))))

    def _raw(self) -> RawCall:
        self.fresh += 1
        return RawCall(name="no_op", arguments=TEXT.replace("Hamburg", f"city {self.fresh}"), id=f"call_{self.fresh}")

    async def _commits(self, count: int, *, by: tuple[int, ...]) -> None:
        """So many calls' four events, in commits of so many events each."""
        for _ in range(count):
            call = f"bare/0/{self.written.position}"
            events = iter(self.events)
            for size in by:
                with self.bare:
                    _insert(self.bare, [self._next(event, call) for event in islice(events, size)])

    def _next(self, event: Event, call: str) -> Event:
        position = self.written.position + 1
        parents = (position - 1,) if event.parents else ()
        placed = structs.replace(event, run="bare", call=call)
        self.written = chain(placed, self.written.hash, epoch=0, position=position, seq=position, parents=parents)
        return self.written

    async def close(self) -> None:
        await self.engine.close()
        self.bare.close()
        self.folder.cleanup()
