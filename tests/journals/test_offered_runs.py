"""An idle run may be continued by any engine of the journal. The one that had it reads it anew when it gets it back."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from callgate import Engine, MemoryJournal, PostgresJournal, RawCall, Scope, SqliteJournal, Suspended, Tool, Verified, inbox, tool
from callgate._engine_limits import IDLE_RUN_S
from callgate._journal import JournalAddress
from callgate._pipeline.open_runs import NO_SCOPE
from callgate.errors import RunHeld, UsageError
from tests.effect_ledger import Ledger
from tests.effect_tools import paying, paying_amounts
from tests.engine_calls import call, kinds, result_of, said
from tests.host_fakes import Asks
from tests.waiting import PATIENCE_S, soon

Stored = MemoryJournal | SqliteJournal | PostgresJournal
Journals = tuple[Stored, Stored]
CHAT = Scope(run="chat-1", conversation="chat-1")


@pytest.fixture
def _offered_as_for_users() -> None:
    """Keep the moment after which an idle run is offered, which has to be shorter than the wait of another engine."""


@pytest.fixture(autouse=True)
def _offered_soon(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the moment after which an idle run is offered."""
    if "_offered_as_for_users" not in request.fixturenames:
        monkeypatch.setattr("callgate._pipeline.open_runs.IDLE_RUN_S", IDLE_RUN_S / 10)


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def journals(request: pytest.FixtureRequest, tmp_path: object) -> AsyncIterator[Journals]:
    """Two openings of one journal. No lease expires meanwhile."""
    first: Stored
    second: Stored
    if request.param == "memory":
        first = MemoryJournal(shared=True)
        second = MemoryJournal(shared_with=first)
    elif request.param == "sqlite":
        first, second = (SqliteJournal(f"{tmp_path}/journal.db", lease_s=3_000) for _ in range(2))
    else:
        url = request.getfixturevalue("database")
        first, second = PostgresJournal(url, lease_s=3_000), PostgresJournal(url, lease_s=3_000)
    yield first, second
    await first.close()
    await second.close()


@pytest.fixture
def address(journals: Journals, request: pytest.FixtureRequest) -> JournalAddress:
    """Return where `callgate.inbox` finds the journal."""
    journal = journals[0]
    if isinstance(journal, PostgresJournal):
        return str(request.getfixturevalue("database"))
    return journal if isinstance(journal, MemoryJournal) else journal.path


def engines(journals: Journals, *tools: Tool, **options: object) -> tuple[Engine, Engine]:
    one, other = (Engine(tools, journal=journal, **options) for journal in journals)  # type: ignore[arg-type]
    return one, other


@pytest.mark.usefixtures("_offered_as_for_users")
async def test_two_engines_serve_the_calls_of_one_run_in_turn(journals: Journals, ledger: Ledger) -> None:
    one, other = engines(journals, paying(ledger))
    async with one, other:
        results = [
            await said(engine, call("pay", id=f"c{number}", to=str(number)), CHAT)
            for number, engine in enumerate((one, other, one, one, other))
        ]
    assert [result.code for result in results] == [None] * 5
    assert len({result.uid for result in results}) == 5
    assert ledger.lines() == ["0", "1", "2", "3", "4"]


async def test_an_engine_that_gets_a_run_back_knows_what_the_other_one_did(journals: Journals, ledger: Ledger) -> None:
    one, other = engines(journals, paying(ledger))
    async with one, other:
        await said(one, call("pay", id="a", to="ann"), CHAT)
        await said(other, call("pay", id="b", to="bob"), CHAT)
        again = await said(one, call("pay", id="b", to="bob"), CHAT)
    assert (again.metadata.replayed, ledger.lines()) == (True, ["ann", "bob"])


async def test_engines_pause_between_events_also_if_each_call_has_a_scope_of_its_own(journals: Journals, ledger: Ledger) -> None:
    one, other = engines(journals, paying(ledger))
    async with one, other:
        for number, engine in enumerate((one, one, other, other, one)):
            await said(engine, call("pay", id=f"c{number}", to=str(number)), Scope(run="chat-1", conversation=f"request-{number}"))
        again = await said(one, call("pay", id="c3", to="3"), Scope(run="chat-1", conversation="request-3"))
    assert (again.metadata.replayed, ledger.lines()) == (True, ["0", "1", "2", "3", "4"])


async def test_an_engine_that_released_a_run_after_its_work_knows_what_another_one_did_since(journals: Journals, ledger: Ledger) -> None:
    one, other = engines(journals, paying(ledger))
    async with one, other:
        with one.runs.at_work("chat-1"):
            await said(one, call("pay", id="a", to="ann"), Scope(run="chat-1"))
        await said(other, call("pay", id="b", to="bob"), Scope(run="chat-1"))
        again = await said(one, call("pay", id="b", to="bob"), Scope(run="chat-1"))
    assert (again.metadata.replayed, ledger.lines()) == (True, ["ann", "bob"])


async def test_a_question_of_one_engine_is_answered_and_used_up_at_another(journals: Journals, ledger: Ledger) -> None:
    one, other = engines(journals, paying(ledger, requires_approval=True))
    raw = call("pay", id="a", to="ann")
    async with one, other:
        asked = await one.call(raw, CHAT)
        assert isinstance(asked, Suspended)
        await other.approve(asked.approval_id, by="bob")
        assert (await said(other, raw, CHAT)).success
        again = await said(one, raw, CHAT)
        assert isinstance(await one.call(call("pay", id="b", to="ann"), CHAT), Suspended)
    assert (again.metadata.replayed, ledger.lines()) == (True, ["ann"])


def served(engine: Engine, asked: str) -> Awaitable[object]:
    return engine.call(call("pay", id="a", to="ann"), CHAT)


def waited(engine: Engine, asked: str) -> Awaitable[object]:
    return engine.wait_for_answer(asked, timeout_s=PATIENCE_S)


async def settled(engine: Engine, asked: str) -> None:
    with pytest.raises(UsageError, match="not in doubt"):
        await engine.settle(asked, happened=True)


async def approved(engine: Engine, asked: str) -> None:
    with pytest.raises(UsageError, match="answered with no already, by boss"):
        await engine.approve(asked, by="bob")


@pytest.mark.parametrize("first", [served, waited, settled, approved])
async def test_an_answer_that_was_sent_to_nobody_counts_at_an_engine_that_had_the_run_before(
    journals: Journals, address: JournalAddress, ledger: Ledger, first: Callable[[Engine, str], Awaitable[object]]
) -> None:
    """It holds the run's earlier state when it acquires the lease, and with it the answer."""
    one, other = engines(journals, paying(ledger), policies=[Asks("pay")])
    async with other:
        async with one:
            await said(other, call("look", id="0"), CHAT)
            asked = await one.call(call("pay", id="a", to="ann"), CHAT)
            assert isinstance(asked, Suspended)
        await asyncio.to_thread(inbox.deny, address, asked.approval_id, by="boss")
        await first(other, asked.approval_id)
        denied = await said(other, call("pay", id="a", to="ann"), CHAT)
    assert (denied.code, ledger.lines()) == ("human_denied", [])


async def test_an_idle_engine_still_gets_the_answers_that_another_process_sends(journals: Journals, ledger: Ledger) -> None:
    journal = journals[0]
    if not isinstance(journal, SqliteJournal):
        pytest.skip("one store is enough")
    async with Engine([paying(ledger, requires_approval=True)], journal=journal) as engine:
        asked = await engine.call(call("pay", id="a", to="ann"), CHAT)
        assert isinstance(asked, Suspended)
        assert await soon(lambda: "chat-1" in journal._commits._writer.leases.offered)
        sent = await asyncio.to_thread(inbox.approve, journal.path, asked.approval_id, by="carol")
        assert sent.held_by
        await asyncio.to_thread(inbox.outcome, journal.path, sent.id, wait_s=PATIENCE_S)
        question = engine.approval(asked.approval_id)
        assert question is not None
        assert (question.allowed, question.by) == (True, "carol")


async def test_a_run_with_a_call_in_flight_is_not_handed_over(journals: Journals, ledger: Ledger) -> None:
    hang = asyncio.Event()
    one, other = engines(journals, paying_amounts(ledger, hang))
    async with one, other:
        running = asyncio.ensure_future(said(one, call("pay", id="a", to="ann"), CHAT))
        assert await soon(lambda: ledger.lines() == ["ann 1"])
        held = await said(other, call("pay", id="b", to="bob"), CHAT)
        assert held.code == "run_held"
        assert "It was not run here: Run 'chat-1' is being worked on by" in held.text
        assert "If it was sent there, too, it may have run there: check that before you say that nothing was done." in held.text
        hang.set()
        assert (await running).success
        assert (await said(other, call("pay", id="b", to="bob"), CHAT)).success
    assert ledger.lines() == ["ann 1", "bob 1"]


@pytest.mark.parametrize("sender", ["call_many", "respond", "emission"])
async def test_a_held_run_is_logged_once_for_all_calls_of_a_message(
    journals: Journals, ledger: Ledger, sender: str, caplog: pytest.LogCaptureFixture
) -> None:
    hang = asyncio.Event()
    one, other = engines(journals, paying_amounts(ledger, hang))
    calls = [call("pay", id=f"c{number}", to="bob", amount=number) for number in range(3)]
    paid = [{"id": raw.id, "type": "function", "function": {"name": "pay", "arguments": json.dumps(raw.arguments)}} for raw in calls]
    message = {"role": "assistant", "content": None, "tool_calls": paid}
    async with one, other:
        running = asyncio.ensure_future(said(one, call("pay", id="a", to="ann"), CHAT))
        assert await soon(lambda: ledger.lines() == ["ann 1"])
        if sender == "call_many":
            assert [result_of(outcome).code for outcome in await other.call_many(calls, CHAT)] == ["run_held"] * 3
        elif sender == "respond":
            reply = await other.respond({"object": "chat.completion", "choices": [{"index": 0, "message": message}]}, CHAT)
            assert reply.ended == "held"
        else:
            emission = other.emission(CHAT)
            for raw in calls:
                emission.add(raw)
            assert [result_of(outcome).code for outcome in await emission.seal()] == ["run_held"] * 3
        hang.set()
        await running
    assert caplog.text.count("was not run") == 1


async def test_a_loop_is_told_that_another_engine_works_on_the_run_instead_of_asking_the_model_again(
    journals: Journals, ledger: Ledger
) -> None:
    hang = asyncio.Event()
    one, other = engines(journals, paying_amounts(ledger, hang))
    paid = {"id": "c1", "type": "function", "function": {"name": "pay", "arguments": '{"to":"bob"}'}}
    message = {"role": "assistant", "content": None, "tool_calls": [paid]}
    response = {"id": "m1", "object": "chat.completion", "choices": [{"index": 0, "finish_reason": "tool_calls", "message": message}]}
    async with one, other:
        running = asyncio.ensure_future(said(one, call("pay", id="a", to="ann"), CHAT))
        assert await soon(lambda: ledger.lines() == ["ann 1"])
        reply = await other.respond(response, CHAT)
        hang.set()
        await running
        again = await other.respond(response, CHAT)
    assert (reply.ended, reply.done, reply.messages, reply.results) == ("held", True, [], [])
    assert "is being worked on by" in reply.reason
    assert (again.ended, ledger.lines()) == (None, ["ann 1", "bob 1"])


async def test_a_loop_can_wait_until_no_other_engine_works_on_the_run(journals: Journals, ledger: Ledger) -> None:
    hang = asyncio.Event()
    one, other = engines(journals, paying_amounts(ledger, hang))
    async with one, other:
        running = asyncio.ensure_future(said(one, call("pay", id="a", to="ann"), CHAT))
        assert await soon(lambda: ledger.lines() == ["ann 1"])
        assert not await other.wait_for_run(CHAT, timeout_s=0.01)
        waiting = asyncio.ensure_future(other.wait_for_run(CHAT))
        assert (await said(other, call("pay", id="b", to="bob"), CHAT)).code == "run_held"
        hang.set()
        await running
        assert await asyncio.wait_for(waiting, PATIENCE_S)
        assert (await said(other, call("pay", id="b", to="bob"), CHAT)).success
    assert ledger.lines() == ["ann 1", "bob 1"]


def test_a_loop_without_async_code_can_wait_for_a_run_that_is_free(ledger: Ledger) -> None:
    engine = Engine([paying(ledger)])
    assert engine.wait_for_run_sync(CHAT, timeout_s=PATIENCE_S)
    engine.close_sync()


async def test_the_wait_for_a_run_ends_when_its_engine_is_closed(journals: Journals, ledger: Ledger) -> None:
    one, other = engines(journals, paying(ledger))
    async with one:
        with one.runs.at_work(CHAT.run):
            await one.runs.open(CHAT)
            waiting = asyncio.ensure_future(other.wait_for_run(CHAT))
            assert not await other.wait_for_run(CHAT, timeout_s=0.01)
            await other.close()
            with pytest.raises(UsageError, match="closed"):
                await asyncio.wait_for(waiting, PATIENCE_S)


@pytest.mark.parametrize("hangs", [False, True], ids=["raised", "timed out"])
async def test_verify_counts_for_an_engines_own_call_after_another_engine_had_the_run(
    journals: Journals, ledger: Ledger, hangs: bool
) -> None:
    known: list[bool | None] = [None]

    @tool(verify=lambda arguments, key: Verified(happened=known[0]), timeout_s=0.2 if hangs else None)
    async def pay(to: str) -> str:
        """Pay somebody."""
        ledger.write(to)
        if len(ledger.lines()) > 1:
            return f"paid {to}"
        if hangs:
            await asyncio.Event().wait()
        raise ConnectionError(to)

    one, other = engines(journals, pay)
    async with one, other:
        assert (await said(one, call("pay", id="a", to="ann"), CHAT)).status == "unknown"
        assert (await said(other, call("pay", id="b", to="ann"), CHAT)).status == "unknown"
        known[0] = False
        refused = await said(other, call("pay", id="c", to="ann"), CHAT)
        again = await said(one, call("pay", id="d", to="ann"), CHAT)
    assert (refused.status, again.status, ledger.lines()) == ("unknown", "ok", ["ann", "ann"])


async def test_a_run_with_an_unknown_outcome_is_handed_over_if_its_code_has_ended(journals: Journals) -> None:
    @tool
    async def pay(to: str) -> str:
        """Pay somebody."""
        raise ConnectionError(to)

    one, other = engines(journals, pay)
    async with one, other:
        unknown = await said(one, call("pay", id="a", to="ann"), CHAT)
        assert unknown.status == "unknown"
        again = await said(other, call("pay", id="b", to="ann"), CHAT)
        assert (again.status, again.data) == ("unknown", {"earlier_call": unknown.uid})
        await other.settle(unknown.uid, happened=False)
        assert (await said(other, call("pay", id="c", to="ann"), CHAT)).data != again.data


async def test_a_run_stays_at_its_engine_while_code_of_an_unknown_call_runs_there(journals: Journals, ledger: Ledger) -> None:
    ends = threading.Event()

    @tool(timeout_s=0.05)
    def wait() -> str:
        """Wait."""
        ends.wait(PATIENCE_S)
        return "waited"

    one, other = engines(journals, wait, paying(ledger))
    async with one, other:
        unknown = await said(one, call("wait", id="a"), CHAT)
        held = await said(other, call("pay", id="b", to="bob"), CHAT)
        ends.set()
        assert await soon(lambda: one._parts.latest_scope.opened is NO_SCOPE)
        assert (await said(other, call("pay", id="b", to="bob"), CHAT)).success
    assert (unknown.status, held.code) == ("unknown", "run_held")
    assert f"Code of wait ({unknown.uid}), whose outcome is unknown, may still run there." in held.text


async def test_the_own_run_of_an_engine_is_never_handed_over(journals: Journals, ledger: Ledger) -> None:
    one, other = engines(journals, paying(ledger))
    async with one, other:
        await said(one, call("pay", id="a", to="ann"))
        with pytest.raises(RunHeld):
            await other.runs.open(Scope(run=one.run))


async def test_an_emission_that_was_made_before_another_engines_calls_gets_their_results(journals: Journals, ledger: Ledger) -> None:
    """Its run was handed over while the model wrote; its calls would have the numbers and the effects of the other engine's."""
    one, other = engines(journals, paying(ledger))
    async with one, other:
        await said(one, call("pay", id="a", to="ann"), CHAT)
        emission = one.emission(CHAT)
        await said(other, call("pay", id="b", to="bob"), CHAT)
        emission.add(call("pay", id="b", to="bob"))
        (outcome,) = await emission.seal()
        again = await said(one, call("pay", id="b", to="bob"), CHAT)
    assert (result_of(outcome).metadata.replayed, again.metadata.replayed, ledger.lines()) == (True, True, ["ann", "bob"])


async def test_an_engine_that_keeps_an_idle_run_does_not_read_it_again(journals: Journals, ledger: Ledger) -> None:
    one = Engine([paying(ledger)], journal=journals[0])
    async with one:
        await said(one, call("pay", id="a", to="ann"), CHAT)
        state = one._parts.run_states.by_run["chat-1"]
        assert await soon(lambda: one._parts.latest_scope.opened is NO_SCOPE)
        await said(one, RawCall(name="pay", arguments={"to": "bob"}, id="b"), CHAT)
        assert one._parts.run_states.by_run["chat-1"] is state
        assert kinds(one).count("call.completed") == 2
