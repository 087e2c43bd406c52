"""Tests of several processes that open one journal at once: all succeed in turn, and of two runs with one id one is refused."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import apsw
import pytest

from callgate import SqliteJournal, UsageError
from callgate._journal.lock_file import LockFile
from tests.forked_python import python

pytestmark = pytest.mark.process

TOGETHER = """
import asyncio, json, os, sys, traceback
from pathlib import Path
from callgate import Engine, Scope, SqliteJournal
from callgate._journal import open_reader
from callgate._journal.inbox_sender import open_inbox
from callgate.agent import Agent
from callgate.errors import RunHeld
from callgate.events import Draft
from callgate.event_queries import EventQuery
from tests.agent.scripted_model import Gate, Script, says

async def opens(path, number):
    journal = SqliteJournal(path)
    await journal.durable(journal.append(Draft(kind="call.received", run=f"r{number}", call=f"r{number}/0/0", body=b"{}")))
    await journal.close()
    return "ok"

async def looks(path, number):
    if number % 4 == 1:
        reader = open_reader(path)
        list(reader.find(EventQuery()))
        assert reader.verify() is None
        reader.close()
    elif number % 4 == 2:
        with open_inbox(path) as client:
            client.send(run=f"r{number}", kind="stop", target="", actor="ann", reason="", at_ns=1)
    else:
        return await opens(path, number)
    return "ok"

async def runs(path, number):
    "The one that has the run goes on until the other has ended."
    gate, other_ended = Gate(), Path(f"{path}.ended")
    engine = Engine(journal=SqliteJournal(path))
    async with engine, Agent(Script([gate, *says("done")]), engine) as agent:
        running = asyncio.ensure_future(agent.run("Go on.", scope=Scope(run="order")))
        while not (running.done() or other_ended.exists()):
            await asyncio.sleep(0.005)
        gate.open.set()
        try:
            return (await running).status
        except RunHeld as error:
            return f"RunHeld {error.code}"
        finally:
            other_ended.touch()

def child(work, path, number, ready, go):
    os.write(ready, b"1")
    os.read(go, 1)
    try:
        said = asyncio.run(work(path, number))
    except BaseException as error:
        said = f"{type(error).__name__}: {error}"
    Path(f"{path}.{number}.said").write_text(said)
    os._exit(0)

def together(work, path, count):
    ready_out, ready = os.pipe()
    go, go_in = os.pipe()
    children = []
    for number in range(count):
        pid = os.fork()
        if not pid:
            child(work, path, number, ready, go)
        children.append(pid)
    for _ in range(count):
        os.read(ready_out, 1)
    os.write(go_in, b"1" * count)
    for pid in children:
        os.waitpid(pid, 0)
    said = [Path(f"{path}.{number}.said").read_text() for number in range(count)]
    print(json.dumps(said), flush=True)

work, folder, count, rounds, known = globals()[sys.argv[1]], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5] == "known"
for number in range(rounds):
    path = f"{folder}/journal-{number}.db"
    if known:
        asyncio.run(SqliteJournal(path).close())
    together(work, path, count)
"""


def results_of_processes(work: str, folder: Path, *, count: int, rounds: int, known: bool) -> list[list[str]]:
    """Start `count` processes that do the same work at the same time, and return what each of them reported in each round."""
    words = (work, str(folder), str(count), str(rounds), "known" if known else "new")
    done = python(TOGETHER, *words)
    assert done.code == 0, done.err
    return [json.loads(line) for line in done.out.splitlines()]


@pytest.mark.parametrize("known", [False, True], ids=["new", "known"])
def test_many_processes_can_open_one_journal_at_once(tmp_path: Path, known: bool) -> None:
    for said in results_of_processes("opens", tmp_path, count=16, rounds=5, known=known):
        assert Counter(said) == {"ok": 16}


def test_engines_readers_and_inbox_clients_can_open_one_journal_at_once(tmp_path: Path) -> None:
    for said in results_of_processes("looks", tmp_path, count=16, rounds=4, known=True):
        assert Counter(said) == {"ok": 16}


def test_one_of_two_processes_that_start_a_run_with_the_same_id_is_refused(tmp_path: Path) -> None:
    """`Agent.run` raises, so the host does not mistake the refusal for a failed run."""
    for said in results_of_processes("runs", tmp_path, count=2, rounds=4, known=False):
        assert sorted(said) == ["RunHeld run_held", "completed"]


def test_opening_waits_while_another_program_creates_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Turning on WAL mode needs exclusive access, and SQLite refuses a reader at once instead of waiting."""
    path, waits = tmp_path / "journal.db", list[float]()
    other = apsw.Connection(str(path))
    other.execute("BEGIN IMMEDIATE")

    def ends(seconds: float) -> None:
        waits.append(seconds)
        other.close()

    monkeypatch.setattr("callgate._journal.open_sqlite.sleep", ends)
    journal = SqliteJournal(path)
    assert len(waits) == 1
    assert list(journal.read()) == []


def test_opening_that_times_out_reports_the_wait_and_the_cause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "journal.db"
    journal = SqliteJournal(path)
    other = apsw.Connection(str(path))
    other.execute("BEGIN IMMEDIATE")
    monkeypatch.setattr("callgate._journal.open_sqlite.JOURNAL_WAIT_S", 0.02)
    with pytest.raises(UsageError, match=r"could not be written to for 0\.02 s: another process holds its write lock"):
        SqliteJournal(path)
    other.close()
    stopped = LockFile(path)
    monkeypatch.setattr("callgate._journal.lock_file.JOURNAL_WAIT_S", 0.02)
    with pytest.raises(UsageError, match=r"could not be opened for 0\.02 s: another process has begun to open it"):
        SqliteJournal(path)
    stopped.close()
    SqliteJournal(path)
    assert journal.verify() is None


def test_a_lock_file_deleted_during_opening_is_created_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that finds no journal deletes the lock file that it created, while another process may already have opened that file."""
    path, waits = tmp_path / "journal.db", list[float]()
    first = LockFile(path)

    def takes_back(seconds: float) -> None:
        waits.append(seconds)
        first.take_back()

    monkeypatch.setattr("callgate._journal.lock_file.sleep", takes_back)
    second = LockFile(path)
    assert len(waits) == 1
    assert second.identity == (path.with_name("journal.db.lock").stat().st_dev, path.with_name("journal.db.lock").stat().st_ino)
    second.close()
