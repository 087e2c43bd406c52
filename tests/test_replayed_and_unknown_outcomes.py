"""An effect that happened, or may have happened, is not repeated. Its result is returned only to the principal that it belongs to."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from callgate import Allow, Deny, Engine, Limits, MemoryJournal, Scope, SqliteJournal, Verified, tool
from callgate.events import Draft
from callgate.protocols import Verdict
from callgate.stage_types import ValidatedCall
from callgate.testing import ManualClock
from tests.effect_ledger import Ledger
from tests.effect_tools import paying_amounts
from tests.engine_calls import call, result_of, said


async def test_a_stored_result_is_not_replayed_for_another_principal(ledger: Ledger) -> None:
    class OnlyAlice:
        async def decide(self, call: ValidatedCall) -> Verdict:
            return Allow() if call.scope.principal == "alice" else Deny(reason="not you")

    async with Engine([paying_amounts(ledger)], policies=[OnlyAlice()]) as engine:
        alice = await said(engine, call("pay", id="call_0", to="x"), Scope(principal="alice", conversation="a"))
        bob = await said(engine, call("pay", id="call_0", to="x"), Scope(principal="bob", conversation="b"))
    assert (alice.success, bob.failure_class, bob.metadata.replayed) == (True, "denied", False)


@pytest.mark.parametrize("result", [object(), float("nan"), "\ud800"], ids=["no JSON", "no number", "no text"])
async def test_an_effect_that_verify_confirmed_is_not_repeated_whatever_result_it_returns(result: object, ledger: Ledger) -> None:
    def verify(arguments: dict[str, object], key: str) -> Verified:
        return Verified(happened=True, result=result)

    async with Engine([paying_amounts(ledger, asyncio.Event(), verify=verify)], timeout_s=0.05, clock=ManualClock()) as engine:
        await said(engine, call("pay", id="a", to="ann"))
        again = await said(engine, call("pay", id="b", to="ann"))
    assert again.code != "internal_error"
    assert ledger.lines() == ["ann 1"]


async def test_a_call_waiting_for_a_slot_does_not_start_after_an_equal_call_became_unknown(ledger: Ledger) -> None:
    async with Engine([paying_amounts(ledger, asyncio.Event(), parallel=1, timeout_s=0.05)]) as engine:
        outcomes = await asyncio.gather(*(engine.call(call("pay", id=one, to="ann")) for one in "abc"))
    assert [result_of(outcome).status for outcome in outcomes] == ["unknown"] * 3
    assert ledger.lines() == ["ann 1"]


async def test_a_result_that_cannot_be_recorded_makes_the_outcome_unknown(ledger: Ledger) -> None:
    """The same effect is not started again, under any id, until the outcome is settled."""

    class Full(MemoryJournal):
        def append(self, draft: Draft) -> int:
            if draft.kind == "call.completed":
                raise OSError("no space left")
            return super().append(draft)

    @tool
    async def export() -> str:
        """Export much."""
        ledger.write("exported")
        return "done"

    async with Engine([export], journal=Full()) as engine:
        assert [(await said(engine, call("export", id=one))).status for one in "ab"] == ["unknown", "error"]
    assert ledger.lines() == ["exported"]


async def test_a_result_no_longer_in_memory_is_read_from_the_journal(tmp_path: Path, ledger: Ledger) -> None:
    limits = Limits(remembered_calls=2)
    async with Engine([paying_amounts(ledger)], journal=SqliteJournal(tmp_path / "journal.db"), limits=limits) as engine:
        for n in range(5):
            await said(engine, call("pay", id=f"c{n}", to=str(n)))
        again = await said(engine, call("pay", id="c0", to="0"))
    assert (again.metadata.replayed, again.text) == (True, "paid 0")
    assert len(ledger.lines()) == 5


async def test_a_call_settled_as_not_happened_runs_again_under_the_same_id(ledger: Ledger) -> None:
    async with Engine([paying_amounts(ledger, asyncio.Event())], timeout_s=0.05, clock=ManualClock()) as engine:
        first = await said(engine, call("pay", id="a", to="ann"))
        await engine.settle(first.uid, happened=False)
        again = await said(engine, call("pay", id="a", to="ann"))
    assert not again.metadata.replayed
    assert ledger.lines() == ["ann 1", "ann 1"]


async def test_a_call_that_joins_a_denied_call_is_judged_itself(ledger: Ledger) -> None:
    release = asyncio.Event()

    class Slow:
        async def decide(self, call: ValidatedCall) -> Verdict:
            await release.wait()
            return Deny(reason="no")

    async with Engine([paying_amounts(ledger)], policies=[Slow()]) as engine:
        tasks = [asyncio.create_task(engine.call(call("pay", key="k", to="ann"))) for _ in range(2)]
        for _ in range(5):
            await asyncio.sleep(0)
        release.set()
        results = [result_of(await task) for task in tasks]
    assert [result.failure_class for result in results] == ["denied", "denied"]


async def test_a_replayed_result_is_a_copy(ledger: Ledger) -> None:
    @tool
    async def make() -> dict[str, list[int]]:
        """Make."""
        return {"items": [1]}

    async with Engine([make]) as engine:
        first = await said(engine, call("make", id="a"))
        first.structured["items"].append(2)  # type: ignore[index]
        second = await said(engine, call("make", id="a"))
        second.structured["items"].append(3)  # type: ignore[index]
        assert (await said(engine, call("make", id="a"))).text == '{"items":[1]}'
