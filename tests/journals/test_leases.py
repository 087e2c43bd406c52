"""Tests of run leases: after an engine loses a run's lease, the store refuses its events and it starts no call.

The tests run over memory, SQLite and PostgreSQL. Two openings of one journal stand for two processes; `tests/recovery` uses real processes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

import pytest
from msgspec.structs import replace

from callgate import Engine, MemoryJournal, PostgresJournal, Scope, SqliteJournal, UsageError
from callgate._journal.in_memory_store import MemoryLeases
from callgate._journal.lease_acquisition import Leases
from callgate.agent import Agent
from callgate.errors import LeaseLost, RunHeld
from callgate.events import Draft
from tests.agent.scripted_model import Gate, Script, call, says
from tests.effect_ledger import Ledger
from tests.effect_tools import Unending, paying
from tests.engine_calls import call as raw_call
from tests.engine_calls import said
from tests.journals.postgres_server import Server
from tests.waiting import PATIENCE_S, soon

Stored = MemoryJournal | SqliteJournal | PostgresJournal
Open = Callable[[], Stored]
Run = Scope(run="order")
HELD = r"Run 'order' is being worked on by process \d+.*, which holds it (for \d+ s more|until it gives it back)"


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: object) -> Open:
    """Return a function that opens the same journal each time it is called."""
    if request.param == "memory":
        events = MemoryJournal(shared=True)
        return lambda: MemoryJournal(shared_with=events)
    if request.param == "sqlite":
        return lambda: SqliteJournal(f"{tmp_path}/journal.db", lease_s=3_000)
    url = request.getfixturevalue("database")
    return lambda: PostgresJournal(url, lease_s=3_000)


@pytest.fixture
async def first(place: Open) -> AsyncIterator[Stored]:
    journal = place()
    yield journal
    await journal.close()


@pytest.fixture
async def second(place: Open) -> AsyncIterator[Stored]:
    journal = place()
    yield journal
    await journal.close()


def expire(journal: Stored, run: str = "order", at_ns: int = 1) -> None:
    """Set the lease's expiry in the store, as if its holder had been paused for longer than the lease."""
    if isinstance(journal, MemoryJournal):
        lease = journal.store.leases.get(run)
        assert lease is not None
        journal.store.leases.put(replace(lease, expires_ns=at_ns))
        return
    sql = f"UPDATE leases SET expires_ns = {at_ns} WHERE run = '{run}'"
    if isinstance(journal, SqliteJournal):
        import apsw

        with apsw.Connection(str(journal.path)) as connection:
            connection.set_busy_timeout(30_000)
            connection.execute(sql)
        return
    with journal._place.connect() as connection:
        connection.execute(sql.encode())


def holds(journal: Stored, run: str) -> bool:
    return run in journal._leases.epochs if isinstance(journal, MemoryJournal) else journal._commits.holds(run)


def verifies(journal: Stored) -> bool:
    return isinstance(journal, MemoryJournal) or journal.verify() is None


def note(n: int, run: str = "order", *parents: int, kind: str = "call.received") -> Draft:
    return Draft(kind=kind, run=run, call=f"{run}/0/{n}", body=b"%d" % n, parents=parents)


async def test_a_run_held_by_another_engine_is_refused_with_its_holder_and_expiry(first: Stored, second: Stored) -> None:
    assert await first.acquire_lease("order")
    assert not await first.acquire_lease("order")
    with pytest.raises(RunHeld, match=HELD) as refused:
        await second.acquire_lease("order")
    assert refused.value.code == "run_held"
    with pytest.raises(LeaseLost, match="worked on by process"):
        await second.durable(second.append(note(1)))
    first.release_lease("order")
    assert await soon(lambda: not holds(first, "order"))
    assert await second.acquire_lease("order")


async def test_closing_a_journal_releases_its_leases(place: Open, second: Stored) -> None:
    first = place()
    await first.acquire_lease("order")
    await first.close()
    assert await second.acquire_lease("order")


async def test_two_journals_write_different_runs_concurrently_into_one_hash_chain(first: Stored, second: Stored) -> None:
    """Provisional positions and causes are corrected when another journal wrote first. No event is lost or moves after it was read."""

    async def work(journal: Stored, run: str) -> list[int]:
        given = [journal.append(note(0, run))]
        for n in range(1, 40):
            given.append(journal.append(note(n, run, given[-1])))
            if n % 3 == 0:
                await journal.durable(given[-1])
        await journal.durable(given[-1])
        return [journal.final_position(position) for position in given]

    ours, theirs = await asyncio.gather(work(first, "a"), work(second, "b"))
    assert sorted(ours + theirs) == list(range(1, 81))
    for journal in (first, second):
        assert verifies(journal)
        for run, places in (("a", ours), ("b", theirs)):
            events = list(journal.read(run=run))
            assert [event.position for event in events] == places
            assert [event.seq for event in events] == list(range(1, 41))
            assert [event.parents for event in events] == [(), *((place,) for place in places[:-1])]


async def test_events_written_without_the_lease_are_numbered_by_the_store(first: Stored, second: Stored) -> None:
    """An undo may record an event in a call's run while another engine holds the run's lease."""
    await first.durable(first.append(note(1)))
    await second.durable(second.append(note(2, kind="files.undone")))
    await first.durable(first.append(note(3)))
    assert [event.seq for event in first.read(run="order")] == [1, 2, 3]
    assert verifies(first)


async def test_a_journal_that_lost_a_lease_records_only_its_other_runs(first: Stored, second: Stored) -> None:
    await first.durable(first.append(note(1)))
    await first.durable(first.append(note(1, "other")))
    expire(first)
    await second.acquire_lease("order")
    with pytest.raises(LeaseLost, match="was taken over by another engine"):
        await first.durable(first.append(note(2)))
    with pytest.raises(LeaseLost):
        first.append(note(3))
    await first.durable(first.append(note(2, "other")))
    await second.durable(second.append(note(4)))
    assert [event.body for event in second.read(run="order")] == [b"1", b"4"]
    before, after = (event.epoch for event in second.read(run="order"))
    assert after > before
    assert verifies(second)
    assert first.status().failure == ""


async def test_an_expired_lease_that_nobody_took_is_still_held(first: Stored) -> None:
    await first.durable(first.append(note(1)))
    expire(first)
    await first.durable(first.append(note(2)))
    assert len({event.epoch for event in first.read(run="order")}) == 1


async def test_a_lease_with_an_impossibly_late_expiry_can_be_taken_over(first: Stored, second: Stored) -> None:
    """A clock that was set back must not make a run unavailable for ever."""
    await first.durable(first.append(note(1)))
    expire(first, at_ns=9_000_000_000_000_000_000)
    assert await second.acquire_lease("order")


async def test_an_invalid_lease_duration_is_refused(place: Open, tmp_path: object) -> None:
    for lease_s in (0, -1, 4_000, "30"):
        with pytest.raises(UsageError, match="Give seconds"):
            SqliteJournal(f"{tmp_path}/other.db", lease_s=lease_s)  # type: ignore[arg-type]


async def test_a_call_in_a_run_held_by_another_engine_returns_an_error_result(
    first: Stored, second: Stored, ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    """No exception is raised; the model and the host read in the result who holds the run, and the log says how to wait for it."""
    pay = paying(ledger)
    async with Engine([pay], journal=first) as one, Engine([pay], journal=second) as other:
        assert (await said(one, raw_call("pay", to="ann"), Run)).success
        with one.runs.at_work("order"):
            refused = await said(other, raw_call("pay", to="bob"), Run)
            assert (refused.status, refused.code, refused.failure_class) == ("error", "run_held", "record_failed")
            assert "worked on by process" in refused.text
            assert "wait_for_run" not in refused.text
            assert "await engine.wait_for_run(scope, timeout_s=60)" in caplog.text
            assert (await other.call_many([raw_call("pay", to="bob")], Run))[0].result.code == "run_held"  # type: ignore[union-attr]
        assert (await said(other, raw_call("pay", to="cid"), Scope(run="another"))).success
    assert ledger.lines() == ["ann", "cid"]


async def test_an_engine_that_lost_a_lease_starts_no_more_calls_in_that_run(first: Stored, second: Stored, ledger: Ledger) -> None:
    async with Engine([paying(ledger)], journal=first) as engine:
        assert (await said(engine, raw_call("pay", to="ann"), Run)).success
        expire(first)
        await second.acquire_lease("order")
        for _ in range(2):
            refused = await said(engine, raw_call("pay", to="bob"), Run)
            assert (refused.status, refused.code) == ("error", "lease_lost")
            assert "taken over" in refused.text
        assert (await said(engine, raw_call("pay", to="cid"), Scope(run="another"))).success
    assert ledger.lines() == ["ann", "cid"]


async def test_a_running_call_whose_lease_is_lost_ends_with_an_unknown_outcome(first: Stored, second: Stored) -> None:
    unending = Unending()
    async with Engine([unending.tool()], journal=first) as engine:
        calling = asyncio.ensure_future(said(engine, raw_call("act"), Run))
        await unending.begun.wait()
        expire(first)
        await second.acquire_lease("order")
        with suppress(LeaseLost):  # an idle engine notices the loss at its next write or renewal
            first.append(note(9, kind="run.message"))
        result = await calling
        assert (result.status, result.code) == ("unknown", "lease_lost")
        assert unending.ended.is_set()
        assert "taken over" in result.text
    assert [event.kind for event in second.read(run="order")] == ["call.received", "call.started"]


async def test_an_agent_run_that_is_taken_over_fails_with_the_reason(first: Stored, second: Stored, ledger: Ledger) -> None:
    gate = Gate()
    engine = Engine([paying(ledger)], journal=first)
    async with engine, Agent(Script([gate, *says("Paying.", call("pay", {"to": "ann"}, id="1"))], says("Done.")), engine) as agent:
        running = asyncio.ensure_future(agent.run("Pay.", scope=Run))
        await gate.reached.wait()
        expire(first)
        await second.acquire_lease("order")
        with suppress(LeaseLost):  # the journal may have noticed the loss already
            first.append(note(9, kind="run.message"))
        gate.open.set()
        result = await running
        assert (result.status, result.turn_status) == ("failed", "error")
        assert "taken over" in result.reason
    assert ledger.lines() == []


async def test_the_lease_of_an_ended_run_is_released_while_its_engine_stays_open(first: Stored, second: Stored, ledger: Ledger) -> None:
    """The engine stays open after the run ends and releases its lease; it keeps the lease of another active run."""
    gate = Gate()
    pay = says("Paying.", call("pay", {"to": "ann"}, id="1"))
    engine, other = (Engine([paying(ledger)], journal=journal) for journal in (first, second))
    async with engine, other:
        busy = asyncio.ensure_future(Agent(Script([gate, *pay], says("Done.")), engine).run("Pay.", scope=Scope(run="busy")))
        await gate.reached.wait()
        assert (await Agent(Script(pay, says("Done.")), engine).run("Pay.", scope=Run)).text == "Done."
        assert await soon(lambda: not holds(first, "order"))
        assert (await said(other, raw_call("pay", to="bob"), Run)).success
        assert (await said(other, raw_call("pay", to="cid"), Scope(run="busy"))).code == "run_held"
        gate.open.set()
        assert (await busy).text == "Done."
    assert ledger.lines() == ["ann", "bob", "ann"]


async def test_an_engine_holds_the_lease_of_its_own_run_until_it_is_closed(first: Stored, second: Stored, ledger: Ledger) -> None:
    """The engine also keeps the lease after an agent has finished in its run."""
    pay = says("Paying.", call("pay", {"to": "ann"}, id="1"))
    engine, other = (Engine([paying(ledger)], journal=journal) for journal in (first, second))
    async with other:
        async with engine:
            assert (await Agent(Script(pay, says("Done.")), engine).run("Pay.", scope=Scope(run=engine.run))).text == "Done."
            for _ in range(3):
                await first.durable(first.append(note(1, "another")))
            assert (await said(other, raw_call("pay", to="bob"), Scope(run=engine.run))).code == "run_held"
        assert (await said(other, raw_call("pay", to="cid"), Scope(run=engine.run))).success
    assert ledger.lines() == ["ann", "cid"]


async def test_leases_of_idle_runs_are_released_and_those_of_active_runs_are_kept(
    first: Stored, second: Stored, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The least recently used idle runs are released first; an agent that waits for its model is not idle."""
    monkeypatch.setattr("callgate._pipeline.run_states._MOST_RUNS", 4)
    gate = Gate()
    engine, other = (Engine([paying(ledger)], journal=journal) for journal in (first, second))
    async with engine, other:
        assert (await said(engine, raw_call("pay", to="own"))).success
        waiting = asyncio.ensure_future(Agent(Script([gate, *says("Done.")]), engine).run("Wait.", scope=Scope(run="waits")))
        await gate.reached.wait()
        for n in range(16):
            assert (await said(engine, raw_call("pay", to=str(n)), Scope(run=f"run-{n}"))).success
        assert await soon(lambda: not holds(first, "run-0"))
        assert (await said(other, raw_call("pay", to="ann"), Scope(run="run-0"))).success
        for run in ("waits", engine.run):
            assert (await said(other, raw_call("pay", to="bob"), Scope(run=run))).code == "run_held"
        gate.open.set()
        assert (await waiting).text == "Done."


async def test_a_lost_run_can_be_acquired_again_and_its_state_is_reloaded(first: Stored, second: Stored, ledger: Ledger) -> None:
    async with Engine([paying(ledger)], journal=first) as engine:
        assert (await said(engine, raw_call("pay", to="ann", id="1"), Run)).success
        expire(first)
        async with Engine([paying(ledger)], journal=second) as other:
            assert (await said(other, raw_call("pay", to="bob", id="2"), Run)).success
            assert (await said(engine, raw_call("pay", to="cid"), Run)).code == "lease_lost"
        again = await said(engine, raw_call("pay", to="bob", id="2"), Scope(run="order"))
        assert (again.status, again.metadata.replayed) == ("ok", True)
    assert ledger.lines() == ["ann", "bob"]


def test_a_lease_is_renewed_three_times_within_its_duration(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interval starts when the first lease is taken; without a lease nothing is renewed."""
    now = 100.0
    monkeypatch.setattr("callgate._journal.lease_acquisition.time.monotonic", lambda: now)

    def due_after(passed_s: float) -> bool:
        nonlocal now
        now += passed_s
        return leases.renewal_is_due

    leases = Leases(MemoryLeases(), 1, "me", lease_s=30)
    assert not due_after(100)
    leases.acquire("order")
    leases.acquire("other")
    assert [due_after(passed_s) for passed_s in (9, 1)] == [False, True]
    leases.renew()
    assert [due_after(passed_s) for passed_s in (0, 9.5, 0.5)] == [False, False, True]
    leases.release(["order"])
    assert due_after(0)
    leases.release(["other"])
    assert not due_after(0)


async def test_an_idle_holder_renews_its_lease(tmp_path: object, request: pytest.FixtureRequest) -> None:
    import apsw

    journal = SqliteJournal(f"{tmp_path}/journal.db", lease_s=0.5)
    await journal.acquire_lease("order")
    reader = apsw.Connection(str(journal.path), flags=apsw.SQLITE_OPEN_READONLY)
    ends = reader.execute("SELECT expires_ns FROM leases").get
    assert await soon(lambda: reader.execute("SELECT expires_ns FROM leases").get > ends)
    reader.close()
    await journal.close()


async def test_postgres_releases_the_lease_of_a_holder_whose_connection_ended(postgres: Server, database: str) -> None:
    """The run is free as soon as the connection ends, long before the lease expires."""
    journal, other = PostgresJournal(database, lease_s=3_000), PostgresJournal(f"{database}", lease_s=3_000)
    await journal.acquire_lease("order")
    journal._commits._writer._store._connection.close()  # type: ignore[attr-defined]
    held = False
    async with asyncio.timeout(PATIENCE_S):
        while not held:
            with suppress(RunHeld):  # until the server notices the closed connection
                held = await other.acquire_lease("order")
    await other.close()
    await journal.close()
