"""Tests of embedders that fail: no text is lost, no call fails, and texts without a vector are found by full-text search."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import count, islice
from pathlib import Path
from typing import Any

import pytest

from callgate import Engine, MemoryJournal, UsageError
from callgate.memory import EmbedderFailed, Memory, MemoryLimits, MemoryPassages, PassageQuery
from callgate.testing import HashedEmbedder
from tests.memory.fakes import found, make
from tests.memory.faulty_embedders import Hanging, HangingAsync, Odd, Picky, Refusing, Stuck
from tests.memory.sample_notes import NOTE, PARAPHRASE, look_up, remembered, texts


@pytest.mark.parametrize("embedder", [Refusing, Hanging, HangingAsync])
async def test_an_embedder_that_fails_or_hangs_fails_no_call_and_loses_no_text(
    tmp_path: Path, embedder: Callable[[], Refusing | Hanging | HangingAsync], caplog: pytest.LogCaptureFixture
) -> None:
    """Texts without a vector are found by words. The failure is logged once for texts and once for queries, and closing is bounded."""
    made = embedder()
    limits = MemoryLimits(embed_s=0.05, embed_question_s=0.05)
    memory = Memory(tmp_path / "m.db", embedder=made, limits=limits)
    async with Engine([look_up, *memory.tools()], memory=memory, journal=MemoryJournal()) as engine:
        assert (await make(engine, "", "remember", text=NOTE)).status == "ok"
        assert (await make(engine, "", "look_up", order="A7")).status == "ok"
        assert [item["from"] for item in await found(engine, "", "reimbursed")] == ["note"]
        assert [item["from"] for item in await found(engine, "", "quito")] == ["call"]
        with pytest.raises(EmbedderFailed, match="'hashed'"):
            memory.embed()
        assert memory.status().waiting == 2
        assert "hashed" in memory.status().failure
    said = [record.message for record in caplog.records if record.levelno >= logging.ERROR]
    assert 1 <= len(said) <= 2
    assert all("embedder" in line for line in said)
    if isinstance(made, Hanging):
        made.go.set()
    if isinstance(made, HangingAsync):
        assert made.cancelled.wait(60)
    with Memory(tmp_path / "m.db", embedder=HashedEmbedder()) as again:
        assert again.embed() == 0
        assert texts(again, PARAPHRASE)[0] == NOTE


async def test_an_embedder_that_works_again_embeds_the_waiting_texts(tmp_path: Path) -> None:
    """The next call triggers it, without a request from the host."""
    embedder = Refusing()
    memory = Memory(tmp_path / "m.db", embedder=embedder)
    async with Engine([look_up, *memory.tools()], memory=memory) as engine:
        await make(engine, "", "remember", text=NOTE)
        assert await memory.settled()
        assert (memory.status().embedded, memory.status().waiting) == (0, 1)
        embedder.down = False
        await make(engine, "", "look_up", order="A7")
        assert await memory.settled()
        assert (memory.status().embedded, memory.status().waiting, memory.status().failure) == (2, 0, "")


def test_a_hanging_embedder_is_not_called_again_until_its_call_ends(tmp_path: Path) -> None:
    """At most one thread waits for the embedder, and later queries do not wait for it again."""
    embedder = Hanging()
    with Memory(tmp_path / "m.db", embedder=embedder, limits=MemoryLimits(embed_s=0.05, embed_question_s=60.0)) as memory:
        remembered(memory, NOTE)
        assert embedder.reached.wait(60)
        with pytest.raises(EmbedderFailed):
            memory.embed()
        assert texts(memory, "reimbursed") == [NOTE]  # at once, without waiting a minute
        assert "busy" in memory.status().failure
        assert embedder.asked == []
        embedder.go.set()
        while memory.status().waiting:
            try:
                memory.embed()
            except EmbedderFailed:
                continue
        assert texts(memory, PARAPHRASE) == [NOTE]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda vectors: [vector[:-1] for vector in vectors], "511 numbers"),
        (lambda vectors: [[] for _ in vectors], "0 numbers"),
        (lambda vectors: vectors[:-1], "vectors for"),
        (lambda vectors: [*vectors, vectors[0]], "vectors for"),
        (lambda vectors: None, "TypeError"),
        (lambda vectors: [["x"] for _ in vectors], "ValueError"),
        (lambda vectors: [[None] for _ in vectors], "TypeError"),
    ],
    ids=["short", "empty", "too few", "too many", "nothing", "text", "none"],
)
def test_an_invalid_vector_is_refused_with_the_reason(tmp_path: Path, change: Callable[[list[list[float]]], object], said: str) -> None:
    """The file must never contain a vector of another dimension."""
    with Memory(tmp_path / "m.db", embedder=Odd(change)) as memory:
        remembered(memory, NOTE, "another note")
        with pytest.raises(EmbedderFailed, match=said):
            memory.embed()
        assert memory.status().embedded == 0
        assert texts(memory, "reimbursed") == [NOTE]


class Endless:
    """Returns endless numbers, or endless vectors, and counts them."""

    name, dimension = "endless", 8

    def __init__(self, *, vectors: bool) -> None:
        self.given = 0
        self._vectors = vectors

    def _numbers(self) -> Iterator[float]:
        while True:
            self.given += 1
            assert self.given < 10_000, "the result is read without a limit"
            yield 1.0

    def __call__(self, texts: Sequence[str]) -> Iterable[Iterable[float]]:
        if not self._vectors:
            return [self._numbers() for _ in texts]
        return (list(islice(self._numbers(), self.dimension)) for _ in count())


@pytest.mark.parametrize("vectors", [False, True], ids=["numbers", "vectors"])
def test_an_endless_embedder_result_is_read_only_to_the_expected_size(tmp_path: Path, vectors: bool) -> None:
    embedder = Endless(vectors=vectors)
    with Memory(tmp_path / "m.db", embedder=embedder) as memory:
        memory.remember("A zebra.")
        with pytest.raises(EmbedderFailed, match="more"):
            memory.embed()
        assert memory.search(PassageQuery(text="zebra", principal=""))
    assert embedder.given < 1_000


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf, 0.0], ids=str)
def test_a_vector_without_direction_is_not_stored_and_the_others_are(tmp_path: Path, number: float) -> None:
    """A text whose vector is NaN, infinite or zero is found by words, and so is a query with such a vector."""

    def change(vectors: list[list[float]]) -> object:
        return [[number] * len(vector) if text.startswith("odd") else vector for text, vector in zip(embedder.last, vectors, strict=True)]

    class Remembering(Odd):
        last: list[str]

        def __call__(self, given: object, /) -> list[list[float]]:
            self.last = list(given)  # type: ignore[call-overload]
            return super().__call__(self.last)

    embedder = Remembering(change)
    with Memory(tmp_path / "m.db", embedder=embedder) as memory:
        remembered(memory, "odd reimbursed note", NOTE, "odd one out")
        assert memory.embed() == 2
        assert texts(memory, PARAPHRASE) == [NOTE]
        assert sorted(texts(memory, "odd reimbursed")) == sorted([NOTE, "odd one out", "odd reimbursed note"])
        for _ in range(5):
            remembered(memory, "one more")
            memory._settled(60)
        assert embedder.asked.count("odd one out") <= 2 * memory.limits.attempts


@pytest.mark.parametrize("number", [math.nan, math.inf, 0.0], ids=str)
def test_an_embedder_that_returns_only_vectors_without_direction_has_failed(tmp_path: Path, number: float) -> None:
    """This marks a broken model, not an odd text: the failure is reported, and no text is given up."""
    broken = True
    embedder = Odd(lambda vectors: [[number] * len(vector) for vector in vectors] if broken else vectors)
    with Memory(tmp_path / "m.db", embedder=embedder) as memory:
        remembered(memory, NOTE, "another note")
        with pytest.raises(EmbedderFailed, match="all zeros or not finite"):
            memory.embed()
        assert "all zeros or not finite" in memory.status().failure
        assert texts(memory, "reimbursed") == [NOTE]
        broken = False
        assert memory.embed() == 0


@pytest.mark.parametrize("size", [1e-30, 1e-300, 1e30, 1e300], ids=str)
def test_the_magnitude_of_a_vector_does_not_affect_the_search(tmp_path: Path, size: float) -> None:
    """The numbers are normalised before they are stored as 32-bit floats, which could not hold them."""
    with Memory(tmp_path / "m.db", embedder=Odd(lambda vectors: [[size * number for number in one] for one in vectors])) as memory:
        remembered(memory, NOTE, "The weather in Quito is mild.")
        assert memory.embed() == 0
        assert texts(memory, PARAPHRASE)[0] == NOTE


def test_a_text_that_cannot_be_embedded_does_not_block_others_and_is_given_up(tmp_path: Path) -> None:
    """It is retried a few times while other texts succeed, and then found by words only; `embed` tries it once more."""
    embedder = Picky("poison")
    with Memory(tmp_path / "m.db", embedder=embedder, limits=MemoryLimits(attempts=2)) as memory:
        remembered(memory, "poison one", NOTE, "poison two", "the third")
        for _ in range(5):
            assert memory._settled(60)
        assert (memory.status().embedded, memory.status().waiting) == (2, 2)
        tried = embedder.asked.count("poison one")
        memory._settled(60)
        assert embedder.asked.count("poison one") == tried
        assert texts(memory, "poison two")[0] == "poison two"
        assert memory.embed() == 2
        assert embedder.asked.count("poison one") > tried


async def test_the_end_of_a_call_starts_its_embedding_in_the_background(tmp_path: Path) -> None:
    embedder = Hanging()
    async with Engine([look_up], memory=Memory(tmp_path / "m.db", embedder=embedder)) as engine:
        await make(engine, "", "look_up", order="A7")
        assert await asyncio.to_thread(embedder.reached.wait, 60)
        embedder.go.set()


def test_closing_a_memory_cancels_a_waiting_async_embedder(tmp_path: Path) -> None:
    """Closing takes bounded time, however long the embedder may run."""
    embedder = HangingAsync()
    with Memory(tmp_path / "m.db", embedder=embedder, limits=MemoryLimits(embed_s=600.0, close_s=0.1)) as memory:
        remembered(memory, NOTE)
        assert embedder.reached.wait(60)
    assert embedder.cancelled.wait(60)


def test_a_text_on_which_the_embedder_hangs_does_not_block_the_others(tmp_path: Path) -> None:
    """After a timeout the texts are embedded one by one, beginning after the one that hung."""
    embedder = Stuck("poison")
    with Memory(tmp_path / "m.db", embedder=embedder, limits=MemoryLimits(embed_s=0.2)) as memory:
        remembered(memory, "poison", NOTE, "the third")
        while memory.status().embedded < 2:
            with suppress(EmbedderFailed):
                memory.embed()
            embedder.let_go()
        assert (memory.status().embedded, memory.status().waiting) == (2, 1)


@pytest.mark.parametrize(
    ("name", "dimension", "said"),
    [
        ("", 3, "has no name"),
        ("  ", 3, "has no name"),
        ("x", 0, "is 0"),
        ("x", -1, "is -1"),
        ("x", 20_000, "16,384"),
        ("x", True, "is True"),
    ],
)
def test_an_embedder_without_a_valid_name_or_dimension_is_refused(tmp_path: Path, name: str, dimension: int, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        Memory(tmp_path / "m.db", embedder=HashedEmbedder(name, dimension))
    with pytest.raises(UsageError, match="no embedder"):
        Memory(tmp_path / "m.db", store=MemoryPassages(), embedder=HashedEmbedder())
    with Memory(tmp_path / "m.db") as memory, pytest.raises(UsageError, match="has no embedder"):
        memory.embed()


@pytest.mark.parametrize("what", [lambda texts: [[1.0] for _ in texts], object(), "all-minilm"], ids=["function", "object", "text"])
def test_a_value_that_is_not_an_embedder_is_refused_with_what_is_missing(tmp_path: Path, what: Any) -> None:
    """Most models are plain functions, so the error explains how to wrap one."""
    with pytest.raises(UsageError, match=r"is not an embedder.*`name`.*`dimension`"):
        Memory(tmp_path / "m.db", embedder=what)
