"""Tests of a PostgreSQL journal beyond the journal contract: a lost server is always reported."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from callgate import Engine, EventQuery, Limits, PostgresJournal, Scope, UsageError, tool
from callgate._journal import open_reader, postgres_journal
from callgate._journal.sql_schema import VERSION
from callgate.cli import main
from callgate.errors import JournalFailed
from callgate.events import Draft, Event
from callgate.testing import Call, Item, ScriptedServer
from tests.cli.shell import shell, write_tools
from tests.effect_ledger import Ledger
from tests.effect_tools import paying
from tests.engine_calls import call, said
from tests.journals.postgres_server import Server


def draft(n: int, *, run: str = "r", kind: str = "call.started") -> Draft:
    return Draft(kind=kind, run=run, body=json.dumps({"n": n}).encode())


async def test_a_lost_connection_stops_the_engine_before_the_next_effect(postgres: Server, database: str, ledger: Ledger) -> None:
    async with Engine([paying(ledger)], journal=PostgresJournal(database)) as engine:
        assert (await said(engine, call("pay", to="ann"))).success
        postgres.cut_connections(database)
        for run in ("", "another", ""):
            result = await said(engine, call("pay", to="bob"), Scope(run=run))
            assert (result.status, result.code) == ("error", "record_failed")
        failure = engine.journal.status().failure
        assert "is lost" in failure
        assert "Make a new engine once the server answers" in failure
    assert ledger.lines() == ["ann"]


async def test_a_lost_connection_for_reading_is_reopened(postgres: Server, database: str) -> None:
    journal = PostgresJournal(database)
    await journal.durable(journal.append(draft(1)))
    postgres.cut_connections(database)
    assert [event.position for event in journal.read(run="r")] == [1]
    with pytest.raises(JournalFailed, match="is lost"):
        await journal.durable(journal.append(draft(2)))
    await journal.close()


async def test_a_closed_journal_is_not_connected_again_to_be_read(database: str) -> None:
    journal = PostgresJournal(database)
    await journal.close()
    with pytest.raises(JournalFailed):
        journal.read(run="r")


async def test_a_connection_lost_between_effect_and_result_gives_an_unknown_outcome(
    postgres: Server, database: str, ledger: Ledger
) -> None:
    """A result that cannot be recorded is not returned as a success, and a later engine does not repeat the effect."""

    @tool
    async def act() -> str:
        """Act while the server goes away."""
        ledger.write("acted")
        postgres.cut_connections(database)
        return "done"

    async with Engine([act], journal=PostgresJournal(database)) as engine:
        result = await said(engine, call("act", id="1"), Scope(run="order"))
        assert (result.status, result.code) == ("unknown", "record_failed")
    async with Engine([act], journal=PostgresJournal(database)) as engine:
        result = await said(engine, call("act", id="1"), Scope(run="order"))
        assert result.status == "unknown"
    assert ledger.lines() == ["acted"]


async def test_a_run_id_that_postgres_cannot_store_is_refused_and_affects_no_other_run(database: str, ledger: Ledger) -> None:
    async with Engine([paying(ledger)], journal=PostgresJournal(database)) as engine:
        for run in ("a\x00b", "x" * 5_000):
            result = await said(engine, call("pay", to="ann"), Scope(run=run))
            assert (result.status, result.code) == ("error", "record_failed")
        assert (await said(engine, call("pay", to="bob"), Scope(run="good"))).success
        assert not (await said(engine, call("a\x00b" * 2_000, to="bob"), Scope(run="good", actor="a\x00" * 4_000))).success
        assert (await said(engine, call("pay", to="cid"), Scope(run="good"))).success
        assert engine.journal.status().failure == ""
    assert ledger.lines() == ["bob", "cid"]


async def test_the_journal_can_be_read_by_its_url_while_it_is_open(database: str) -> None:
    journal = PostgresJournal(database, schema="mine")
    await journal.durable(journal.append(draft(1)))
    reader = open_reader(f"{database}&schema=mine")
    assert [event.position for event in reader.find(EventQuery())] == [1]
    assert reader.verify(tail=5) is None
    reader.close()
    await journal.close()
    again = PostgresJournal(f"{database}&schema=mine")
    assert again.append(draft(2)) == 2
    await again.close()
    local = database.replace("postgres@/", "/")  # a URL without user and host
    with pytest.raises(UsageError, match=r"no journal|cannot be reached: .*role"):
        open_reader(local)
    with pytest.raises(UsageError, match="no journal at postgresql://"):
        open_reader(database)


@pytest.mark.process
async def test_the_command_line_reads_the_journal_by_its_url(database: str, tmp_path: Path, ledger: Ledger) -> None:
    async with Engine([paying(ledger)], journal=PostgresJournal(database)) as engine:
        await said(engine, call("pay", to="ann"), Scope(run="order"))
        calls = shell(tmp_path, "log", "list", "--json", "--journal", database).lines
        assert [(one["uid"], one["status"]) for one in calls] == [("order/0/0", "ok")]
    assert shell(tmp_path, "log", "verify", "--journal", database).code == 0
    assert len(shell(tmp_path, "log", "export", CALLGATE_JOURNAL=database).lines) == 3
    assert not any("postgres" in name for name in os.listdir(tmp_path))


@pytest.mark.process
async def test_commands_record_in_postgres_resume_from_it_and_hide_the_password(database: str, tmp_path: Path) -> None:
    """`call`, `run`, `approvals`, `approve`, `resume` and `log` accept an address and never show its password."""
    write_tools(tmp_path)
    address = f"{database}&password=hunter2"
    listed = shell(tmp_path, "call", "list_files", "--journal", address)
    assert listed.code == 0
    assert "hunter2" not in listed.err
    crm = ("--tools", "crm.py", "--journal", address)
    pays: list[Item] = ["I pay.", Call("refund", {"order": "A7", "cents": 12})]
    async with ScriptedServer([pays, ["Done."]]) as model:
        to = ("--base-url", model.url)
        waits = await asyncio.to_thread(shell, tmp_path, "run", "Pay.", "--model", "any", *to, *crm, "--json")
        assert waits.code == 4
        assert "hunter2" not in waits.err + waits.out
        (question,) = shell(tmp_path, "approvals", "--journal", address, "--json").lines
        said = shell(tmp_path, "approve", question["approval"], "--journal", address)
        assert (said.code, "hunter2" in said.err) == (0, False)
        done = await asyncio.to_thread(shell, tmp_path, "resume", question["run"], *to, *crm)
        assert (done.code, done.out.strip()) == (0, "Done.")
    assert (tmp_path / "paid.txt").read_text().splitlines() == ["A7 12"]
    assert shell(tmp_path, "log", "verify", "--journal", address).code == 0
    for words in (("call", "list_files"), ("resume", "nobody"), ("approvals",), ("log", "list")):
        nowhere = shell(tmp_path, *words, "--journal", "postgresql://nobody:hunter2@127.0.0.1:1/none")
        assert (nowhere.code, "cannot be reached" in nowhere.err, "hunter2" in nowhere.err) == (2, True, False)


async def test_calls_are_refused_and_nothing_is_raised_if_the_database_is_gone(postgres: Server, database: str, ledger: Ledger) -> None:
    """This includes the first call of a run, whose events cannot be read any more."""
    async with Engine([paying(ledger)], journal=PostgresJournal(database)) as engine:
        assert (await said(engine, call("pay", to="ann"), Scope(run="one"))).success
        name = database.rpartition("@/")[2].partition("?")[0]
        postgres.ask(f"DROP DATABASE {name} WITH (FORCE)")
        for run in ("one", "two", ""):
            refused = await said(engine, call("pay", to="bob"), Scope(run=run))
            assert (refused.status, refused.code) == ("error", "record_failed")
            assert [outcome.result.code for outcome in await engine.call_many([call("pay", to="cid")], Scope(run=run))] == ["record_failed"]  # type: ignore[union-attr]
    assert ledger.lines() == ["ann"]


async def test_reading_from_inside_an_engine_does_not_block_its_event_loop(
    database: str, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The journal is read in a thread, both for the first call of a run and for a repeated call."""
    journal = PostgresJournal(database)
    on_loop: list[object] = []
    stored = journal._find_stored

    def watched(query: EventQuery) -> list[Event]:
        if threading.current_thread() is threading.main_thread():
            on_loop.append(query)
        return stored(query)

    monkeypatch.setattr(journal, "_find_stored", watched)
    settings = {"journal": journal, "limits": Limits(remembered_calls=0)}
    async with Engine([paying(ledger)], **settings) as engine:  # type: ignore[arg-type]
        for _ in range(2):
            assert (await said(engine, call("pay", id="1", key="k", to="ann"), Scope(run="order"))).success
        assert on_loop == []
    assert ledger.lines() == ["ann"]


async def test_a_modified_event_is_detected(postgres: Server, database: str) -> None:
    journal = PostgresJournal(database)
    for n in range(5):
        await journal.durable(journal.append(draft(n)))
    postgres.ask("UPDATE callgate.events SET body = 'x' WHERE position = 3", database)
    broken = journal.verify()
    assert broken is not None
    assert (broken.position, broken.why) == (3, "its content was changed")
    assert journal.verify(tail=2) is None
    await journal.close()


@pytest.mark.parametrize(
    ("url", "schema", "why"),
    [
        ("postgresql://nobody@127.0.0.1:1/none", "callgate", "postgresql://127.0.0.1:1/none .schema callgate. cannot be reached"),
        ("no address at all", "callgate", "not the address of a PostgreSQL database"),
        ("postgresql://localhost/x", "Robert'); DROP TABLE events;--", "cannot be a schema"),
    ],
    ids=["nobody there", "no address", "no schema"],
)
def test_an_invalid_url_or_schema_is_refused_with_the_cause(url: str, schema: str, why: str) -> None:
    pytest.importorskip("psycopg")
    with pytest.raises(UsageError, match=why):
        PostgresJournal(url, schema=schema)


def test_no_error_shows_the_password(postgres: Server) -> None:
    with pytest.raises(UsageError) as refused:
        PostgresJournal(f"{postgres.url('absent')}&password=hunter2")
    assert "hunter2" not in str(refused.value)


async def test_a_journal_of_a_newer_version_is_refused(postgres: Server, database: str) -> None:
    await PostgresJournal(database).close()
    postgres.ask(f"INSERT INTO callgate.journal_version VALUES ({VERSION + 1})", database)
    with pytest.raises(UsageError, match="newer callgate"):
        PostgresJournal(database)
    with pytest.raises(UsageError, match="newer callgate"):
        open_reader(database)


@contextmanager
def standing_still(postgres: Server, database: str) -> Iterator[None]:
    """Stop the server's processes for this database with SIGSTOP, like a machine that swaps: connections stay open but get no answer."""
    name = database.rpartition("@/")[2].partition("?")[0]
    pids = [pid for (pid,) in postgres.ask(f"SELECT pid FROM pg_stat_activity WHERE datname = '{name}'")]
    assert pids
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


@pytest.mark.skipif(os.geteuid() != 0, reason="the server is somebody else's")
async def test_waiting_for_an_unresponsive_server_is_bounded(
    postgres: Server, database: str, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = PostgresJournal(database)
    async with Engine([paying(ledger)], journal=journal) as engine:
        assert (await said(engine, call("pay", to="ann"))).success
        reader = open_reader(database)
        monkeypatch.setattr("callgate._journal.postgres_server.SERVER_ANSWER_S", 0.2)
        with standing_still(postgres, database):
            result = await said(engine, call("pay", to="bob"))
            assert (result.status, result.code) == ("error", "record_failed")
            assert "has not answered for 0.2 s" in journal.status().failure
            with pytest.raises(JournalFailed, match="has not answered for"):
                list(reader.find(EventQuery()))
            await journal.close()
        reader.close()
    assert ledger.lines() == ["ann"]


async def test_a_connection_lost_while_opening_is_reported_as_the_cause(
    postgres: Server, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error must not suggest a missing permission."""

    def cut(connection: object, place: object) -> None:
        postgres.cut_connections(database)
        prepare(connection, place)  # type: ignore[arg-type]

    prepare = postgres_journal._prepare
    monkeypatch.setattr(postgres_journal, "_prepare", cut)
    with pytest.raises(UsageError, match=r"was lost while it was opened: .* Check that the server runs") as refused:
        PostgresJournal(database)
    assert "right" not in str(refused.value)


async def test_missing_database_rights_are_reported_with_the_next_step(postgres: Server, database: str) -> None:
    postgres.ask("DO $$ BEGIN CREATE ROLE guest LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$")
    with pytest.raises(UsageError, match=r"permission denied for database .* Give its user that right"):
        PostgresJournal(database.replace("//postgres@", "//guest@"), schema="not_mine")


@pytest.mark.parametrize("hangs", [False, True], ids=["refuses", "says nothing"])
async def test_an_unreachable_server_is_reported_with_the_cause(
    hangs: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("callgate._journal.postgres_server.SERVER_CONNECT_S", 2)  # the minimum that libpq accepts
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"postgresql://ann@127.0.0.1:{listening.getsockname()[1]}/log"
        if not hangs:
            listening.close()
        why = "timeout" if hangs else "refused"
        with pytest.raises(UsageError, match=rf"cannot be reached: .*{why}.*[^.?]\. Check that the server runs and the address is right"):
            PostgresJournal(url)
        if not hangs:
            assert main(["log", "list", "--journal", url]) == 2
    assert hangs or "cannot be reached" in capsys.readouterr().err.replace("\n", " ")
