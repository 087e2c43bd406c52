"""What a journal on a server promises on top of the contract: one writer by a lease, and a lost server is never silent."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from callgate import Engine, EventQuery, PostgresJournal, Scope, UsageError, tool
from callgate._journal import open_reader
from callgate._journal.tables import VERSION
from callgate.errors import JournalFailed
from callgate.events import Draft
from tests.cli.shell import shell
from tests.door import call, said
from tests.journals.server import Server
from tests.ledger import Ledger
from tests.patience import soon


def draft(n: int, *, run: str = "r", kind: str = "call.started") -> Draft:
    return Draft(kind=kind, run=run, body=json.dumps({"n": n}).encode())


def paying(ledger: Ledger) -> object:
    @tool
    async def pay(to: str) -> str:
        """Pay."""
        ledger.write(to)
        return f"paid {to}"

    return pay


def lease_runs_out(server: Server, database: str) -> None:
    """As if the holder had shown no sign of life for long enough, by the server's clock."""
    server.ask("UPDATE callgate.writer SET expires_ns = 1", database)


async def test_two_engines_cannot_write_one_journal_and_the_second_is_told_who_does(database: str) -> None:
    journal = PostgresJournal(database, lease_s=1000)
    with pytest.raises(UsageError, match=r"another engine \(process \d+ on .+\), which holds it for \d+ s more"):
        PostgresJournal(database)
    other = PostgresJournal(database, schema="another")
    await other.durable(other.append(draft(1)))
    await other.close()
    await journal.close()
    await PostgresJournal(database).close()


async def test_a_writer_that_lost_its_lease_can_record_nothing_more(server: Server, database: str) -> None:
    """The database refuses by the epoch: what was in flight when another took over is not kept, and is not told as kept."""
    first = PostgresJournal(database, lease_s=1000)
    await first.durable(first.append(draft(1)))
    lease_runs_out(server, database)
    second = PostgresJournal(database, lease_s=1000)
    with pytest.raises(JournalFailed, match="Another engine has taken over"):
        await first.durable(first.append(draft(2)))
    with pytest.raises(JournalFailed):
        first.append(draft(3))
    await second.durable(second.append(draft(4)))
    assert [(event.position, json.loads(event.body)["n"]) for event in second.read()] == [(1, 1), (2, 4)]
    assert second.verify() is None
    await first.close()
    with pytest.raises(UsageError, match="another engine"):
        PostgresJournal(database)
    await second.close()


async def test_an_engine_that_lost_its_lease_starts_nothing_with_an_effect(server: Server, database: str, ledger: Ledger) -> None:
    async with Engine([paying(ledger)], journal=PostgresJournal(database, lease_s=1000)) as engine:  # type: ignore[list-item]
        assert (await said(engine, call("pay", to="ann"))).success
        lease_runs_out(server, database)
        second = PostgresJournal(database)
        result = await said(engine, call("pay", to="bob"))
        assert (result.status, result.code) == ("error", "record_failed")
        await second.close()
    assert ledger.lines() == ["ann"]


async def test_a_lease_that_ran_out_and_was_not_taken_is_still_held(server: Server, database: str) -> None:
    journal = PostgresJournal(database, lease_s=1000)
    lease_runs_out(server, database)
    await journal.durable(journal.append(draft(1)))
    with pytest.raises(UsageError, match="another engine"):
        PostgresJournal(database)
    await journal.close()


async def test_an_idle_writer_renews_its_lease(server: Server, database: str) -> None:
    journal = PostgresJournal(database, lease_s=1)
    ends = server.ask("SELECT expires_ns FROM callgate.writer", database)
    assert await soon(lambda: server.ask("SELECT expires_ns FROM callgate.writer", database) > ends)
    await journal.close()


async def test_a_lost_connection_stops_the_engine_before_the_next_effect_and_says_what_to_do(
    server: Server, database: str, ledger: Ledger
) -> None:
    async with Engine([paying(ledger)], journal=PostgresJournal(database)) as engine:  # type: ignore[list-item]
        assert (await said(engine, call("pay", to="ann"))).success
        server.cut_connections(database)
        for run in ("", "another", ""):
            result = await said(engine, call("pay", to="bob"), Scope(run=run))
            assert (result.status, result.code) == ("error", "record_failed")
        failure = engine.journal.status().failure
        assert "is lost" in failure
        assert "Make a new engine once the server answers" in failure
    assert ledger.lines() == ["ann"]


async def test_a_lost_connection_for_reading_is_made_again(server: Server, database: str) -> None:
    journal = PostgresJournal(database)
    await journal.durable(journal.append(draft(1)))
    server.cut_connections(database)
    assert [event.position for event in journal.read(run="r")] == [1]
    with pytest.raises(JournalFailed, match="is lost"):
        await journal.durable(journal.append(draft(2)))
    await journal.close()


async def test_a_connection_lost_between_the_effect_and_its_result_leaves_it_unknown(server: Server, database: str, ledger: Ledger) -> None:
    """Told means kept: what could not be recorded is not told as a success; a later engine does not do it again."""

    @tool
    async def act() -> str:
        """Act while the server goes away."""
        ledger.write("acted")
        server.cut_connections(database)
        return "done"

    async with Engine([act], journal=PostgresJournal(database)) as engine:
        result = await said(engine, call("act", id="1"), Scope(run="order"))
        assert (result.status, result.code) == ("unknown", "record_failed")
    lease_runs_out(server, database)
    async with Engine([act], journal=PostgresJournal(database)) as engine:
        result = await said(engine, call("act", id="1"), Scope(run="order"))
        assert result.status == "unknown"
    assert ledger.lines() == ["acted"]


async def test_a_run_that_the_database_cannot_name_is_refused_and_hurts_no_other(database: str, ledger: Ledger) -> None:
    async with Engine([paying(ledger)], journal=PostgresJournal(database)) as engine:  # type: ignore[list-item]
        for run in ("a\x00b", "x" * 5_000):
            result = await said(engine, call("pay", to="ann"), Scope(run=run))
            assert (result.status, result.code) == ("error", "record_failed")
        assert (await said(engine, call("pay", to="bob"), Scope(run="good"))).success
        assert not (await said(engine, call("a\x00b" * 2_000, to="bob"), Scope(run="good", actor="a\x00" * 4_000))).success
        assert (await said(engine, call("pay", to="cid"), Scope(run="good"))).success
        assert engine.journal.status().failure == ""
    assert ledger.lines() == ["bob", "cid"]


async def test_it_is_read_from_beside_by_its_address(database: str) -> None:
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
    local = database.replace("postgres@/", "/")  # no host and no user before the path
    with pytest.raises(UsageError, match=r"no journal|cannot be reached: .*role"):
        open_reader(local)
    with pytest.raises(UsageError, match="no journal at postgresql://"):
        open_reader(database)


@pytest.mark.process
async def test_the_command_line_reads_it_by_its_address(database: str, tmp_path: Path, ledger: Ledger) -> None:
    async with Engine([paying(ledger)], journal=PostgresJournal(database)) as engine:  # type: ignore[list-item]
        await said(engine, call("pay", to="ann"), Scope(run="order"))
        calls = shell(tmp_path, "log", "list", "--json", "--journal", database).lines
        assert [(one["uid"], one["status"]) for one in calls] == [("order/0/0", "ok")]
    assert shell(tmp_path, "log", "verify", "--journal", database).code == 0
    assert len(shell(tmp_path, "log", "export", CALLGATE_JOURNAL=database).lines) == 4
    refused = shell(tmp_path, "call", "list_files", "--journal", database)
    assert (refused.code, "record in a file" in refused.err) == (2, True)
    assert not any("postgres" in name for name in os.listdir(tmp_path))


async def test_a_changed_event_is_found(server: Server, database: str) -> None:
    journal = PostgresJournal(database)
    for n in range(5):
        await journal.durable(journal.append(draft(n)))
    server.ask("UPDATE callgate.events SET body = 'x' WHERE position = 3", database)
    broken = journal.verify()
    assert broken is not None
    assert (broken.position, broken.why) == (3, "its content was changed")
    assert journal.verify(tail=2) is None
    await journal.close()


@pytest.mark.parametrize(
    ("url", "schema", "why"),
    [
        ("postgresql://nobody@127.0.0.1:1/none", "callgate", "cannot be reached"),
        ("no address at all", "callgate", "no address of a PostgreSQL database"),
        ("postgresql://localhost/x", "Robert'); DROP TABLE events;--", "cannot be a schema"),
    ],
    ids=["nobody there", "no address", "no schema"],
)
def test_a_place_that_cannot_be_is_refused_with_what_to_do(url: str, schema: str, why: str) -> None:
    pytest.importorskip("psycopg")
    with pytest.raises(UsageError, match=why):
        PostgresJournal(url, schema=schema)


def test_no_error_shows_the_password(server: Server) -> None:
    with pytest.raises(UsageError) as refused:
        PostgresJournal(f"{server.url('absent')}&password=hunter2")
    assert "hunter2" not in str(refused.value)


async def test_a_newer_journal_is_refused(server: Server, database: str) -> None:
    await PostgresJournal(database).close()
    server.ask(f"INSERT INTO callgate.journal_version VALUES ({VERSION + 1})", database)
    with pytest.raises(UsageError, match="newer callgate"):
        PostgresJournal(database)
    with pytest.raises(UsageError, match="newer callgate"):
        open_reader(database)
