"""What the record costs on disk: on this machine's, and on one whose syncs take their time."""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path
from statistics import median

import apsw

from bench.bare_record import BareRecord
from bench.calls import RULES, serial
from bench.floor import TEXT, no_op
from bench.measure import Counts, Row, wall
from callgate import Engine, RawCall, Rules, SqliteJournal, tool

__all__ = ["Disk", "SlowDisk"]

_UNDERNEATH = "unix"
_SLOW_S = 0.003
"""About what a disk takes that keeps its word: one without a cache that outlives the power."""


class _SlowFile(apsw.VFSFile):
    """A file whose syncs take longer by `_SLOW_S`."""

    def xSync(self, flags: int) -> None:  # noqa: N802
        super().xSync(flags)
        time.sleep(_SLOW_S)


class _SlowFiles(apsw.VFS):
    def __init__(self) -> None:
        super().__init__("slow", _UNDERNEATH)

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        return _SlowFile(_UNDERNEATH, name, flags)


_SAME = "two: the intent before it starts, and the result"


class Disk:
    """Calls with an effect in an SQLite record: the intent and the result are on disk before the next step."""

    where = ""

    def __init__(self) -> None:
        self.lone = Row(f"a durable call / a bare loop making the same commits{self.where}, wall", most=1.5, note=_SAME)
        self.many = Row(
            f"64 durable calls at once / one bare commit for each{self.where}, wall",
            most=1 / 15,
            note="one message, no two touch the same thing",
        )
        self.each = Row(f"the median of 64 durable calls at once / a lone one{self.where}, wall", most=2.5)
        self.rows = (self.lone, self.many, self.each)

    async def open(self, counts: Counts) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="callgate-bench-")
        made = tool(effect="once", writes="city:{city}")(no_op)
        journal = SqliteJournal(Path(self.folder.name) / "journal.db")
        self.engine = Engine([made], policies=(Rules.parse(RULES),), journal=journal, run="bench")
        self.fresh = 0
        await serial(self.engine, [self._raw()])
        self.bare = BareRecord(Path(self.folder.name) / "bare.db", list(journal.read()))
        self.bare.write(1, commits=(2, 1))

    async def round(self, counts: Counts) -> None:
        """The floor is made of the same rows in the same tables, without engine, queue and threads."""
        twice = self._floor(counts.durable, (2, 1))
        lone = await wall(lambda: serial(self.engine, [self._raw() for _ in range(counts.durable)])) / counts.durable
        self.lone.ratio(lone, twice)
        together = [self._raw() for _ in range(counts.threads)]
        once = self._floor(counts.durable, (3,))
        self.many.ratio(await wall(lambda: self.engine.call_many(together)) / counts.threads, once)
        self.each.ratio(await self._median_of_many(counts.threads), lone)

    def _floor(self, calls: int, commits: tuple[int, ...]) -> float:
        began = time.perf_counter()
        self.bare.write(calls, commits=commits)
        return (time.perf_counter() - began) / calls

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

    async def close(self) -> None:
        await self.engine.close()
        self.bare.close()
        self.folder.cleanup()


class SlowDisk(Disk):
    """The same with both sides on a disk that takes 3 ms longer to say that it has a commit."""

    where = f", each sync {_SLOW_S * 1e3:.0f} ms longer"

    async def open(self, counts: Counts) -> None:
        self.files = _SlowFiles()
        apsw.set_default_vfs("slow")  # for what is opened now
        try:
            await super().open(counts)
        finally:
            apsw.set_default_vfs(_UNDERNEATH)
