"""A tool with a key of its effect: one call with a key has the effect, whoever hands it in, and the others get its result."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from callgate import (
    Aborted,
    Allow,
    Ask,
    Engine,
    MemoryJournal,
    Modify,
    NotDone,
    RawCall,
    Scope,
    Suspended,
    Tool,
    ToolContext,
    ToolResult,
    UsageError,
    Verified,
    tool,
)
from callgate.hooks import after_call
from callgate.protocols import Verdict
from callgate.stage_types import Checked, ValidatedCall
from tests.effect_ledger import Ledger
from tests.effect_tools import failing, refunding
from tests.engine_calls import call, kinds, result_of, said

ORDER = "A7"


@pytest.mark.parametrize(
    "second",
    [Scope(), Scope(run="another"), Scope(conversation="c", iteration=4), Scope(actor="bob"), Scope(principal="bob")],
    ids=["planned again", "another run", "another message", "another actor", "another principal"],
)
async def test_a_call_with_the_same_key_gets_the_stored_result(second: Scope, ledger: Ledger) -> None:
    async with Engine([refunding(ledger)]) as engine:
        first = await said(engine, call("refund", id="a", order=ORDER), Scope())
        again = await said(engine, call("refund", id="b", order=ORDER), second)
    assert (again.status, again.structured, again.metadata.replayed) == ("ok", first.structured, True)
    assert (again.id, again.uid != first.uid) == ("b", True)
    assert ledger.lines() == [f"{ORDER} 100"]


async def test_other_keys_and_tools_without_a_key_are_other_effects(ledger: Ledger) -> None:
    async with Engine([refunding(ledger), refunding(ledger, name="pay", key=None), refunding(ledger, name="send")]) as engine:
        for name in ("refund", "pay", "pay", "send"):
            await said(engine, call(name, order=ORDER))
        await said(engine, call("refund", order="B8"))
    assert ledger.lines() == [f"{ORDER} 100"] * 4 + ["B8 100"]


async def test_a_key_that_names_the_principal_counts_for_each_one(ledger: Ledger) -> None:
    async with Engine([refunding(ledger, key="refund:{scope.principal}:{order}")]) as engine:
        results = [await said(engine, call("refund", order=ORDER), Scope(run=run, principal=who)) for run, who in ("1a", "2b", "3a")]
    assert [result.metadata.replayed for result in results] == [False, False, True]


async def test_values_of_a_key_do_not_run_into_each_other(ledger: Ledger) -> None:
    @tool(key="{first}:{second}")
    async def send(first: str, second: str) -> str:
        """Send."""
        ledger.write(f"{first} {second}")
        return "sent"

    async with Engine([send]) as engine:
        await said(engine, call("send", first="a:b", second="c"))
        await said(engine, call("send", first="a", second="b:c"))
    assert len(ledger.lines()) == 2


async def test_a_function_makes_a_key_of_the_arguments_and_the_scope(ledger: Ledger) -> None:
    def key(arguments: Mapping[str, object], scope: Scope) -> str:
        return f"{scope.conversation}:{str(arguments['order']).upper()}"

    async with Engine([refunding(ledger, key=key)]) as engine:
        for order, conversation in (("a7", "x"), ("A7", "x"), ("a7", "y")):
            await said(engine, call("refund", order=order), Scope(conversation=conversation))
    assert ledger.lines() == ["a7 100", "a7 100"]


async def test_a_key_is_made_of_the_final_arguments(ledger: Ledger) -> None:
    class UpperCase:
        async def decide(self, call: ValidatedCall) -> Verdict:
            order = str(call.arguments["order"])
            return Allow() if order.isupper() else Modify(arguments={**call.arguments, "order": order.upper()}, reason="as we write them")

    async with Engine([refunding(ledger)], policies=[UpperCase()]) as engine:
        results = [await said(engine, call("refund", order=order)) for order in ("a7", "A7")]
    assert [result.metadata.replayed for result in results] == [False, True]
    assert ledger.lines() == ["A7 100"]


async def test_calls_with_the_same_key_at_once_share_one_effect(ledger: Ledger) -> None:
    async with Engine([refunding(ledger)]) as engine:
        outcomes = await asyncio.gather(*(engine.call(call("refund", order=ORDER), Scope(run=f"run-{n}")) for n in range(20)))
        message = await engine.call_many([call("refund", id=id, order="B8") for id in "ab"])
    results = [result_of(outcome) for outcome in outcomes]
    assert sorted(result.metadata.joined for result in results) == [False] + [True] * 19
    assert {result.structured for result in results} == {f"refunded {ORDER}"}
    assert {result_of(outcome).structured for outcome in message} == {"refunded B8"}
    assert ledger.lines() == [f"{ORDER} 100", "B8 100"]


async def test_a_tool_gets_the_same_idempotency_key_in_every_run() -> None:
    keys: list[str] = []

    @tool(key="refund:{order}")
    async def refund(order: str, context: ToolContext) -> str:
        """Refund an order."""
        keys.append(context.idempotency_key)
        raise NotDone("the bank is closed")

    for run in ("one", "two"):
        async with Engine([refund]) as engine:
            await said(engine, call("refund", order=ORDER), Scope(run=run, principal=run))
    assert len(keys) == 2
    assert len(set(keys)) == 1


# What frees a key


async def test_a_call_that_did_nothing_frees_its_key(ledger: Ledger) -> None:
    async with Engine([failing(ledger, NotDone("the bank is closed"))]) as engine:
        codes = [(await said(engine, call("refund", order=ORDER), Scope(run=run))).code for run in "ab"]
    assert (codes, ledger.lines()) == (["not_done", "not_done"], [ORDER, ORDER])


@pytest.mark.parametrize(("effect", "calls"), [("once", 1), ("idempotent", 2)])
async def test_a_returned_failure_frees_the_key_of_an_idempotent_tool_only(effect: Any, calls: int, ledger: Ledger) -> None:
    @tool(key="refund:{order}", effect=effect)
    async def refund(order: str) -> dict[str, object]:
        """Refund an order."""
        ledger.write(order)
        return {"success": False, "error": "the card is blocked"}

    async with Engine([refund]) as engine:
        results = [await said(engine, call("refund", order=ORDER), Scope(run=run)) for run in "ab"]
    assert [result.code for result in results] == ["tool_declared", "tool_declared"]
    assert ("Nothing was run for this call" in results[1].text, len(ledger.lines())) == (calls == 1, calls)


async def test_a_result_that_a_hook_withheld_does_not_free_the_key(ledger: Ledger) -> None:
    @after_call("refund", kind="reject")
    def secret(call: ValidatedCall, checked: Checked) -> str:
        return "it names a customer"

    async with Engine([refunding(ledger)], hooks=[secret]) as engine:
        codes = [(await said(engine, call("refund", order=ORDER), Scope(run=run))).code for run in "ab"]
    assert (codes, len(ledger.lines())) == (["rejected_by_hook", "rejected_by_hook"], 1)


async def test_a_result_that_the_restart_handler_used_does_not_free_the_key(ledger: Ledger) -> None:
    @tool(key="refund:{order}")
    async def refund(order: str) -> dict[str, object]:
        """Refund an order."""
        ledger.write(order)
        return {"type": "context_restart_refund"}

    async def enriched(data: object) -> bool:
        return True

    async with Engine([refund], restart=enriched) as engine:
        await engine.call(call("refund", order=ORDER), Scope(run="a"))
        again = await said(engine, call("refund", order=ORDER), Scope(run="b"))
    had = f"as a/0/0 with the same key of its effect (refund:{ORDER})"
    assert again.text == f"refund took effect before, {had}. Its result was not kept. Nothing was run."
    assert ledger.lines() == [ORDER]


@pytest.mark.parametrize(("cents", "told"), [(100, ""), (900, " and other arguments")])
async def test_a_call_reads_that_the_settled_one_with_its_key_had_other_arguments(cents: int, told: str, ledger: Ledger) -> None:
    @tool(key="refund:{order}")
    async def refund(order: str, cents: int) -> str:
        """Refund an order."""
        ledger.write(f"{order} {cents}")
        raise ValueError("lost")

    async with Engine([refund]) as engine:
        lost = await said(engine, call("refund", order=ORDER, cents=100), Scope(run="a"))
        await engine.settle(lost.uid, happened=True)
        again = await said(engine, call("refund", order=ORDER, cents=cents), Scope(run="b"))
    had = f"as a/0/0 with the same key of its effect (refund:{ORDER}){told}"
    assert again.text == f"refund took effect before, {had}. Its result was not kept. Nothing was run."
    assert ledger.lines() == [f"{ORDER} 100"]


async def test_an_approval_of_a_call_does_not_free_a_key(ledger: Ledger) -> None:
    """The human was asked about this call, and knows nothing of the other run's."""

    class AskFirst:
        async def decide(self, call: ValidatedCall) -> Verdict:
            return Ask(question="Refund it?") if call.scope.run == "b" else Allow()

    async with Engine([failing(ledger, ValueError("lost"))], policies=[AskFirst()]) as engine:
        asked = await engine.call(call("refund", id="x", order=ORDER), Scope(run="b"))
        assert isinstance(asked, Suspended)
        await said(engine, call("refund", order=ORDER), Scope(run="a"))
        await engine.answer(asked.approval_id, allow=True)
        result = await said(engine, call("refund", id="x", order=ORDER), Scope(run="b"))
    assert (result.status, ledger.lines()) == ("unknown", [ORDER])


# Unknown outcomes


@pytest.mark.parametrize(("happened", "lines"), [(True, 1), (False, 2)])
async def test_an_unknown_outcome_keeps_its_key_until_somebody_settles_it(happened: bool, lines: int, ledger: Ledger) -> None:
    async with Engine([failing(ledger, ValueError("lost"))]) as engine:
        first = await said(engine, call("refund", order=ORDER), Scope(run="a"))
        second = await said(engine, call("refund", order=ORDER), Scope(run="b"))
        assert isinstance(second.structured, dict)
        assert (second.status, second.structured["earlier_call"], len(ledger.lines())) == ("unknown", first.uid, 1)
        told = str(second.error)
        assert told.startswith("refund was not run this time, because an earlier call may have happened: ")
        assert f"{first.uid} had the same key of its effect (refund:{ORDER}) and its outcome is not known" in told
        assert f"Check whether {first.uid} happened; if you cannot, tell the user." in told
        await engine.settle(first.uid, happened=happened)
        third = await said(engine, call("refund", order=ORDER), Scope(run="c"))
    assert (third.status, len(ledger.lines())) == ("ok" if happened else "unknown", lines)


@pytest.mark.parametrize("happened", [True, False])
async def test_verify_settles_the_outcome_of_another_runs_call(happened: bool, ledger: Ledger) -> None:
    asked: list[tuple[object, str]] = []

    def verify(arguments: dict[str, Any], key: str) -> Verified:
        asked.append((arguments, key))
        return Verified(happened=happened if len(asked) > 1 else None, result="refunded, said the bank")

    async with Engine([failing(ledger, ValueError("lost"), verify=verify)]) as engine:
        results = [await said(engine, call("refund", order=ORDER), Scope(run=run)) for run in "abc"]
    if happened:
        assert [result.structured for result in results[1:]] == ["refunded, said the bank"] * 2
        assert (results[2].metadata.replayed, len(asked), ledger.lines()) == (True, 2, [ORDER])
    else:
        assert ledger.lines() == [ORDER] * 3
    assert {key for _, key in asked} == {asked[0][1]}
    assert all(arguments == {"order": ORDER} for arguments, _ in asked)


async def test_a_record_that_forgot_the_call_leaves_its_outcome_unknown(ledger: Ledger) -> None:
    """A journal in memory drops its oldest events, but not who has a key."""

    @tool(effect="none")
    async def look() -> str:
        """Look."""
        return "seen"

    async with Engine([refunding(ledger), look], journal=MemoryJournal(most=100)) as engine:
        await said(engine, call("refund", order=ORDER), Scope(run="a"))
        for _ in range(200):
            await said(engine, call("look"), Scope(run="b"))
        assert engine.journal.read(call="a/0/0") == []
        result = await said(engine, call("refund", order=ORDER), Scope(run="c"))
    assert (result.status, len(ledger.lines())) == ("unknown", 1)


# Waiting for a key


async def test_a_call_that_waits_for_a_key_can_be_killed(ledger: Ledger) -> None:
    begun, end = asyncio.Event(), asyncio.Event()

    @tool(key="refund:{order}")
    async def refund(order: str) -> str:
        """Refund an order."""
        ledger.write(order)
        begun.set()
        await end.wait()
        return "refunded"

    async with Engine([refund]) as engine:
        first = asyncio.ensure_future(engine.call(call("refund", order=ORDER), Scope(run="a")))
        await begun.wait()
        late = asyncio.ensure_future(engine.call(call("refund", order=ORDER), Scope(run="b", conversation="talk")))
        while "call.received" not in kinds(engine, "b/0/0"):
            await asyncio.sleep(0)
        for _ in range(20):  # far more turns of the event loop than a call takes that waits for nothing
            await asyncio.sleep(0)
        assert not late.done()
        engine.control.kill("talk", "the user left")
        killed = await late
        end.set()
        await first
    assert (killed, ledger.lines()) == (Aborted("stopped_by_user", "the user left"), [ORDER])


async def test_a_tool_that_calls_itself_with_its_own_key_is_refused_at_once(ledger: Ledger) -> None:
    @tool(key="refund:{order}")
    async def refund(order: str, context: ToolContext) -> str:
        """Refund an order."""
        ledger.write(order)
        return (await context.call("refund", {"order": order})).text

    async with Engine([refund]) as engine:
        result = await said(engine, call("refund", order=ORDER))
    assert f"has the same key of its effect (refund:{ORDER}) as" in result.text
    assert ledger.lines() == [ORDER]


# Wrong declarations and calls


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"key": "refund"}, "the same for every call"),
        ({"key": "refund:{id}"}, "'id' is none of its parameters. Known are: cents, order, scope.principal"),
        ({"key": "refund:{scope.run}"}, "'scope.run' is none of its parameters"),
        ({"key": "refund:{}"}, "'' is none of its parameters"),
        ({"key": "refund:{order"}, "which is not a pattern"),
        ({"key": "refund:{order:>8}"}, "a placeholder has no format. Write '{order}'"),
        ({"key": ("order",)}, "it must be a text such as 'refund:{order}'"),
        ({"effect": "none"}, "has a key of its effect, but no effect"),
    ],
)
def test_a_key_that_cannot_be_one_is_refused_when_the_tool_is_registered(settings: Any, said: str, ledger: Ledger) -> None:
    with pytest.raises(UsageError, match="Tool 'refund'") as refused:
        Engine([refunding(ledger, **settings)])
    assert said in str(refused.value)


def test_a_class_that_names_its_key_as_the_decorator_does_is_refused() -> None:
    class Refund(Tool):
        name, description, category = "refund", "Refund an order.", "dangerous"
        parameters: Any = {"type": "object", "properties": {"order": {"type": "string"}}, "required": ["order"]}
        key = "refund:{order}"

    with pytest.raises(UsageError, match="In a class, the key of the effect is effect_key; rename it"):
        Engine([Refund()])


async def test_a_class_has_a_key_of_its_effect(ledger: Ledger) -> None:
    class Refund(Tool):
        name, description, category = "refund", "Refund an order.", "dangerous"
        parameters: Any = {"type": "object", "properties": {"order": {"type": "string"}}, "required": ["order"]}
        effect_key = "refund:{order}"

        async def execute(self, actor: str, **params: Any) -> dict[str, Any]:
            ledger.write(params["order"])
            return {"success": True}

    async with Engine([Refund]) as engine:
        for run in "ab":
            await said(engine, call("refund", order=ORDER), Scope(run=run, actor="ann"))
    assert ledger.lines() == [ORDER]


async def test_a_secret_in_a_key_is_neither_recorded_nor_told(ledger: Ledger) -> None:
    class Stars:
        def redact(self, body: bytes) -> bytes:
            return body.replace(b"S3CRET", b"***")

    async with Engine([refunding(ledger, key="x" * 197 + "{order}")], redactor=Stars()) as engine:
        await said(engine, call("refund", order="S3CRET"), Scope(run="a"))
        again = await said(engine, call("refund", order="S3CRET", cents=1), Scope(run="b"))
        recorded = b"".join(event.run.encode() + event.body for event in engine.journal.read())
    assert (again.metadata.replayed, ledger.lines()) == (True, ["S3CRET 100"])
    assert "S3C" not in again.text.removeprefix("refunded S3CRET")
    assert b"S3C" not in recorded


def failing_key(arguments: Mapping[str, object], scope: Scope) -> str:
    return str(arguments["customer"])


@pytest.mark.parametrize(
    ("key", "arguments", "text"),
    [
        ("refund:{note}", {"order": ORDER}, "needs the argument 'note', which is missing"),
        ("refund:{note}", {"order": ORDER, "note": None}, "needs the argument 'note', which is empty"),
        ("refund:{order}", {"order": ""}, "needs the argument 'order', which is empty"),
        ("refund:{scope.principal}:{order}", {"order": ORDER}, "needs Scope.principal, which is empty"),
        (failing_key, {"order": ORDER}, "the function that makes the key of its effect failed. Tell the operator"),
        (lambda arguments, scope: 7, {"order": ORDER}, "the function that makes the key of its effect returned 7 instead of a text"),
    ],
    ids=["missing", "null", "empty", "no principal", "raises", "no text"],
)
async def test_a_call_whose_key_cannot_be_made_does_not_run(key: Any, arguments: dict[str, object], text: str, ledger: Ledger) -> None:
    schema = {"type": "object", "properties": {"order": {"type": "string"}, "note": {"type": ["string", "null"]}}, "required": ["order"]}

    @tool(name="refund", key=key, parameters=schema)
    async def refund(order: str, note: str | None = None) -> str:
        """Refund an order."""
        ledger.write(order)
        return "refunded"

    async with Engine([refund]) as engine:
        result = await said(engine, RawCall(name="refund", arguments=arguments))
    assert (result.status, result.code, ledger.lines()) == ("error", "effect_key", [])
    assert text in str(result.error)


async def test_a_call_that_gets_an_earlier_result_is_told_about_its_own_edit_and_not_about_that_of_the_earlier_call() -> None:
    @tool(key="pay:{order}", requires_approval=True)
    def pay(order: str, cents: int) -> str:
        """Pay."""
        return f"paid {cents} for {order}"

    async def edited(engine: Engine, call_id: str, order: str, arguments: Mapping[str, object]) -> ToolResult:
        raw = RawCall(id=call_id, name="pay", arguments={"order": order, "cents": 9000})
        outcome = await engine.call(raw)
        assert isinstance(outcome, Suspended)
        await engine.approve(outcome.approval_id, by="ann", arguments=arguments)
        return result_of(await engine.call(raw))

    async with Engine([pay]) as engine:
        first = await edited(engine, "c1", "H2", {"order": "H2", "cents": 4000})
        second = await edited(engine, "c2", "H8", {"order": "H2", "cents": 7000})
    assert "4000" in str(first.metadata.notes)
    assert second.text.startswith("paid 4000 for H2\nNote: Nothing was run for this call")
    assert "(cents, order): ann approved it with" in second.text
    assert "7000" in second.text
    assert second.text.count("4000") == 1
