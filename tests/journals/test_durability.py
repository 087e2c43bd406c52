"""Tests of durability that count the operating system's sync calls instead of reading a setting."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import apsw
import pytest

from callgate import Engine, Limits, SqliteJournal, Tool, tool
from tests.engine_calls import call, said

Operation = tuple[str, Literal["write", "sync"]]


class Recorded(apsw.VFSFile):
    """An SQLite file that records the operations on it."""

    def __init__(self, name: str | apsw.URIFilename | None, flags: list[int], done: list[Operation]) -> None:
        path = name.filename() if isinstance(name, apsw.URIFilename) else name or ""
        self._ending = path.rpartition(".")[2]
        self._done = done
        super().__init__(_BASE, name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        self._done.append((self._ending, "write"))
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:  # noqa: N802
        super().xSync(flags)
        self._done.append((self._ending, "sync"))


class Disk(apsw.VFS):
    """An SQLite VFS that records every write and every sync."""

    def __init__(self) -> None:
        self.done: list[Operation] = []
        super().__init__("recorded", _BASE, makedefault=True)

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        return Recorded(name, flags, self.done)

    def unsynced(self) -> int:
        """Return the number of writes to the write-ahead log that are not synced yet."""
        count = 0
        for ending, operation in self.done:
            if ending == "db-wal":
                count = count + 1 if operation == "write" else 0
        return count

    def syncs(self) -> int:
        return self.done.count(("db-wal", "sync"))


_BASE = apsw.vfs_names()[0]


@pytest.fixture
def disk() -> Iterator[Disk]:
    made = Disk()
    yield made
    made.unregister()


def paying(disk: Disk, seen: list[int]) -> Tool:
    @tool(effect="once")
    async def pay(to: str) -> str:
        """Pay somebody."""
        seen.append(disk.unsynced())
        return f"paid {to}"

    return pay


async def test_intents_and_results_are_synced_to_disk_before_a_call_proceeds(disk: Disk, tmp_path: Path) -> None:
    seen: list[int] = []
    async with Engine([paying(disk, seen)], journal=SqliteJournal(tmp_path / "journal.db")) as engine:
        for number in range(3):
            before = disk.syncs()
            assert (await said(engine, call("pay", to=str(number)))).success
            assert disk.unsynced() == 0, "the result was returned before its record was on the disk"
            assert disk.syncs() >= before + 2, "one commit for the intent, one for the result"
    assert seen == [0, 0, 0], "the tool began before its intent was on the disk"


async def test_synchronous_normal_does_not_wait_for_the_disk(disk: Disk, tmp_path: Path) -> None:
    """A control for the test above: it proves that the counters detect missing syncs."""
    seen: list[int] = []
    async with Engine([paying(disk, seen)], journal=SqliteJournal(tmp_path / "journal.db", synchronous="normal")) as engine:
        before = disk.syncs()
        assert (await said(engine, call("pay", to="ann"))).success
        assert (disk.syncs(), disk.unsynced() > 0) == (before, True)


async def test_a_large_result_is_synced_to_disk_before_it_is_returned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The blob's file and the folder entry that names it are both synced."""
    synced: list[int] = []
    fsync = os.fsync

    def recorded(fd: int) -> None:
        fsync(fd)
        synced.append(os.fstat(fd).st_ino)

    monkeypatch.setattr(os, "fsync", recorded)

    @tool(effect="none")
    async def export() -> str:
        """Export much."""
        return "x" * 5_000

    async with Engine([export], journal=SqliteJournal(tmp_path / "journal.db"), limits=Limits(content_bytes=512)) as engine:
        digest = (await said(engine, call("export"))).metadata.blob
        told = list(synced)
    assert digest is not None
    (kept,) = (path for path in (tmp_path / "journal.db.blobs").rglob("*") if path.is_file() and path.stat().st_size == 5_000)
    assert {kept.stat().st_ino, kept.parent.stat().st_ino} <= set(told)
