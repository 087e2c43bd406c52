"""What the record costs beyond memory: the hash chain, redaction, the disk."""

from __future__ import annotations

import tempfile
from pathlib import Path

import apsw

from bench.calls import RULES, raws_of, serial
from bench.floor import TEXT, floor_serial, no_op
from bench.measure import Counts, Row, cpu, wall
from callgate import Engine, RawCall, Rules, SqliteJournal, tool
from callgate._journal.rows import GENESIS, chain
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
            previous = chain(event, previous).hash


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


class Disk:
    """Calls with an effect in an SQLite record: the intent and the result are on disk before the next step."""

    def __init__(self) -> None:
        self.lone = Row("a durable call / a raw SQLite commit, wall", note="two commits: the intent before it starts, the result")
        self.many = Row("64 durable calls at once / a raw SQLite commit, wall", note="one emission, no two touch the same thing")
        self.rows = (self.lone, self.many)

    async def open(self, counts: Counts) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="callgate-bench-")
        made = tool(effect="once", writes="city:{city}")(no_op)
        journal = SqliteJournal(Path(self.folder.name) / "journal.db")
        self.engine = Engine([made], policies=(Rules.parse(RULES),), journal=journal, run="bench")
        self.probe = apsw.Connection(str(Path(self.folder.name) / "probe.db"))
        for statement in ("PRAGMA journal_mode=WAL", "PRAGMA synchronous=FULL", "CREATE TABLE rows (body BLOB)"):
            self.probe.execute(statement).fetchall()
        self.fresh = 0

    async def round(self, counts: Counts) -> None:
        commit = await wall(lambda: self._commits(counts.durable)) / counts.durable
        raws = [self._raw() for _ in range(counts.durable)]
        self.lone.ratio(await wall(lambda: serial(self.engine, raws)) / counts.durable, commit)
        together = [self._raw() for _ in range(counts.threads)]
        self.many.ratio(await wall(lambda: self.engine.call_many(together)), commit)

    def _raw(self) -> RawCall:
        self.fresh += 1
        return RawCall(name="no_op", arguments=TEXT.replace("Hamburg", f"city {self.fresh}"), id=f"call_{self.fresh}")

    async def _commits(self, count: int) -> None:
        for _ in range(count):
            with self.probe:
                self.probe.execute("INSERT INTO rows VALUES (?)", (b"x" * 250,))

    async def close(self) -> None:
        await self.engine.close()
        self.probe.close()
        self.folder.cleanup()
