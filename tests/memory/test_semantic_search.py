"""Tests of semantic search: it applies the same filters as full-text search, is exact, and has a fixed order."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from callgate import Engine, SqliteJournal
from callgate.builtins import workspace_tools
from callgate.memory import Embedder, Memory, MemoryLimits, Passage, PassageQuery
from callgate.memory.database import Database
from callgate.memory.embedder_protocol import pack_vector
from callgate.memory.passage import FoundPassage
from callgate.memory.passage_table import TablePassages
from callgate.memory.passage_vectors import Vectors, extension
from callgate.memory.rank_fusion import fuse_rankings
from callgate.testing import HashedEmbedder
from tests.memory.fakes import found, make
from tests.memory.faulty_embedders import Async
from tests.memory.sample_notes import NOTE, PARAPHRASE, look_up, remembered, texts


@pytest.mark.parametrize("embedder", [HashedEmbedder, Async], ids=["plain", "async"])
def test_semantic_and_full_text_search_each_find_what_the_other_misses(tmp_path: Path, embedder: type[Embedder]) -> None:
    """A recall combines the results of semantic and full-text search."""
    with Memory(tmp_path / "m.db") as words:
        remembered(words, NOTE, "The weather in Quito is mild.", "Ticket 4711 is open.")
        assert texts(words, PARAPHRASE) == []
    with Memory(tmp_path / "m.db", embedder=embedder()) as memory:
        assert memory.embed() == 0
        assert texts(memory, PARAPHRASE)[0] == NOTE
        assert texts(memory, "4711")[0] == "Ticket 4711 is open."
        assert texts(memory, "quito weather")[0] == "The weather in Quito is mild."
        assert (memory.status().embedder, memory.status().embedded, memory.status().waiting) == ("hashed", 3, 0)


async def test_the_recall_tool_finds_calls_notes_and_files_by_meaning(tmp_path: Path) -> None:
    """The tools need no change for an embedder; ended calls and files are embedded in the background."""
    (tmp_path / "work").mkdir()
    memory = Memory(tmp_path / "m.db", embedder=HashedEmbedder())
    tools = [*workspace_tools(), *memory.tools(), look_up]
    async with Engine(tools, memory=memory, journal=SqliteJournal(tmp_path / "j.db")) as engine:
        await make(engine, tmp_path / "work", "remember", text=NOTE)
        await make(engine, tmp_path / "work", "look_up", order="A7")
        await make(engine, tmp_path / "work", "write_file", path="plan.md", content="Reimbursing is slow.")
        assert await memory.settled()
        assert memory.status().waiting == 0
        first = {item["from"] for item in (await found(engine, tmp_path / "work", "reimbursements"))[:3]}
        assert first == {"note", "file", "call"}  # the call that wrote the file contains the same text
        assert (await found(engine, tmp_path / "work", "shipments"))[0]["text"].startswith("look_up(")


def test_semantic_search_applies_principal_kind_and_time_filters(tmp_path: Path) -> None:
    """A passage of another principal must not be found, however near it is."""
    with Memory(tmp_path / "m.db", embedder=HashedEmbedder()) as memory:
        remembered(memory, NOTE, principal="ann")
        remembered(memory, f"{NOTE} So says bob.", principal="bob")
        memory.embed()
        assert texts(memory, PARAPHRASE) == [NOTE]
        assert texts(memory, PARAPHRASE, "") == []
        assert texts(memory, PARAPHRASE, kinds=("call",)) == []
        assert texts(memory, PARAPHRASE, until_ns=1) == []
        assert texts(memory, PARAPHRASE, kinds=("note",), since_ns=1) == [NOTE]


def test_passages_beyond_the_farthest_distance_are_not_found(tmp_path: Path) -> None:
    """A query about something else finds nothing if the host sets the largest distance."""
    with Memory(tmp_path / "m.db", embedder=HashedEmbedder(), limits=MemoryLimits(farthest=0.8)) as memory:
        remembered(memory, NOTE)
        memory.embed()
        assert texts(memory, PARAPHRASE) == [NOTE]
        assert texts(memory, "xylophones") == []
    with Memory(tmp_path / "m.db", embedder=HashedEmbedder(), limits=MemoryLimits(farthest=0.2)) as memory:
        assert texts(memory, PARAPHRASE) == []


KINDS = st.sampled_from(["note", "call", "file"])


NAMES = st.sampled_from(["a", "b"])


PASSAGES = st.lists(
    st.builds(
        Passage,
        origin=st.just(""),
        kind=KINDS,
        text=st.sampled_from(["refund desk", "refunded", "desks and chairs", "quite another matter"]),
        at_ns=st.integers(1, 3),
        principal=NAMES,
        actor=NAMES,
        tool=NAMES,
        workspace=NAMES,
    ),
    max_size=12,
)


QUERIES = st.builds(
    PassageQuery,
    text=st.sampled_from(["refunds", "desk", "chair"]),
    principal=NAMES,
    kinds=st.lists(KINDS, unique=True, max_size=2).map(tuple),
    actor=st.none() | NAMES,
    tool=st.none() | NAMES,
    workspace=st.none() | NAMES,
    since_ns=st.none() | st.integers(1, 3),
    until_ns=st.none() | st.integers(1, 3),
    limit=st.integers(1, 20),
)


def _distance(one: list[float], other: list[float]) -> float:
    dot = sum(a * b for a, b in zip(one, other, strict=True))
    return 1 - dot / math.hypot(*one) / math.hypot(*other)


@given(passages=PASSAGES, query=QUERIES)
def test_nearest_returns_the_exact_nearest_passages_in_a_fixed_order(passages: list[Passage], query: PassageQuery) -> None:
    """The result equals a comparison with every admitted passage; ties are ordered newest first, then by order of storage."""
    embedder = HashedEmbedder()
    with_memory = _embedded(embedder, passages)
    (asked,) = embedder([query.text])
    expected = []
    for number, passage in enumerate(passages, 1):
        distance = round(_distance(asked, embedder([passage.text])[0]), 5)
        if query.admits(passage) and distance < 1:
            expected.append((distance, -passage.at_ns, number))
    got = with_memory(query, asked)
    assert got == [number for *_, number in sorted(expected)][: query.limit]


def _embedded(embedder: HashedEmbedder, passages: list[Passage]) -> Callable[[PassageQuery, list[float]], list[int]]:
    database = Database(":memory:", extension=extension())
    table, vectors = TablePassages(database), Vectors(database, embedder)
    table.keep({f"{at}": [replace(one, origin=f"{at}")] for at, one in enumerate(passages)})
    pending = vectors.pending(0, 100, 1)
    vectors.store([(one, pack_vector(embedder([one.text])[0], embedder)) for one in pending])

    def nearest(query: PassageQuery, asked: list[float]) -> list[int]:
        found = list(vectors.nearest(query, array("f", asked).tobytes(), within=1.0))
        database.close()
        return found

    return nearest


def test_rank_fusion_adds_reciprocal_ranks_and_orders_ties_by_time() -> None:
    """Ties are ordered newest first, then by order of storage."""

    def one(at_ns: int) -> FoundPassage:
        return FoundPassage(passage=Passage(origin="", kind="note", text="", at_ns=at_ns), snippet=f"{at_ns}", score=7.0)

    by_words, by_meaning = {1: one(1), 2: one(1), 3: one(1)}, {4: one(9), 3: one(1), 5: one(1)}
    both = fuse_rankings([by_words, by_meaning], 10)
    assert [round(1 / found.score, 1) for found in both] == [round(1 / (1 / 63 + 1 / 62), 1), 61, 61, 62, 63]
    assert [found.passage.at_ns for found in both[1:3]] == [9, 1]
    assert fuse_rankings([by_words, by_meaning], 2) == both[:2]
    assert [found.snippet for found in fuse_rankings([{1: one(5), 2: one(5)}, {2: one(5), 1: one(5)}], 9)] == ["5", "5"]
    assert fuse_rankings([], 3) == fuse_rankings([{}, {}], 3) == []
