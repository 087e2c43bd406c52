"""Tests that an operator's answer is on disk before the operator sees it accepted, even if the process is killed at that moment."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path

import pytest

from callgate import Answered, Engine, RawCall, Suspended, tool
from callgate.errors import RunHeld
from callgate.events import Event
from callgate.policy import Rules
from tests.effect_ledger import Ledger
from tests.forked_python import python
from tests.recovery.paused_run_process import opened

RUN = "the-run"
ASKING = Rules.parse('[[rule]]\nid = "asks"\nverdict = "ask"\ntool = "pay"\nwhen = { "arguments.to" = "ann" }\n')
ANN, BOB = (RawCall(name=name, arguments=json.dumps({"to": who}), id=who) for name, who in (("pay", "ann"), ("pay_and_hang", "bob")))
_LEASE_S = 3_000
_HANGS_S = 0.1


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "journal.db") if request.param == "sqlite" else str(request.getfixturevalue("database"))


def engine_on(place: str, ledger: Ledger) -> Engine:
    """Return an engine that asks for approval before it pays ann, and whose payment to bob times out with an unknown outcome."""

    @tool
    async def pay(to: str) -> str:
        """Pay somebody."""
        ledger.write(to)
        return f"paid {to}"

    @tool(timeout_s=_HANGS_S)
    async def pay_and_hang(to: str) -> str:
        """Pay somebody, and never say so."""
        ledger.write(to)
        await asyncio.Event().wait()
        return f"paid {to}"

    return Engine([pay, pay_and_hang], policies=[ASKING], journal=opened(place, _LEASE_S), run=RUN)


async def on_a_loop(engine: Engine, what: str) -> None:
    outcome = await engine.call(ANN if what == "answer" else BOB)
    if isinstance(outcome, Suspended):
        await engine.answer(outcome.approval_id, allow=True, by="bob")
    elif isinstance(outcome, Answered):
        await engine.settle(outcome.result.uid, happened=False)


def in_plain_code(engine: Engine, what: str) -> None:
    outcome = engine.call_sync(ANN if what == "answer" else BOB)
    if isinstance(outcome, Suspended):
        engine.answer_sync(outcome.approval_id, allow=True, by="bob")
    elif isinstance(outcome, Answered):
        engine.settle_sync(outcome.result.uid, happened=False)


def say_and_die(place: str, ledger: str, what: str, how: str) -> None:
    """Record an answer or a settlement in a separate process, and kill that process."""
    engine = engine_on(place, Ledger(Path(ledger)))

    async def whole() -> None:
        await on_a_loop(engine, what)
        os.kill(os.getpid(), signal.SIGKILL)

    if how == "loop":
        asyncio.run(whole())
    in_plain_code(engine, what)
    os.kill(os.getpid(), signal.SIGKILL)


def said_and_died(place: str, ledger: Ledger, what: str, how: str) -> None:
    code = "import sys; from tests.recovery.test_durable_answers import say_and_die; say_and_die(*sys.argv[1:])"
    assert python(code, place, str(ledger.path), what, how).code == -signal.SIGKILL


async def record(place: str) -> list[Event]:
    journal = opened(place, _LEASE_S)
    try:
        assert journal.verify() is None
        return list(journal.read(run=RUN))
    finally:
        await journal.close()


@pytest.mark.process
@pytest.mark.parametrize("how", ["loop", "plain"])
@pytest.mark.parametrize(("what", "kind"), [("answer", "approval.answered"), ("settle", "fact.settled")])
async def test_an_answer_or_settlement_is_on_disk_before_the_operator_is_told(
    place: str, ledger: Ledger, what: str, kind: str, how: str
) -> None:
    """The next process must apply the answer to an approval, and the settlement of an unknown outcome."""
    said_and_died(place, ledger, what, how)
    assert [event.kind for event in await record(place)].count(kind) == 1
    async with engine_on(place, ledger) as engine:
        outcome = await engine.call(ANN if what == "answer" else BOB)
    assert isinstance(outcome, Answered)
    assert ledger.lines() == (["ann"] if what == "answer" else ["bob", "bob"])


async def test_an_approval_of_another_engine_is_answered_by_its_id_alone(place: str, ledger: Ledger) -> None:
    """The answering engine has the journal but has not opened the run."""
    async with engine_on(place, ledger) as first:
        asked = await first.call(ANN)
    assert isinstance(asked, Suspended)
    async with engine_on(place, ledger) as second:
        await second.answer(asked.approval_id, allow=True)
        assert isinstance(await second.call(ANN), Answered)
    assert ledger.lines() == ["ann"]


async def test_an_answer_for_a_run_held_by_another_engine_is_refused_and_not_lost(place: str, ledger: Ledger) -> None:
    """Only the engine with the lease may write to the run, so the error names that engine."""
    async with engine_on(place, ledger) as first:
        asked = await first.call(ANN)
        assert isinstance(asked, Suspended)
        async with Engine(journal=opened(place, _LEASE_S)) as second:
            with pytest.raises(RunHeld, match=f"worked on by process {os.getpid()}"):
                await second.answer(asked.approval_id, allow=True)
        await first.answer(asked.approval_id, allow=True)
        assert isinstance(await first.call(ANN), Answered)
    assert ledger.lines() == ["ann"]
