"""What keeping a call's files costs: one file in a tree of thousands, and a look at the whole tree."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

from bench.measure import Counts, Row, wall
from callgate.undo import ChangeSource, UndoHistory

__all__ = ["UndoCosts"]

_FILES = 10_000
_TREES = 3


class UndoCosts:
    """The two looks around a writing call, without the call."""

    def __init__(self) -> None:
        self.one = Row("undo: keep 1 file of 10,000 / a raw write and fsync, wall", note="old content on disk, then one commit")
        self.tree = Row("undo: two looks at 10,000 files / a stat of each, wall", note="for a call that does not say what it writes")
        self.first = Row("undo: the first look at 10,000 files / reading each, wall", note="a store of its own each time; content on disk")
        self.once = Row("the same, alone", unit="ms", most=5)
        self.rows = (self.one, self.once, self.tree, self.first)

    async def open(self, counts: Counts) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="callgate-bench-")
        self.root = Path(self.folder.name) / "work"
        self.files = min(_FILES, counts.checks * 2)
        for number in range(self.files):
            path = self.root / f"{number % 100:02}" / f"{number}.txt"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(str(number))
        self.undo_history = UndoHistory(self.root, place=Path(self.folder.name) / "kept")
        self.probe = os.open(Path(self.folder.name) / "probe", os.O_CREAT | os.O_WRONLY)
        self.number = 0
        self.stores = 0
        await self._keep(1, None)

    async def round(self, counts: Counts) -> None:
        raw = await wall(lambda: self._raw(counts.durable)) / counts.durable
        kept = await wall(lambda: self._keep(counts.durable, ["07/7.txt"])) / counts.durable
        self.one.ratio(kept, raw)
        self.once.samples.append(kept * 1e3)
        stats = await wall(self._stat)
        self.tree.ratio(await wall(lambda: self._keep(_TREES, None)) / _TREES, stats)
        self.first.ratio(await wall(self._look_first), await wall(self._read))

    async def _look_first(self) -> None:
        self.stores += 1
        capture = UndoHistory(self.root, place=Path(self.folder.name) / f"first{self.stores}").capture
        capture.finish(capture.begin(ChangeSource(uid="bench/1/0", run="bench"), None))

    async def _read(self) -> None:
        for folder, _, names in os.walk(self.root):
            for name in names:
                _read(f"{folder}/{name}")

    async def _keep(self, times: int, keys: Iterable[str] | None) -> None:
        capture = self.undo_history.capture
        for _ in range(times):
            self.number += 1
            opened = capture.begin(ChangeSource(uid=f"bench/0/{self.number}", run="bench"), keys)
            (self.root / "07/7.txt").write_text(f"new {self.number}")
            capture.finish(opened)

    async def _raw(self, times: int) -> None:
        for _ in range(times):
            os.write(self.probe, b"x" * 400)
            os.fsync(self.probe)

    async def _stat(self) -> None:
        for folder, _, names in os.walk(self.root):
            for name in names:
                os.stat(f"{folder}/{name}")

    async def close(self) -> None:
        os.close(self.probe)
        self.folder.cleanup()


def _read(path: str) -> None:
    with open(path, "rb") as file:
        file.read()
