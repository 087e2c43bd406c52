"""A call whose effect was done before, by another call with the same key: no human is asked about it, and the model is told."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from callgate import Allow, Ask, Deny, Engine, NotDone, Scope, SqliteJournal, Suspended, ToolContext, Verified, tool
from callgate.protocols import Policy, Verdict
from callgate.stage_types import ValidatedCall
from tests.effect_ledger import Ledger
from tests.effect_tools import failing, refunding
from tests.engine_calls import bodies, call, kinds, said

ORDER = "A7"
FIRST = Scope(run="first", principal="ann")
SECOND = Scope(run="second", principal="ann")


class AsksInRuns:
    """Asks a human about every call of these runs."""

    def __init__(self, *runs: str) -> None:
        self._runs = runs

    async def decide(self, call: ValidatedCall) -> Verdict:
        return Ask(question="Refund it?", rule="refunds") if call.scope.run in self._runs else Allow()


class DeniesRun:
    def __init__(self, run: str) -> None:
        self._run = run

    async def decide(self, call: ValidatedCall) -> Verdict:
        return Deny(reason="not on Sundays") if call.scope.run == self._run else Allow()


# A human is not asked


@pytest.mark.parametrize("asks", ["a policy", "the tool"])
async def test_no_human_is_asked_about_a_call_whose_effect_was_done_before(asks: str, ledger: Ledger) -> None:
    def in_second_run(arguments: Mapping[str, object], scope: Scope) -> bool:
        return scope.run == "second"

    refund = refunding(ledger, requires_approval=in_second_run if asks == "the tool" else False)
    policies = [AsksInRuns("second")] if asks == "a policy" else []
    async with Engine([refund], policies=policies) as engine:
        first = await said(engine, call("refund", id="a", order=ORDER), FIRST)
        again = await said(engine, call("refund", id="b", order=ORDER), SECOND)
        recorded = kinds(engine, again.uid)
        verdict, replayed = bodies(engine, "call.verdict")[-1], bodies(engine, "call.replayed")[-1]
    assert (again.status, again.structured, again.metadata.replayed) == ("ok", first.structured, True)
    assert recorded == ["call.received", "call.verdict", "call.replayed", "call.completed"]
    assert (verdict["verdict"], verdict["rule"]) == ("ask", "refunds" if asks == "a policy" else "tool:requires_approval")
    assert replayed["details"] == {"asked": "nobody", "effect_key": f"refund:{ORDER}", "uid": first.uid}
    assert ledger.lines() == [f"{ORDER} 100"]


async def test_a_restarted_engine_asks_no_human_about_an_effect_that_was_done(tmp_path: Path, ledger: Ledger) -> None:
    for scope in (FIRST, SECOND):
        async with Engine([refunding(ledger)], policies=[AsksInRuns("second")], journal=SqliteJournal(tmp_path / "j.db")) as engine:
            result = await said(engine, call("refund", order=ORDER), scope)
    assert (result.status, result.metadata.replayed, len(ledger.lines())) == ("ok", True, 1)


async def test_a_denied_call_never_gets_a_stored_result(ledger: Ledger) -> None:
    policies: list[Policy] = [AsksInRuns("second"), DeniesRun("second")]
    async with Engine([refunding(ledger)], policies=policies) as engine:
        await said(engine, call("refund", order=ORDER), FIRST)
        denied = await said(engine, call("refund", order=ORDER), SECOND)
    assert (denied.code, denied.metadata.replayed) == ("policy_denied", False)


async def test_a_call_that_a_human_denied_stays_denied_after_another_call_did_it(ledger: Ledger) -> None:
    raw = call("refund", id="b", order=ORDER)
    async with Engine([refunding(ledger)], policies=[AsksInRuns("second")]) as engine:
        asked = await engine.call(raw, SECOND)
        assert isinstance(asked, Suspended)
        await engine.deny(asked.approval_id)
        await said(engine, call("refund", order=ORDER), FIRST)
        denied = await said(engine, raw, SECOND)
    assert denied.code == "human_denied"


@pytest.mark.parametrize("principal", ["bob", ""])
async def test_a_human_is_asked_before_one_principal_sees_what_was_done_for_another(principal: str, ledger: Ledger) -> None:
    async with Engine([refunding(ledger)], policies=[AsksInRuns("second")]) as engine:
        await said(engine, call("refund", order=ORDER), FIRST)
        asked = await engine.call(call("refund", id="b", order=ORDER), Scope(run="second", principal=principal))
    assert isinstance(asked, Suspended)


async def test_a_human_is_asked_if_the_earlier_call_did_nothing(ledger: Ledger) -> None:
    async with Engine([failing(ledger, NotDone("the bank is closed"))], policies=[AsksInRuns("second")]) as engine:
        await said(engine, call("refund", order=ORDER), FIRST)
        asked = await engine.call(call("refund", order=ORDER), SECOND)
    assert isinstance(asked, Suspended)


async def test_no_human_is_asked_about_a_call_whose_effect_is_in_doubt_until_that_is_settled(ledger: Ledger) -> None:
    raw = call("refund", id="b", order=ORDER)
    async with Engine([failing(ledger, ValueError("lost"))], policies=[AsksInRuns("second")]) as engine:
        first = await said(engine, call("refund", order=ORDER), FIRST)
        told = await said(engine, raw, SECOND)
        verdict, asks = bodies(engine, "call.verdict")[-1]["verdict"], await engine.asks_human(raw, SECOND)
        await engine.settle(first.uid, happened=False)
        assert isinstance(await engine.call(raw, SECOND), Suspended)
    assert (told.status, told.data, verdict, asks) == ("unknown", {"earlier_call": first.uid}, "ask", False)
    assert f"{first.uid} had the same key of its effect (refund:{ORDER})" in told.text
    assert ledger.lines() == [ORDER]


@pytest.mark.parametrize("happened", [True, False])
async def test_a_human_is_asked_about_an_effect_in_doubt_that_the_tool_can_verify(happened: bool, ledger: Ledger) -> None:
    def verify(arguments: dict[str, object], key: str) -> Verified:
        return Verified(happened=None if not ledger.lines() else happened)

    @tool(key="refund:{order}", verify=verify, timeout_s=0.05)
    async def refund(order: str) -> str:
        """Refund an order."""
        await asyncio.Event().wait()
        return ""

    async with Engine([refund], policies=[AsksInRuns("second")]) as engine:
        assert (await said(engine, call("refund", order=ORDER), FIRST)).status == "unknown"
        ledger.write(ORDER)
        assert isinstance(await engine.call(call("refund", order=ORDER), SECOND), Suspended)


async def test_a_human_is_asked_while_the_call_with_the_key_still_runs(ledger: Ledger) -> None:
    outcomes: list[object] = []

    @tool(key="refund:{order}")
    async def refund(order: str) -> str:
        """Refund an order."""
        ledger.write(order)
        outcomes.append(await engine.call(call("refund", order=ORDER), SECOND))
        return f"refunded {order}"

    async with Engine([refund], policies=[AsksInRuns("second")]) as engine:
        await said(engine, call("refund", order=ORDER), FIRST)
    assert (len(ledger.lines()), [type(one) for one in outcomes]) == (1, [Suspended])


async def test_a_call_whose_key_cannot_be_made_is_refused_before_a_human_is_asked(ledger: Ledger) -> None:
    def broken(arguments: Mapping[str, object], scope: Scope) -> str:
        raise LookupError(scope.run)

    async with Engine([refunding(ledger, key=broken)], policies=[AsksInRuns("second")]) as engine:
        refused = await said(engine, call("refund", order=ORDER), SECOND)
    assert (refused.code, ledger.lines()) == ("effect_key", [])


async def test_asks_human_is_false_for_a_call_whose_effect_was_done_before(ledger: Ledger) -> None:
    async with Engine([refunding(ledger)], policies=[AsksInRuns("second")]) as engine:
        before = await engine.asks_human(call("refund", order=ORDER), SECOND)
        await said(engine, call("refund", order=ORDER), FIRST)
        after = await engine.asks_human(call("refund", order=ORDER), SECOND)
    assert (before, after) == (True, False)


async def test_the_same_call_gets_its_replay_again(ledger: Ledger) -> None:
    async with Engine([refunding(ledger)], policies=[AsksInRuns("second")]) as engine:
        await said(engine, call("refund", order=ORDER), FIRST)
        results = [await said(engine, call("refund", id="b", order=ORDER), SECOND) for _ in range(2)]
    assert results[0].text == results[1].text


# The model is told


@pytest.mark.parametrize(("cents", "others"), [(100, ""), (900, " and other arguments")], ids=["equal", "other"])
async def test_a_model_learns_that_the_effect_was_done_before_and_not_again(cents: int, others: str, ledger: Ledger) -> None:
    async with Engine([refunding(ledger)]) as engine:
        first = await said(engine, call("refund", order=ORDER, cents=100), FIRST)
        again = await said(engine, call("refund", order=ORDER, cents=cents), SECOND)
    said_before, _, told = again.text.partition("\nNote: ")
    at = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"
    assert said_before == first.text
    assert re.fullmatch(
        rf"Nothing was run for this call: first/0/0 did it before, with the same key of its effect \(refund:{ORDER}\){others};"
        rf" it ended at {at}\. This is its result\.",
        told,
    )
    assert [note.text for note in again.metadata.notes] == [told]
    assert ledger.lines() == [f"{ORDER} 100"]


@pytest.mark.parametrize("how", ["the caller's key", "the message and the id"])
async def test_the_same_call_handed_in_by_another_run_gets_the_result_as_it_was(how: str, ledger: Ledger) -> None:
    raw = call("refund", id="toolu_1", order=ORDER, key="step-1" if how == "the caller's key" else None)
    message = "" if how == "the caller's key" else "msg_1"
    async with Engine([refunding(ledger)]) as engine:
        first, again = [await said(engine, raw, Scope(run=run, message_id=message)) for run in ("first", "second")]
    assert (again.text, again.metadata.replayed, again.metadata.notes) == (first.text, True, ())


async def test_the_same_id_in_another_message_is_another_call(ledger: Ledger) -> None:
    raw = call("refund", id="call_0", order=ORDER)
    async with Engine([refunding(ledger)]) as engine:
        first, again = [await said(engine, raw, Scope(run="r", message_id=message)) for message in ("msg_1", "msg_2")]
    assert again.text.startswith(f"{first.text}\nNote: Nothing was run for this call")


async def test_a_tool_that_makes_the_call_reads_the_result_without_the_note(ledger: Ledger) -> None:
    @tool
    async def close(order: str, context: ToolContext) -> str:
        """Close an order."""
        return (await context.call("refund", {"order": order})).text

    async with Engine([refunding(ledger), close]) as engine:
        await said(engine, call("refund", order=ORDER), FIRST)
        closed = await said(engine, call("close", order=ORDER), SECOND)
    assert closed.text == f"refunded {ORDER}"
