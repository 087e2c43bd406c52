"""A memory with an embedder finds by meaning, too; whatever the embedder does, no text is lost and no call fails."""

from __future__ import annotations

import asyncio
import logging
import math
import signal
import sqlite3
import subprocess
import sys
from array import array
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from callgate import Engine, MemoryJournal, SqliteJournal, UsageError, tool
from callgate.builtins import workspace_tools
from callgate.memory import Embedder, EmbedderFailed, Memory, MemoryLimits, MemoryPassages, Passage, PassageQuery
from callgate.memory.database import Database
from callgate.memory.embedding import packed
from callgate.memory.fusion import fused
from callgate.memory.passages import Found
from callgate.memory.table import TablePassages
from callgate.memory.vectors import Vectors, extension
from callgate.testing import HashedEmbedder
from tests.cli.shell import environment
from tests.hosts import Hider
from tests.memory.embedders import Async, Hanging, HangingAsync, Odd, Picky, Refusing, Stuck
from tests.memory.fakes import found, make
from tests.patience import COMMAND_S

PARAPHRASE = "reimbursements for customers"
"""Has no word, and no beginning of a word, of the note that it should find."""
NOTE = "The customer was reimbursed on Monday."


@tool(effect="none")
def look_up(order: str) -> str:
    """Look an order up."""
    return f"order {order} was shipped to Quito"


def texts(memory: Memory, text: str, principal: str = "ann", **filters: object) -> list[str]:
    query = PassageQuery(text=text, principal=principal, limit=50, **filters)  # type: ignore[arg-type]
    return [one.passage.text for one in memory.search(query)]


def remembered(memory: Memory, *notes: str, principal: str = "ann") -> list[str]:
    return [memory.remember(note, principal=principal) for note in notes]


@pytest.mark.parametrize("embedder", [HashedEmbedder, Async], ids=["plain", "async"])
def test_meaning_finds_what_words_miss_and_words_what_meaning_misses(tmp_path: Path, embedder: type[Embedder]) -> None:
    """Recall by meaning beside full text, fused."""
    with Memory(tmp_path / "m.db") as words:
        remembered(words, NOTE, "The weather in Quito is mild.", "Ticket 4711 is open.")
        assert texts(words, PARAPHRASE) == []
    with Memory(tmp_path / "m.db", embedder=embedder()) as memory:
        assert memory.embed() == 0
        assert texts(memory, PARAPHRASE)[0] == NOTE
        assert texts(memory, "4711")[0] == "Ticket 4711 is open."
        assert texts(memory, "quito weather")[0] == "The weather in Quito is mild."
        assert (memory.status().embedder, memory.status().embedded, memory.status().waiting) == ("hashed", 3, 0)


async def test_an_agents_recall_finds_calls_notes_and_files_by_meaning(tmp_path: Path) -> None:
    """The tools are the same, the background embeds what ended, and files too."""
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
        assert first == {"note", "file", "call"}  # the call that wrote the file says the same
        assert (await found(engine, tmp_path / "work", "shipments"))[0]["text"].startswith("look_up(")


def test_meaning_is_narrowed_as_words_are(tmp_path: Path) -> None:
    """Nobody finds what another principal remembers, however near; kind and time narrow too."""
    with Memory(tmp_path / "m.db", embedder=HashedEmbedder()) as memory:
        remembered(memory, NOTE, principal="ann")
        remembered(memory, f"{NOTE} So says bob.", principal="bob")
        memory.embed()
        assert texts(memory, PARAPHRASE) == [NOTE]
        assert texts(memory, PARAPHRASE, "") == []
        assert texts(memory, PARAPHRASE, kinds=("call",)) == []
        assert texts(memory, PARAPHRASE, until_ns=1) == []
        assert texts(memory, PARAPHRASE, kinds=("note",), since_ns=1) == [NOTE]


def test_what_is_too_far_away_answers_nothing(tmp_path: Path) -> None:
    """A question about something else finds nothing, where the host says how far is too far."""
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
def test_the_nearest_are_exactly_the_nearest_in_a_fixed_order(passages: list[Passage], query: PassageQuery) -> None:
    """Property: as if every admitted passage were compared by hand; of equals the newest, then the first kept."""
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
    vectors.keep([(one, packed(embedder([one.text])[0], embedder)) for one in pending])

    def nearest(query: PassageQuery, asked: list[float]) -> list[int]:
        found = list(vectors.nearest(query, array("f", asked).tobytes(), within=1.0))
        database.close()
        return found

    return nearest


def test_two_rankings_become_one_exactly() -> None:
    """Reciprocal ranks are added; of equals the newest comes first, then the one that was kept first."""

    def one(at_ns: int) -> Found:
        return Found(passage=Passage(origin="", kind="note", text="", at_ns=at_ns), snippet=f"{at_ns}", score=7.0)

    by_words, by_meaning = {1: one(1), 2: one(1), 3: one(1)}, {4: one(9), 3: one(1), 5: one(1)}
    both = fused([by_words, by_meaning], 10)
    assert [round(1 / found.score, 1) for found in both] == [round(1 / (1 / 63 + 1 / 62), 1), 61, 61, 62, 63]
    assert [found.passage.at_ns for found in both[1:3]] == [9, 1]
    assert fused([by_words, by_meaning], 2) == both[:2]
    assert [found.snippet for found in fused([{1: one(5), 2: one(5)}, {2: one(5), 1: one(5)}], 9)] == ["5", "5"]
    assert fused([], 3) == fused([{}, {}], 3) == []


@pytest.mark.parametrize("embedder", [Refusing, Hanging, HangingAsync])
async def test_an_embedder_that_fails_or_hangs_fails_no_call_and_loses_no_text(
    tmp_path: Path, embedder: Callable[[], Refusing | Hanging | HangingAsync], caplog: pytest.LogCaptureFixture
) -> None:
    """What is not embedded is found by words; the failure is said once; closing is bounded."""
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
    assert 1 <= len(said) <= 4
    assert all("embedder" in line for line in said)
    if isinstance(made, Hanging):
        made.go.set()
    if isinstance(made, HangingAsync):
        assert made.cancelled.wait(60)
    with Memory(tmp_path / "m.db", embedder=HashedEmbedder()) as again:
        assert again.embed() == 0
        assert texts(again, PARAPHRASE)[0] == NOTE


async def test_an_embedder_that_is_up_again_catches_up(tmp_path: Path) -> None:
    """After the next call, with nobody asking for it."""
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


def test_a_call_that_hangs_is_left_alone_and_asked_again_when_it_is_over(tmp_path: Path) -> None:
    """One thread at most, whatever is asked meanwhile; questions do not wait for it again."""
    embedder = Hanging()
    with Memory(tmp_path / "m.db", embedder=embedder, limits=MemoryLimits(embed_s=0.05, embed_question_s=60.0)) as memory:
        remembered(memory, NOTE)
        assert embedder.reached.wait(60)
        with pytest.raises(EmbedderFailed):
            memory.embed()
        assert texts(memory, "reimbursed") == [NOTE]  # at once: not after a minute
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
def test_what_is_no_vector_is_refused_and_says_why(tmp_path: Path, change: Callable[[list[list[float]]], object], said: str) -> None:
    """Never a vector of another dimension in the file."""
    with Memory(tmp_path / "m.db", embedder=Odd(change)) as memory:
        remembered(memory, NOTE, "another note")
        with pytest.raises(EmbedderFailed, match=said):
            memory.embed()
        assert memory.status().embedded == 0
        assert texts(memory, "reimbursed") == [NOTE]


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf, 0.0], ids=str)
def test_a_vector_without_direction_is_not_kept_and_costs_no_other(tmp_path: Path, number: float) -> None:
    """NaN, infinite, all zeros: that text is found by words; a question without direction, too."""

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
def test_an_embedder_whose_every_vector_is_without_direction_has_failed(tmp_path: Path, number: float) -> None:
    """A broken model is told from an odd text: its failure is said, and no text is given up for it."""
    broken = True
    embedder = Odd(lambda vectors: [[number] * len(vector) for vector in vectors] if broken else vectors)
    with Memory(tmp_path / "m.db", embedder=embedder) as memory:
        remembered(memory, NOTE, "another note")
        with pytest.raises(EmbedderFailed, match="no direction"):
            memory.embed()
        assert "no direction" in memory.status().failure
        assert texts(memory, "reimbursed") == [NOTE]
        broken = False
        assert memory.embed() == 0


@pytest.mark.parametrize("size", [1e-30, 1e-300, 1e30, 1e300], ids=str)
def test_only_the_direction_of_a_vector_counts(tmp_path: Path, size: float) -> None:
    """However large or small its numbers are: 32 bits would have lost them."""
    with Memory(tmp_path / "m.db", embedder=Odd(lambda vectors: [[size * number for number in one] for one in vectors])) as memory:
        remembered(memory, NOTE, "The weather in Quito is mild.")
        assert memory.embed() == 0
        assert texts(memory, PARAPHRASE)[0] == NOTE


def test_a_text_that_cannot_be_embedded_holds_up_no_other_and_is_given_up(tmp_path: Path) -> None:
    """Tried a few times while others succeed, then found by words; `embed` tries it once more."""
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


async def test_what_ended_is_embedded_with_nobody_waiting_for_it(tmp_path: Path) -> None:
    """The end of a call is enough."""
    embedder = Hanging()
    async with Engine([look_up], memory=Memory(tmp_path / "m.db", embedder=embedder)) as engine:
        await make(engine, "", "look_up", order="A7")
        assert await asyncio.to_thread(embedder.reached.wait, 60)
        embedder.go.set()


def test_closing_cancels_what_an_async_embedder_waits_for(tmp_path: Path) -> None:
    """Bounded, however long it was given."""
    embedder = HangingAsync()
    with Memory(tmp_path / "m.db", embedder=embedder, limits=MemoryLimits(embed_s=600.0, close_s=0.1)) as memory:
        remembered(memory, NOTE)
        assert embedder.reached.wait(60)
    assert embedder.cancelled.wait(60)


def test_a_text_that_hangs_holds_up_no_other_for_ever(tmp_path: Path) -> None:
    """Once a call was late texts are asked one by one, from behind the one that was late."""
    embedder = Stuck("poison")
    with Memory(tmp_path / "m.db", embedder=embedder, limits=MemoryLimits(embed_s=0.2)) as memory:
        remembered(memory, "poison", NOTE, "the third")
        while memory.status().embedded < 2:
            with suppress(EmbedderFailed):
                memory.embed()
            embedder.let_go()
        assert (memory.status().embedded, memory.status().waiting) == (2, 1)


def test_another_embedder_is_refused_until_everything_is_embedded_anew(tmp_path: Path) -> None:
    """Never mixed vectors: the error names both and the next step; the next step works; the file is as it was before it."""
    first, other, longer = HashedEmbedder(), HashedEmbedder("other"), HashedEmbedder("hashed", 600)
    with Memory(tmp_path / "m.db", embedder=first) as memory:
        remembered(memory, NOTE)
        memory.embed()
    for wrong, numbers in ((other, "512"), (longer, "600")):
        with pytest.raises(UsageError) as caught:
            Memory(tmp_path / "m.db", embedder=wrong)
        assert all(word in str(caught.value) for word in ("'hashed' (512", f"'{wrong.name}' ({numbers})", "re_embed=True"))
    with Memory(tmp_path / "m.db", embedder=first) as memory:
        assert memory.status().embedded == 1
    with Memory(tmp_path / "m.db", embedder=longer, re_embed=True) as memory:
        assert texts(memory, "reimbursed") == [NOTE]
        assert memory.embed() == 0
        assert texts(memory, PARAPHRASE) == [NOTE]
    with Memory(tmp_path / "m.db", embedder=longer, re_embed=True) as memory:  # nothing to do: the same embedder
        assert (memory.status().embedded, memory.status().waiting) == (1, 0)


def test_who_still_has_the_old_embedder_mixes_nothing_in(tmp_path: Path) -> None:
    """Another process embeds anew meanwhile: the first one finds and keeps nothing of its own any longer, and says so."""
    first = Memory(tmp_path / "m.db", embedder=HashedEmbedder())
    remembered(first, NOTE)
    first.embed()
    with Memory(tmp_path / "m.db", embedder=HashedEmbedder("other"), re_embed=True) as second:
        second.embed()
        remembered(first, "kept as text")
        with pytest.raises(EmbedderFailed, match="'other'"):
            first.embed()
        assert texts(first, PARAPHRASE) == []
        assert texts(first, "reimbursed") == [NOTE]
        assert "re_embed" in first.status().failure
        assert second.embed() == 0
        assert texts(second, PARAPHRASE)[0] == NOTE
        first.close_sync()


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
def test_an_embedder_has_to_say_what_it_is(tmp_path: Path, name: str, dimension: int, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        Memory(tmp_path / "m.db", embedder=HashedEmbedder(name, dimension))
    with pytest.raises(UsageError, match="no embedder"):
        Memory(tmp_path / "m.db", store=MemoryPassages(), embedder=HashedEmbedder())
    with Memory(tmp_path / "m.db") as memory, pytest.raises(UsageError, match="has no embedder"):
        memory.embed()


@pytest.mark.parametrize("what", [lambda texts: [[1.0] for _ in texts], object(), "all-minilm"], ids=["function", "object", "text"])
def test_what_is_no_embedder_is_refused_and_says_what_is_missing(tmp_path: Path, what: Any) -> None:
    """Most models are a bare function: the sentence says what to put around it."""
    with pytest.raises(UsageError, match=r"is no embedder.*`name`.*`dimension`"):
        Memory(tmp_path / "m.db", embedder=what)


def test_what_is_forgotten_or_goes_takes_its_vector_with_it(tmp_path: Path) -> None:
    """Also by somebody who has no embedder, and no sqlite-vec."""
    with Memory(tmp_path / "m.db", embedder=HashedEmbedder()) as memory:
        first, second = remembered(memory, NOTE, "Reimbursing takes a week.")
        memory.embed()
        memory.forget(first, principal="ann")
        assert texts(memory, PARAPHRASE) == ["Reimbursing takes a week."]
        assert memory.status().embedded == 1
    with Memory(tmp_path / "m.db") as plain:
        plain.forget(second, principal="ann")
        assert (plain.status().embedder, plain.status().embedded, plain.status().waiting) == ("hashed", 0, 0)


def test_what_says_the_same_is_embedded_once(tmp_path: Path) -> None:
    """A file that is read again, a note that is remembered again: only what is new costs a call."""
    embedder = HashedEmbedder()
    with Memory(tmp_path / "m.db", embedder=embedder) as memory:
        remembered(memory, NOTE)
        memory.embed()
        remembered(memory, NOTE)
        memory.embed()
        assert embedder.asked == [NOTE]
        store = TablePassages(memory._database)
        one, other = (Passage(origin="file:a", kind="file", text=text, at_ns=1, tags=("plan",)) for text in ("one", "other"))
        store.keep({"file:a": [one, other, other]})
        memory.embed()
        store.keep({"file:a": [other, one, Passage(origin="file:a", kind="file", text="new", at_ns=2)]})
        memory.embed()
        assert embedder.asked == [NOTE, "one\nplan", "other\nplan", "other\nplan", "new"]
        assert memory.status().embedded == 4


def test_a_vector_never_goes_to_another_text(tmp_path: Path) -> None:
    """A passage that goes while it is embedded leaves its number to the next one."""
    embedder = Hanging()
    with Memory(tmp_path / "m.db", embedder=embedder) as memory:
        (first,) = remembered(memory, NOTE)
        assert embedder.reached.wait(60)
        memory.forget(first, principal="ann")
        remembered(memory, "The weather in Quito is mild.")
        with memory._database.reading() as connection:
            assert connection.execute("SELECT number FROM passages").get == 1
        embedder.go.set()
        assert memory.embed() == 0
        assert embedder.asked == [NOTE, "The weather in Quito is mild."]
        remembered(memory, "Reimbursing takes a week.")
        assert memory.embed() == 0
        assert texts(memory, "customers were reimbursing")[0] == "Reimbursing takes a week."


async def test_secrets_leave_before_an_embedder_sees_anything(tmp_path: Path) -> None:
    """Notes, tags, calls, files and questions."""
    (tmp_path / "work").mkdir()
    with Memory(tmp_path / "m.db") as before:
        remembered(before, "hunter2 was told before there was a redactor")
    embedder = HashedEmbedder()
    memory = Memory(tmp_path / "m.db", embedder=embedder)
    tools = [look_up, *workspace_tools(), *memory.tools()]
    async with Engine(tools, memory=memory, redactor=Hider(), journal=SqliteJournal(tmp_path / "j.db")) as engine:
        await make(engine, tmp_path / "work", "remember", text="the password is hunter2", tags=["hunter2"])
        await make(engine, tmp_path / "work", "look_up", order="hunter2")
        await make(engine, tmp_path / "work", "write_file", path="a.txt", content="password=hunter2")
        await found(engine, tmp_path / "work", "is it hunter2")
        assert await memory.settled()
    assert len(embedder.asked) >= 5
    assert not any("hunter2" in text for text in embedder.asked)


async def test_a_redactor_that_breaks_keeps_everything_from_the_embedder(tmp_path: Path) -> None:
    """Fail closed; words still find."""

    class Breaking:
        def redact(self, body: bytes) -> bytes:
            if b"zebra" in body:
                raise ValueError("no pattern for this")
            return body

    with Memory(tmp_path / "m.db") as before:
        remembered(before, "the zebra of before")
    embedder = HashedEmbedder()
    memory = Memory(tmp_path / "m.db", embedder=embedder)
    async with Engine(memory=memory, redactor=Breaking()):
        assert texts(memory, "zebra") == ["the zebra of before"]
        assert await memory.settled()
        assert memory.status().waiting == 1
    assert embedder.asked == []


SCRIPT = """
import os, sys
from callgate.memory import Memory
from callgate.testing import HashedEmbedder

class Dying(HashedEmbedder):
    def __call__(self, texts, /):
        if self.asked:
            os.kill(os.getpid(), 9)
        return super().__call__(texts)

memory = Memory(sys.argv[1], embedder=Dying())
memory.remember("an embedded note")
memory.embed()
memory.remember("The customer was reimbursed on Monday.")
memory.embed()
"""


@pytest.mark.process
def test_a_kill_between_text_and_vector_loses_neither(tmp_path: Path) -> None:
    """The text is on disk; the next one embeds it."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "m.db")], env=environment(), timeout=COMMAND_S, capture_output=True, text=True
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    embedder = HashedEmbedder()
    with Memory(tmp_path / "m.db", embedder=embedder) as memory:
        assert texts(memory, "reimbursed", "") == [NOTE]
        assert memory.status().waiting == 1
        assert memory.embed() == 0
        assert texts(memory, PARAPHRASE, "")[0] == NOTE
        assert embedder.asked.count("an embedded note") == 0


def test_a_memory_of_before_is_embedded_when_it_gets_an_embedder(tmp_path: Path) -> None:
    """Version 1 of the file, as callgate 0.1 wrote it."""
    with Memory(tmp_path / "m.db") as memory:
        remembered(memory, NOTE)
    with sqlite3.connect(tmp_path / "m.db") as connection:
        for name in ("passage_unembedded", "passage_embedded", "vector_dropped"):
            connection.execute(f"DROP TRIGGER {name}")
        for name in ("embedders", "vectors", "unembedded"):
            connection.execute(f"DROP TABLE {name}")
        connection.execute("PRAGMA user_version = 1")
    connection.close()
    with Memory(tmp_path / "m.db", embedder=HashedEmbedder()) as memory:
        assert memory.embed() == 0
        assert texts(memory, PARAPHRASE) == [NOTE]


WITHOUT = """
import sys
sys.modules["sqlite_vec"] = None
import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *more: None if name == "sqlite_vec" else found(name, *more)
from callgate import UsageError
from callgate.memory import Memory, PassageQuery
from callgate.testing import HashedEmbedder
with Memory(sys.argv[1]) as memory:
    memory.remember("The refund desk closes at five.")
    print([one.passage.text for one in memory.search(PassageQuery(text="refund", principal=""))])
try:
    Memory(sys.argv[1], embedder=HashedEmbedder())
except UsageError as error:
    print(error)
print({"sqlite_vec", "numpy", "httpx2", "sqlite3"} & set(sys.modules) - {"sqlite_vec"})
"""


@pytest.mark.process
def test_without_the_extra_words_find_and_an_embedder_is_refused_with_its_name(tmp_path: Path) -> None:
    """One clear error; everything else as before, and nothing heavy is loaded."""
    words = [sys.executable, "-c", WITHOUT, str(tmp_path / "m.db")]
    done = subprocess.run(words, env=environment(), timeout=COMMAND_S, capture_output=True, text=True)
    found, refused, loaded = done.stdout.splitlines()
    assert found == "['The refund desk closes at five.']", done.stderr
    assert "pip install 'callgate[memory]'" in refused
    assert loaded == "set()"
