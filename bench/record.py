"""What the record costs beyond memory, but for the disk: the hash chain, redaction."""

from __future__ import annotations

from bench.calls import raws_of, serial
from bench.floor import TEXT, floor_serial, no_op
from bench.measure import Counts, Row, cpu
from callgate import Engine, RawCall, tool
from callgate._journal.event_rows import GENESIS, chain
from callgate.events import Event

__all__ = ["Chain", "Redaction"]


class Chain:
    """SHA-256 over the events of one small call."""

    def __init__(self) -> None:
        self.row = Row("hash chain over a small call's 3 events / floor")
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
