"""Tests of damaged files and full disks: the fault is reported, no event is lost silently and no effect is repeated silently."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import apsw
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from callgate import Engine, Scope, SqliteJournal, UsageError, tool
from callgate.cli import main
from callgate.events import Event
from tests.effect_ledger import Ledger
from tests.engine_calls import call, said
from tests.waiting import COMMAND_S

RUN = Scope(run="order", actor="ann")


@tool
async def pay(to: str) -> str:
    """Pay."""
    return f"paid {to}"


async def _written(path: Path) -> None:
    async with Engine([pay], journal=SqliteJournal(path)) as engine:
        for n in range(8):
            assert (await said(engine, call("pay", id=str(n), to=f"x{n}"), RUN)).success


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Provide a closed journal."""
    path = tmp_path_factory.mktemp("whole") / "journal.db"
    asyncio.run(_written(path))
    return path


def events_if_intact(path: Path) -> list[list[Event]] | None:
    """Return the events that an engine reads, or None if opening or verification reports damage."""
    try:
        journal = SqliteJournal(path)
    except UsageError:
        return None
    try:
        if journal.verify() is not None:
            return None
        return [list(journal.read()), list(journal.read(run="order")), list(journal.read(call="order/0/3"))]
    finally:
        asyncio.run(journal.close())


DAMAGE = st.one_of(
    st.tuples(st.just("flip"), st.integers(0, 10**6), st.integers(0, 7)),
    st.tuples(st.just("cut"), st.integers(0, 10**6), st.just(0)),
    st.tuples(st.just("zero"), st.integers(0, 10**6), st.integers(1, 8192)),
)


@settings(max_examples=120)
@example([("zero", 4088, 9)])
@example([("zero", 532485, 4)])
@given(st.lists(DAMAGE, min_size=1, max_size=3))
def test_a_damaged_file_is_never_read_as_a_different_journal(whole: Path, damage: list[tuple[str, int, int]]) -> None:
    """After flipped bits, truncation or lost pages the file is refused, or verification reports it, or it reads unchanged."""
    content = bytearray(whole.read_bytes())
    for kind, where, how in damage:
        at = where % max(1, len(content))
        match kind:
            case "flip":
                content[at : at + 1] = bytes(byte ^ (1 << how) for byte in content[at : at + 1])
            case "cut":
                del content[at:]
            case "zero":
                content[at : at + how] = bytes(len(content[at : at + how]))
    with tempfile.TemporaryDirectory() as folder:
        intact, damaged = Path(folder) / "intact.db", Path(folder) / "damaged.db"
        intact.write_bytes(whole.read_bytes())
        damaged.write_bytes(content)
        says = events_if_intact(damaged)
        assert says is None or not content or says == events_if_intact(intact)


@pytest.mark.parametrize("size", [0, 1, 99, 511])
async def test_a_journal_truncated_to_nothing_is_refused_and_its_wal_is_kept(size: int, tmp_path: Path) -> None:
    """SQLite treats such a file as a new database and deletes its write-ahead log, which may hold the last events."""
    path, log = tmp_path / "journal.db", tmp_path / "journal.db-wal"
    async with Engine([pay], journal=SqliteJournal(path)) as engine:
        assert (await said(engine, call("pay", to="ann"), RUN)).success
        kept = log.read_bytes()
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(UsageError, match=r"was a journal in it|cannot be a database"):
        SqliteJournal(path)
    log.write_bytes(kept)  # the state after a crash
    with pytest.raises(UsageError, match=r"its log .*-wal is not|cannot be a database"):
        SqliteJournal(path)
    assert (path.stat().st_size, log.read_bytes()) == (size, kept)


def test_a_wal_without_its_journal_is_refused_and_kept(tmp_path: Path) -> None:
    path, log = tmp_path / "journal.db", tmp_path / "journal.db-wal"
    log.write_bytes(b"the last events")
    with pytest.raises(UsageError, match="is missing, and its log"):
        SqliteJournal(path)
    assert [file.name for file in tmp_path.iterdir()] == [log.name]


async def test_an_empty_file_or_a_journal_deleted_as_a_whole_starts_a_new_journal(tmp_path: Path) -> None:
    """An empty file with nothing beside it cannot be told from a new one, and deleting all files of a journal is taken as intentional."""
    path = tmp_path / "journal.db"
    path.touch()
    for _ in range(2):
        async with Engine([pay], journal=SqliteJournal(path)) as engine:
            assert (await said(engine, call("pay", to="ann"), RUN)).uid == "order/0/0"
        path.unlink()
        path.with_name("journal.db.lock").unlink()


async def test_a_journal_whose_file_alone_is_missing_is_refused_if_it_had_events(tmp_path: Path) -> None:
    """Otherwise the effects that it knew would be repeated. A journal without events loses nothing."""
    path = tmp_path / "journal.db"
    await SqliteJournal(path).close()
    path.unlink()
    async with Engine([pay], journal=SqliteJournal(path)) as engine:
        assert (await said(engine, call("pay", to="ann"), RUN)).success
    content = path.read_bytes()
    path.unlink()
    for _ in range(2):
        with pytest.raises(UsageError, match=rf"{path} is missing, and there was a journal in it with at least 3 events") as refused:
            SqliteJournal(path)
        assert f"{path}.lock" in str(refused.value)
        assert not path.exists()
    path.write_bytes(content)
    async with Engine([pay], journal=SqliteJournal(path)) as engine:
        assert (await said(engine, call("pay", to="ann"), RUN)).uid == "order/0/1"


@pytest.mark.parametrize("place", [0.0, 0.5, 0.99])
async def test_a_wal_truncated_under_a_running_engine_is_detected_before_a_call(place: float, tmp_path: Path) -> None:
    """A crash would lose the events after the cut, and a checkpoint would copy the gap into the database file."""
    path, log, ledger = tmp_path / "journal.db", tmp_path / "journal.db-wal", Ledger(tmp_path / "ledger.txt")

    @tool(name="pay")
    async def paying(to: str) -> str:
        """Pay."""
        ledger.write(to)
        return f"paid {to}"

    async with Engine([paying], journal=SqliteJournal(path)) as engine:
        assert (await said(engine, call("pay", to="ann"), RUN)).success
        os.truncate(log, int(log.stat().st_size * place))
        result = await said(engine, call("pay", to="bob"), RUN)
        assert (result.status, result.code) == ("error", "record_failed")
        assert f"{log} was cut off while it was open" in engine.journal.status().failure
    assert ledger.lines() == ["ann"]


async def test_a_checkpoint_by_another_program_is_not_damage(tmp_path: Path) -> None:
    """A backup or the SQLite shell may checkpoint the log and truncate it to zero bytes."""
    path, log = tmp_path / "journal.db", tmp_path / "journal.db-wal"
    journal = SqliteJournal(path)
    async with Engine([pay], journal=journal) as engine:
        for n in range(3):
            assert (await said(engine, call("pay", id=str(n), to=f"x{n}"), RUN)).success
            beside = apsw.Connection(str(path))
            beside.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            beside.close()
            assert log.stat().st_size == 0
        assert (await said(engine, call("pay", id="last", to="bob"), RUN)).success
        assert journal.verify() is None


@pytest.mark.parametrize("place", [0.05, 0.3, 0.6, 0.95])
async def test_a_journal_with_a_torn_wal_opens_with_the_events_before_the_tear(place: float, tmp_path: Path) -> None:
    """A power loss may tear the write-ahead log: its intact first part is kept, and the journal continues from there."""
    path, torn = tmp_path / "journal.db", tmp_path / "torn.db"
    async with Engine([pay], journal=SqliteJournal(path)) as engine:
        for n in range(8):
            await said(engine, call("pay", id=str(n), to=f"x{n}"), RUN)
        before = [event.hash for event in engine.journal.read()]
        tear(path, torn, place)
    again = SqliteJournal(torn)
    async with Engine([pay], journal=again) as engine:
        kept = [event.hash for event in again.read()]
        assert kept == before[: len(kept)]
        assert (await said(engine, call("pay", id="next", to="bob"), RUN)).success
        assert again.verify() is None


def tear(path: Path, to: Path, place: float) -> None:
    """Copy a journal with the first part of its log, followed by invalid bytes."""
    to.write_bytes(path.read_bytes())
    log = Path(f"{path}-wal").read_bytes()
    Path(f"{to}-wal").write_bytes(log[: int(len(log) * place)] + b"\xff" * 100)


def test_log_verify_names_a_damaged_row_without_a_traceback(whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "journal.db"
    path.write_bytes(whole.read_bytes())
    connection = apsw.Connection(str(path))
    connection.execute("UPDATE events SET parents = CAST(x'ff7b' AS TEXT) WHERE position = 6")
    connection.close()
    assert main(["log", "verify", "--journal", str(path)]) == 1
    assert "at event 6: it cannot be read" in capsys.readouterr().err.replace("\n", " ")


def test_a_journal_without_its_writer_counter_is_refused_for_writing_only(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without the counter writers cannot be told apart, but recorded events can still be read."""
    path = tmp_path / "journal.db"
    path.write_bytes(whole.read_bytes())
    connection = apsw.Connection(str(path))
    connection.execute("DELETE FROM writer")
    connection.close()
    with pytest.raises(UsageError, match="cannot be used as a journal: its counter of writers is gone"):
        SqliteJournal(path)
    assert main(["log", "list", "--journal", str(path)]) == 0
    capsys.readouterr()


def test_a_database_that_is_not_a_journal_is_refused_and_not_changed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A wrong path must not change a single byte of the file, and the error must not call the file empty."""
    path = tmp_path / "other.db"
    connection = apsw.Connection(str(path))
    connection.execute("CREATE TABLE notes (text)")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(UsageError, match="is a database, but no journal"):
        SqliteJournal(path)
    assert path.read_bytes() == before
    assert main(["log", "list", "--journal", str(path)]) == 2
    assert "is a database, but no journal" in capsys.readouterr().err.replace("\n", " ")


def test_verify_detects_an_index_that_misses_an_event(whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The events are intact, but a query by run would miss one, so that a call might start twice."""
    path = tmp_path / "journal.db"
    path.write_bytes(whole.read_bytes())
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA writable_schema = ON")
    connection.execute("UPDATE sqlite_schema SET sql = 'CREATE INDEX events_by_run ON events (run, position) WHERE position <> 6'"
                       " WHERE name = 'events_by_run'")  # fmt: skip
    connection.close()
    connection = apsw.Connection(str(path))
    connection.execute("REINDEX events_by_run")
    connection.execute("PRAGMA writable_schema = ON")
    connection.execute(
        "UPDATE sqlite_schema SET sql = 'CREATE INDEX events_by_run  ON events (run, position)' WHERE name = 'events_by_run'"
    )
    connection.close()
    assert main(["log", "verify", "--journal", str(path)]) == 1
    assert "not every event may be found" in capsys.readouterr().err.replace("\n", " ")


FULL = """
import asyncio, json, resource, signal, sys
from callgate import Engine, RawCall, Scope, SqliteJournal, tool
from tests.effect_ledger import Ledger
from pathlib import Path

ledger, said = Ledger(Path(sys.argv[2])), Ledger(Path(sys.argv[3]))

@tool
async def pay(to: str, why: str) -> str:
    "Pay."
    ledger.write(to)
    return "paid " + to

async def main():
    async with Engine([pay], journal=SqliteJournal(sys.argv[1])) as engine:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[4]), resource.RLIM_INFINITY))
        for n in range(60):
            raw = RawCall(name="pay", arguments=json.dumps({"to": f"x{n}", "why": "z" * 3000}), id=f"c{n}")
            outcome = await engine.call(raw, Scope(run="order"))
            said.write(f"x{n} {outcome.result.status} {outcome.result.code}")
        said.write(engine.journal.status().failure)

asyncio.run(main())
"""


def work_until_full(*words: object) -> None:
    command = [sys.executable, "-c", f"import sys; sys.path[:] = {sys.path!r}\n{FULL}", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_S, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.process
@pytest.mark.skipif(not hasattr(resource, "RLIMIT_FSIZE"), reason="no limit on files here")
@pytest.mark.parametrize("size", [250_000, 300_000, 350_000])
async def test_a_full_disk_starts_no_unrecorded_call_and_loses_no_returned_result(size: int, tmp_path: Path) -> None:
    """A limit on file size stands for the full disk: a returned result is durable, other calls are refused, and work resumes later."""
    path, paid, told = tmp_path / "journal.db", tmp_path / "paid.txt", tmp_path / "told.txt"
    work_until_full(path, paid, told, size)
    *calls, failure = Ledger(told).lines()
    results = {what: (status, code) for what, status, code in (line.split() for line in calls)}
    assert failure, "the disk was never full"
    ok = [what for what, (status, _) in results.items() if status == "ok"]
    refused = [what for what, (status, code) in results.items() if (status, code) == ("error", "record_failed")]
    unknown = [what for what, (status, _) in results.items() if status == "unknown"]
    assert ok
    assert refused
    assert len(ok) + len(refused) + len(unknown) == len(results)
    assert set(ok) <= set(Ledger(paid).lines()) <= {*ok, *unknown}
    journal = SqliteJournal(path)
    assert journal.verify() is None
    kept = {json.loads(event.body)["id"]: json.loads(event.body)["status"] for event in journal.read() if event.kind == "call.completed"}
    assert {f"c{what[1:]}" for what in ok} <= {one for one, status in kept.items() if status == "ok"}
    async with Engine([pay], journal=journal) as engine:
        assert (await said(engine, call("pay", id="later", to="ann"), RUN)).success


LAST_ANSWER = """
import asyncio, resource, signal, sys
from callgate import Engine, SqliteJournal
from callgate.agent import Agent
from tests.agent.scripted_model import Script, says

async def main():
    async with Engine(journal=SqliteJournal(sys.argv[1])) as engine:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, resource.RLIM_INFINITY))
        result = await Agent(Script(says("z" * 400_000)), engine).run("Go on.")
        print(result.status, len(result.text), result.recorded, engine.journal.status().failure)

asyncio.run(main())
"""


@pytest.mark.process
@pytest.mark.skipif(not hasattr(resource, "RLIMIT_FSIZE"), reason="no limit on files here")
def test_a_run_whose_last_answer_cannot_be_recorded_returns_that_answer(tmp_path: Path) -> None:
    """The result says that the answer is not recorded, and no exception reaches the host."""
    command = [sys.executable, "-c", f"import sys; sys.path[:] = {sys.path!r}\n{LAST_ANSWER}", str(tmp_path / "journal.db")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_S, check=False)
    assert done.returncode == 0, done.stderr
    *told, failure = done.stdout.split(maxsplit=3)
    assert (told, failure != "") == (["completed", "400000", "0"], True)
