"""What a memory costs and saves: searches in a tree of thousands of files, making their index, questions by words and by meaning, and calls
beside it.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench.measure import Counts, Row, wall
from callgate import Engine, RawCall, Scope, SqliteJournal, tool
from callgate._workspace import Workspace
from callgate.builtins._text_search import Search
from callgate.memory import Memory, Passage, PassageQuery, TablePassages

__all__ = ["IndexedSearch", "Near", "Recall"]

_FILES = 10_000
_PASSAGES = 100_000
_VECTORS = 10_000
_NUMBERS = 384
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def _words(count: int) -> list[str]:
    chance = random.Random(1)
    return ["".join(chance.choices(_LETTERS, k=chance.randint(3, 9))) for _ in range(count)]


class IndexedSearch:
    """`grep_files` for a word that one file has, in files of some 4 KB."""

    def __init__(self) -> None:
        self.build = Row("an index of 10,000 files is made, in the background, wall", unit="ms", note="40 MB of text, once")
        self.search = Row("a search in 10,000 files, with the index / without, wall", note="one file has the word")
        self.rows = (self.build, self.search)

    async def open(self, counts: Counts) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="callgate-bench-")
        self.root = Path(self.folder.name) / "work"
        words, chance = _words(3_000), random.Random(2)
        for number in range(min(_FILES, counts.checks * 2)):
            path = self.root / f"{number % 100:02}" / f"{number}.txt"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("\n".join(" ".join(chance.choices(words, k=10)) for _ in range(60)))
        (self.root / "07/7.txt").write_text("the needle")
        self.workspace = Workspace(str(self.root))
        self.number = 0

    async def round(self, counts: Counts) -> None:
        self.number += 1
        with Memory(Path(self.folder.name) / f"{self.number}.db") as memory:
            began = time.perf_counter()
            memory.index.refresh(self.workspace.root, None, lambda: False)
            self.build.samples.append((time.perf_counter() - began) * 1e3)
            without = await wall(lambda: self._search(None))
            self.search.ratio(await wall(lambda: self._search(memory)), without)

    async def _search(self, memory: Memory | None) -> None:
        index = memory.index if memory is not None else None
        search = Search(self.workspace, stopped=lambda: False, index=index)
        found = search.run("needle", ".", glob=None, regex=False, ignore_case=False, most=100)
        if found["truncated"] or len(str(found["matches"])) < 10:
            raise RuntimeError("the search that is measured finds nothing")

    async def close(self) -> None:
        self.workspace.close()
        self.folder.cleanup()


class Recall:
    """A question to many passages, and calls with and without a memory that follows."""

    def __init__(self) -> None:
        self.question = Row("a question to 100,000 passages, wall", unit="ms", note="four words, ten passages")
        self.beside = Row("a durable call with a memory / without, wall", note="one after the other, the memory's thread included")
        self.rows = (self.question, self.beside)

    async def open(self, counts: Counts) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="callgate-bench-")
        self.place = Path(self.folder.name)
        self.store = TablePassages(str(self.place / "many.db"))
        words, chance = _words(3_000), random.Random(3)
        self.words = words
        for first in range(0, min(_PASSAGES, counts.long_journal), 1_000):
            texts = [" ".join(chance.choices(words, k=25)) for _ in range(1_000)]
            passages = [Passage(origin=f"call:{first + at}", kind="call", text=text, at_ns=first + at) for at, text in enumerate(texts)]
            self.store.keep({one.origin: [one] for one in passages})
        self.number = 0

    async def round(self, counts: Counts) -> None:
        chance = random.Random(self.number)
        began = time.perf_counter()
        for _ in range(5):
            self.store.search(PassageQuery(text=" ".join(chance.choices(self.words, k=4)), principal=""))
        self.question.samples.append((time.perf_counter() - began) * 1e3 / 5)
        without = await self._calls(counts.durable, memory=False)
        self.beside.ratio(await self._calls(counts.durable, memory=True), without)

    async def _calls(self, times: int, *, memory: bool) -> float:
        """Seconds for one call."""
        self.number += 1
        kept = Memory(self.place / f"{self.number}.db") if memory else None
        async with Engine([_noop], journal=SqliteJournal(self.place / f"{self.number}.journal"), memory=kept) as engine:
            scope = Scope(run="bench")
            await engine.call(RawCall(name="noop", arguments={"number": 0}), scope)
            began = time.perf_counter()
            for number in range(times):
                await engine.call(RawCall(name="noop", arguments={"number": number}), scope)
            return (time.perf_counter() - began) / times

    async def close(self) -> None:
        self.store.close()
        self.folder.cleanup()


class Near:
    """A question by words and by meaning, to passages that have vectors."""

    def __init__(self) -> None:
        self.question = Row(
            "a question by words and by meaning to 10,000 passages, wall", unit="ms", note="vectors of 384 numbers, all compared"
        )
        self.rows = (self.question,)

    async def open(self, counts: Counts) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="callgate-bench-")
        path = Path(self.folder.name) / "near.db"
        store = TablePassages(str(path))
        self.words, chance = _words(3_000), random.Random(4)
        texts = [" ".join(chance.choices(self.words, k=25)) for _ in range(min(_VECTORS, counts.long_journal))]
        store.keep({f"note:{at}": [Passage(origin=f"note:{at}", kind="note", text=text, at_ns=at)] for at, text in enumerate(texts)})
        store.close()
        self.memory = Memory(path, embedder=_Chance())
        self.memory.embed()
        self.number = 0

    async def round(self, counts: Counts) -> None:
        self.number += 1
        chance = random.Random(self.number)
        began = time.perf_counter()
        for _ in range(5):
            self.memory.search(PassageQuery(text=" ".join(chance.choices(self.words, k=4)), principal=""))
        self.question.samples.append((time.perf_counter() - began) * 1e3 / 5)

    async def close(self) -> None:
        self.memory.close_sync()
        self.folder.cleanup()


class _Chance:
    """An embedder that costs nothing: any direction for any text."""

    name = "chance"
    dimension = _NUMBERS

    def __call__(self, texts: Sequence[str], /) -> list[list[float]]:
        return [[chance.gauss(0, 1) for _ in range(_NUMBERS)] for chance in map(random.Random, texts)]


@tool(name="noop", effect="idempotent")
async def _noop(number: int) -> int:
    """Do nothing."""
    return number
