"""Tests of vectors and their texts: vectors of different embedders are never mixed, and no vector outlives its text or holds a secret."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from callgate import Engine, SqliteJournal, UsageError
from callgate.builtins import workspace_tools
from callgate.memory import EmbedderFailed, Memory, Passage
from callgate.memory.passage_table import TablePassages
from callgate.testing import HashedEmbedder
from tests.cli.shell import environment
from tests.host_fakes import Hider
from tests.memory.fakes import found, make
from tests.memory.faulty_embedders import Hanging
from tests.memory.sample_notes import NOTE, PARAPHRASE, look_up, remembered, texts
from tests.waiting import COMMAND_S


def test_a_different_embedder_is_refused_without_re_embed(tmp_path: Path) -> None:
    """The error names both embedders and the next step, which works. The refusal leaves the file unchanged."""
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
    with Memory(tmp_path / "m.db", embedder=longer, re_embed=True) as memory:  # the same embedder, so there is nothing to do
        assert (memory.status().embedded, memory.status().waiting) == (1, 0)


def test_a_memory_with_the_old_embedder_stores_no_vectors_after_a_re_embed(tmp_path: Path) -> None:
    """Another process re-embeds the memory: the first process then stores and finds no vectors of its own and reports why."""
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


def test_forgetting_a_note_removes_its_vector(tmp_path: Path) -> None:
    """This also holds for a memory that is opened without an embedder and without sqlite-vec."""
    with Memory(tmp_path / "m.db", embedder=HashedEmbedder()) as memory:
        first, second = remembered(memory, NOTE, "Reimbursing takes a week.")
        memory.embed()
        memory.forget(first, principal="ann")
        assert texts(memory, PARAPHRASE) == ["Reimbursing takes a week."]
        assert memory.status().embedded == 1
    with Memory(tmp_path / "m.db") as plain:
        plain.forget(second, principal="ann")
        assert (plain.status().embedder, plain.status().embedded, plain.status().waiting) == ("hashed", 0, 0)


def test_an_unchanged_text_is_not_embedded_again(tmp_path: Path) -> None:
    """A file that is read again or a note that is remembered again calls the embedder only for new text."""
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


def test_a_vector_is_never_stored_for_another_text(tmp_path: Path) -> None:
    """A passage that is removed while it is embedded may pass its number to the next passage."""
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


async def test_secrets_are_redacted_before_the_embedder_sees_a_text(tmp_path: Path) -> None:
    """This covers notes, tags, calls, files and queries."""
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


async def test_a_text_that_the_redactor_fails_on_is_not_given_to_the_embedder(tmp_path: Path) -> None:
    """The memory fails closed; full-text search still finds the text."""

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
def test_a_text_whose_embedding_was_killed_is_kept_and_embedded_later(tmp_path: Path) -> None:
    """The text is on disk, and the next process embeds it."""
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


def test_a_version_1_memory_is_embedded_when_it_gets_an_embedder(tmp_path: Path) -> None:
    """callgate 0.1 wrote version 1 of the file."""
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
def test_without_the_memory_extra_text_search_works_and_an_embedder_is_refused(tmp_path: Path) -> None:
    """The embedder is refused with one clear error, everything else works, and no large module is imported."""
    words = [sys.executable, "-c", WITHOUT, str(tmp_path / "m.db")]
    done = subprocess.run(words, env=environment(), timeout=COMMAND_S, capture_output=True, text=True)
    found, refused, loaded = done.stdout.splitlines()
    assert found == "['The refund desk closes at five.']", done.stderr
    assert "pip install 'callgate[memory]'" in refused
    assert loaded == "set()"
