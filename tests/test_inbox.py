"""Messages of other processes to a run (answers to approvals, stop, kill): the engine that holds the run processes each of them once.

Any process may write to the inbox; it needs no lease.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from callgate import (
    Aborted,
    Answered,
    CallgateError,
    Engine,
    MemoryJournal,
    PostgresJournal,
    Scope,
    SqliteJournal,
    Suspended,
    UsageError,
    inbox,
    tool,
)
from callgate._journal.inbox_sender import open_inbox
from callgate.agent import Agent
from callgate.events import Event
from tests.agent.scripted_model import Gate, Script, call, says
from tests.effect_ledger import Ledger
from tests.effect_tools import Unending, paying
from tests.engine_calls import call as raw_call
from tests.engine_calls import said
from tests.host_fakes import Asks
from tests.waiting import soon

RUN = "the-run"
IN_RUN = Scope(run=RUN)
PAY = says("Paying.", call("pay", {"to": "ann"}, id="1"))
ASKS = Asks("pay", question="Pay {to}?")
Stored = MemoryJournal | SqliteJournal | PostgresJournal
Where = str | MemoryJournal


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> Where:
    if request.param == "memory":
        return MemoryJournal(shared=True)
    return str(tmp_path / "journal.db") if request.param == "sqlite" else str(request.getfixturevalue("database"))


def opened(where: Where) -> Stored:
    if isinstance(where, MemoryJournal):
        return MemoryJournal(shared_with=where)
    return PostgresJournal(where) if where.startswith("postgres") else SqliteJournal(where)


def of(journal: Stored, *kinds: str) -> list[Event]:
    return [event for event in journal.read(run=RUN) if event.kind in kinds]


async def folded(journal: Stored, count: int = 1) -> list[Event]:
    """Return the events of accepted and refused messages once there are `count` of them."""
    assert await soon(lambda: len(of(journal, "inbox.taken", "inbox.refused")) >= count)
    return of(journal, "inbox.taken", "inbox.refused")


async def asked(engine: Engine) -> Suspended:
    outcome = await engine.call(raw_call("pay", id="1", to="ann"), IN_RUN)
    assert isinstance(outcome, Suspended)
    return outcome


async def test_a_question_is_listed_and_approved_through_the_inbox_and_its_call_runs_once(where: Where, ledger: Ledger) -> None:
    """The accepted message has the question as its cause, and the answer has the message as its cause."""
    async with Engine([paying(ledger)], policies=[ASKS], journal=(journal := opened(where))) as engine:
        question = await asked(engine)
        assert await soon(lambda: inbox.waiting(where))
        (waits,) = inbox.waiting(where)
        assert (waits.approval, waits.run, waits.tool, waits.question) == (question.approval_id, RUN, "pay", "Pay ann?")
        assert json.loads(waits.arguments) == {"to": "ann"}
        assert waits.held_by.startswith("process ")
        sent = inbox.approve(where, question.approval_id, by="carol", reason="checked")
        assert sent.held_by == waits.held_by
        (taken,) = await folded(journal)
        assert inbox.outcome(where, sent.id, wait_s=60).position == taken.position
        assert (await said(engine, raw_call("pay", id="1", to="ann"), IN_RUN)).text == "paid ann"
        assert isinstance(await engine.call(raw_call("pay", id="2", to="bob"), IN_RUN), Suspended)
        (suspended, _), (answered,) = of(journal, "call.suspended"), of(journal, "approval.answered")
        assert (taken.kind, taken.parents, answered.parents) == ("inbox.taken", (suspended.position,), (taken.position,))
        assert json.loads(answered.body)["reason"] == "carol"
        assert json.loads(taken.body) == {
            "reason": "checked (carol)",
            "details": {"wanted": "approve", "by": "carol", "at_ns": json.loads(taken.body)["details"]["at_ns"]},
        }
        with pytest.raises(UsageError, match="Nothing was sent"):
            inbox.approve(where, question.approval_id, by="carol")
    assert ledger.lines() == ["ann"]


async def test_an_answer_to_an_idle_run_waits_until_the_run_is_resumed(where: Where, ledger: Ledger) -> None:
    for decide, people in ((inbox.approve, ["ann"]), (inbox.deny, ["ann"])):
        run = f"{RUN}-{decide.__name__}"
        engine = Engine([paying(ledger)], policies=[ASKS], journal=opened(where))
        async with engine, Agent(Script(PAY), engine) as agent:
            assert (await agent.run("Pay.", scope=Scope(run=run))).status == "waiting"
        sent = decide(where, f"{run}/0/0", by="carol")
        assert (sent.held_by, inbox.outcome(where, sent.id)) == ("", inbox.MessageOutcome())
        engine = Engine([paying(ledger)], policies=[ASKS], journal=opened(where))
        async with engine, Agent(Script(says("Done.")), engine) as agent:
            result = await agent.resume(run)
            assert result.status == "completed"
            assert inbox.outcome(where, sent.id, wait_s=60).position
            assert result.results[-1].code in (None, "human_denied")
        assert ledger.lines() == people


@pytest.mark.parametrize("end", [inbox.stop, inbox.kill], ids=["stop", "kill"])
async def test_a_stop_or_kill_through_the_inbox_ends_the_run(where: Where, ledger: Ledger, end: Callable[..., inbox.SentMessage]) -> None:
    gate = Gate()
    engine = Engine([paying(ledger)], journal=(journal := opened(where)))
    async with engine, Agent(Script([gate, *PAY]), engine) as agent:
        running = asyncio.ensure_future(agent.run("Pay.", scope=IN_RUN, conversation="talk"))
        await gate.reached.wait()
        assert await soon(lambda: not_raising(lambda: end(where, RUN, by="carol", reason="wrong task")))
        result = await running
        assert (result.turn_status, ledger.lines()) == ("stopped_by_user", [])
        assert "from another process: wrong task (carol)" in result.reason
        assert [event.kind for event in await folded(journal)] == ["inbox.taken"]
    with pytest.raises(UsageError, match="is over: it ended 'stopped_by_user'"):
        end(where, RUN, by="carol")


def not_raising(do: Callable[[], object]) -> bool:
    try:
        do()
    except UsageError:
        return False
    return True


async def test_a_kill_through_the_inbox_ends_the_running_tool(where: Where) -> None:
    unending = Unending()
    async with Engine([unending.tool()], journal=opened(where)) as engine:
        calling = asyncio.ensure_future(engine.call(raw_call("act"), Scope(run=RUN, conversation="talk")))
        await unending.begun.wait()
        inbox.kill(where, RUN, by="carol")
        await calling
        assert unending.ended.is_set()


@pytest.mark.parametrize("end", [inbox.stop, inbox.kill], ids=["stop", "kill"])
async def test_a_stop_or_kill_through_the_inbox_affects_only_the_named_run(where: Where, end: Callable[..., object]) -> None:
    """Both runs are in the default conversation, as are the calls of a service that names none."""
    begun, go_on = set[str](), asyncio.Event()

    @tool
    async def act(run: str) -> str:
        """Act until told to end."""
        begun.add(run)
        await go_on.wait()
        return f"done in {run}"

    async with Engine([act], journal=(journal := opened(where))) as engine:
        ends = {run: asyncio.ensure_future(engine.call(raw_call("act", run=run), Scope(run=run))) for run in (RUN, "other-run")}
        assert await soon(lambda: len(begun) == 2)
        await asyncio.to_thread(end, where, RUN, by="carol", reason="wrong customer")
        assert [event.kind for event in await folded(journal)] == ["inbox.taken"]
        go_on.set()
        ended, untouched = await ends[RUN], await ends["other-run"]
        assert isinstance(ended, Aborted)
        assert ended.status == "stopped_by_user"
        assert isinstance(untouched, Answered)
        assert untouched.result.text == "done in other-run"
        assert (await said(engine, raw_call("act", run="later"), Scope(run="other-run"))).success


async def test_a_stop_sent_to_an_idle_run_ends_it_when_it_is_resumed(where: Where, ledger: Ledger) -> None:
    """A stop applies to whichever engine resumes the run."""
    engine = Engine([paying(ledger)], policies=[ASKS], journal=opened(where))
    async with engine, Agent(Script(PAY), engine) as agent:
        assert (await agent.run("Pay.", scope=IN_RUN, conversation="talk")).status == "waiting"
    inbox.approve(where, f"{RUN}/0/0", by="carol")
    inbox.stop(where, RUN, by="dave")
    engine = Engine([paying(ledger)], policies=[ASKS], journal=opened(where))
    async with engine, Agent(Script(says("Done.")), engine) as agent:
        result = await agent.resume(RUN)
    assert (result.turn_status, ledger.lines()) == ("stopped_by_user", [])


@pytest.mark.parametrize(
    ("kind", "target", "why"),
    [
        ("dance", RUN, "Unknown message kind 'dance'"),
        ("approve", f"{RUN}/0/99", "No approval"),
        ("approve", "other/0/0", "belongs to another run"),
        ("stop", RUN, "The run has no running call and no running agent"),
    ],
    ids=["no such word", "no such question", "another run's question", "nothing to stop"],
)
async def test_an_invalid_inbox_message_is_recorded_as_refused_with_the_reason(
    where: Where, ledger: Ledger, kind: str, target: str, why: str
) -> None:
    async with Engine([paying(ledger)], journal=(journal := opened(where))) as engine:
        await said(engine, raw_call("pay", to="ann"), IN_RUN)
        with open_inbox(where) as client:
            message = client.send(run=RUN, kind=kind, target=target, actor="mallory\x1b[2J", reason="x" * 9_000, at_ns=1)
        (refused,) = await folded(journal)
        assert refused.kind == "inbox.refused"
        assert why in json.loads(refused.body)["reason"]
        assert why in inbox.outcome(where, message, wait_s=60).refused
        assert (await said(engine, raw_call("pay", to="bob"), IN_RUN)).success


async def test_an_inbox_message_is_processed_once_even_if_the_run_gets_another_engine(where: Where, ledger: Ledger) -> None:
    for _ in range(3):
        async with Engine([paying(ledger)], policies=[ASKS], journal=(journal := opened(where))) as engine:
            await engine.runs.open(IN_RUN)
            if not of(journal, "call.suspended"):
                question = await asked(engine)
                assert await soon(lambda: inbox.waiting(where))
                inbox.deny(where, question.approval_id, by="carol")
            assert len(await folded(journal)) == 1
    journal = opened(where)
    assert len(of(journal, "inbox.taken", "inbox.refused")) == 1
    assert isinstance(journal, MemoryJournal) or journal.verify() is None
    await journal.close()


@pytest.mark.parametrize(
    ("do", "why"),
    [
        (lambda where: inbox.approve(where, "nobody/0/0", by="carol"), "No question 'nobody/0/0' is on record"),
        (lambda where: inbox.stop(where, "nobody", by="carol"), "No run 'nobody' is on record"),
        (lambda where: inbox.stop(where, RUN, by=" "), "`by` is empty"),
    ],
    ids=["no question", "no run", "no name"],
)
async def test_a_message_to_an_unknown_run_or_approval_is_refused_before_it_is_sent(
    where: Where, ledger: Ledger, do: Callable[[Where], object], why: str
) -> None:
    async with Engine([paying(ledger)], journal=opened(where)) as engine:
        await said(engine, raw_call("pay", to="ann"), IN_RUN)
        with pytest.raises(UsageError, match=why):
            do(where)


async def test_a_question_has_one_approval_and_a_denial_revokes_it_until_a_call_uses_it(where: Where, ledger: Ledger) -> None:
    """Only the first of equal approvals is sent and recorded. The last answer before the call is a denial."""
    async with Engine([paying(ledger)], policies=[ASKS], journal=opened(where)) as engine:
        question = (await asked(engine)).approval_id
    inbox.approve(where, question, by="carol")
    with pytest.raises(UsageError, match="yes already, by carol at 20"):
        inbox.approve(where, question, by="mallory")
    async with Engine([], journal=(journal := opened(where))) as engine:
        await engine.runs.open(IN_RUN)
        (taken,) = await folded(journal)
        assert taken.kind == "inbox.taken"
        (answer,) = of(journal, "approval.answered")
        assert json.loads(answer.body)["reason"] == "carol"
    with pytest.raises(UsageError, match="yes already, by carol"):
        inbox.approve(where, question, by="mallory")
    inbox.deny(where, question, by="dave")
    async with Engine([paying(ledger)], policies=[ASKS], journal=(journal := opened(where))) as engine:
        await engine.runs.open(IN_RUN)
        await folded(journal, 2)
        assert (await said(engine, raw_call("pay", id="1", to="ann"), IN_RUN)).code == "human_denied"
    with pytest.raises(UsageError, match="was answered, and its call has continued"):
        inbox.approve(where, question, by="mallory")
    assert ledger.lines() == []


async def test_unreadable_events_in_a_damaged_journal_are_reported_with_the_next_step(tmp_path: Path, ledger: Ledger) -> None:
    """`log verify` names the damaged event. Until the damage is examined, the run accepts no answers."""
    where = str(tmp_path / "journal.db")
    engine = Engine([paying(ledger)], policies=[ASKS], journal=opened(where))
    async with engine, Agent(Script(PAY), engine) as agent:
        assert (await agent.run("Pay.", scope=IN_RUN)).status == "waiting"
    with contextlib.closing(sqlite3.connect(where)) as connection, connection:
        connection.execute("UPDATE events SET body = x'7b22' WHERE kind IN ('call.suspended', 'phase.answered')")
    for do in (lambda: inbox.waiting(where), lambda: inbox.approve(where, f"{RUN}/0/0", by="carol")):
        with pytest.raises(UsageError, match="callgate log verify"):
            do()
    engine = Engine([paying(ledger)], policies=[ASKS], journal=opened(where))
    async with engine, Agent(Script(PAY), engine) as agent:
        with pytest.raises(CallgateError, match=r"is not of the shape|cannot be read"):
            await agent.resume(RUN)
    assert ledger.lines() == []


async def test_stopping_a_run_of_direct_calls_that_no_engine_holds_is_refused(tmp_path: Path, ledger: Ledger) -> None:
    where = str(tmp_path / "journal.db")
    async with Engine([paying(ledger)], journal=opened(where)) as engine:
        await said(engine, raw_call("pay", to="ann"), IN_RUN)
    with pytest.raises(UsageError, match="Nobody works on run 'the-run', and no agent can continue it"):
        inbox.stop(where, RUN, by="carol")


def test_a_missing_journal_is_refused_and_not_created(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="There is no journal"):
        inbox.waiting(tmp_path / "absent.db")
    assert list(tmp_path.iterdir()) == []


def pile(path: Path, rows: int) -> None:
    """Insert this many invalid messages in one statement."""
    with apsw.Connection(str(path)) as database:  # the engine's own SQLite library: closing a file in another one would release its locks
        row = "INSERT INTO inbox (run, kind, target, actor, reason, at_ns, folded) VALUES (?, 'approve', ?, 'mallory', '', 1, 0)"
        database.executemany(row, ((RUN, f"{RUN}/9/{number}") for number in range(rows)))


async def test_a_kill_does_not_wait_behind_thousands_of_inbox_messages(tmp_path: Path, ledger: Ledger) -> None:
    """A limited number of earlier messages are processed before the kill."""
    gate, path = Gate(), tmp_path / "journal.db"
    engine = Engine([paying(ledger)], journal=(journal := SqliteJournal(path)))
    async with engine, Agent(Script([gate, *PAY]), engine) as agent:
        running = asyncio.ensure_future(agent.run("Pay.", scope=IN_RUN, conversation="talk"))
        await gate.reached.wait()
        assert await soon(lambda: bool(of(journal, "run.began")))
        await journal.durable(of(journal, "run.began")[0].position)
        await asyncio.to_thread(pile, path, 5_000)
        await asyncio.to_thread(inbox.kill, path, RUN, by="carol")
        result = await running
        assert (result.turn_status, ledger.lines()) == ("stopped_by_user", [])
        (taken,) = of(journal, "inbox.taken")
        before = [event for event in of(journal, "inbox.refused") if event.position < taken.position]
        assert len(before) <= 2 * 1_024


async def test_thousands_of_inbox_messages_are_all_processed_without_a_further_message(tmp_path: Path, ledger: Ledger) -> None:
    path = tmp_path / "journal.db"
    async with Engine([paying(ledger)], journal=(journal := SqliteJournal(path)), run=RUN) as engine:
        await engine.call(raw_call("nobody"), IN_RUN)
        await asyncio.to_thread(pile, path, 3_000)
        assert await soon(lambda: len(of(journal, "inbox.refused")) == 3_000)


def test_a_journal_in_memory_that_is_not_shared_has_no_inbox() -> None:
    alone = MemoryJournal()
    for share in (lambda: inbox.waiting(alone), lambda: MemoryJournal(shared_with=alone)):
        with pytest.raises(UsageError, match=r"Make it with MemoryJournal\(shared=True\)"):
            share()
