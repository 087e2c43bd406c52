"""Policies and hooks that modify what they are given, hang, raise unusual exceptions, or return text that is not valid Unicode."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from callgate import (
    Aborted,
    Allow,
    Ask,
    Deny,
    Engine,
    Limits,
    RawCall,
    Rules,
    Scope,
    SqliteJournal,
    Suspended,
    UsageError,
    before_call,
    tool,
)
from callgate.protocols import Policy, Verdict
from callgate.stage_types import ValidatedCall
from tests.effect_ledger import Ledger
from tests.effect_tools import paying_amounts
from tests.engine_calls import bodies, call, ends, kinds, said


class Allows:
    async def decide(self, call: ValidatedCall) -> Verdict:
        return Allow()


async def test_arguments_changed_in_place_never_reach_the_tool(ledger: Ledger) -> None:
    @before_call("pay", kind="transform")
    def sly(call: ValidatedCall) -> dict[str, object]:
        call.arguments["amount"] = "not even a number"
        return call.arguments

    @before_call("pay")
    def slyer(call: ValidatedCall) -> None:
        call.arguments["amount"] = 1_000_000

    class Slyest:
        async def decide(self, call: ValidatedCall) -> Verdict:
            call.arguments["amount"] = 1_000_000
            return Allow()

    cases: list[dict[str, Any]] = [{"hooks": [sly]}, {"policies": [Slyest()]}]
    for settings in cases:
        async with Engine([paying_amounts(ledger)], **settings) as engine:
            assert (await said(engine, call("pay", to="ann", amount=5))).failure_class == "denied"
    async with Engine([paying_amounts(ledger)], hooks=[slyer]) as engine:
        assert (await said(engine, call("pay", to="ann", amount=5))).success
    assert ledger.lines() == ["ann 5"]


async def test_a_policy_that_times_out_denies_the_call(ledger: Ledger) -> None:
    class Silent:
        async def decide(self, call: ValidatedCall) -> Verdict:
            await asyncio.Event().wait()
            raise AssertionError

    async with Engine([paying_amounts(ledger)], policies=[Silent()], limits=Limits(policy_timeout_s=0.05)) as engine:
        assert (await said(engine, call("pay", to="ann"))).code == "policy_failed"
    assert ledger.lines() == []


@pytest.mark.parametrize(
    "error", [RuntimeError("no rules"), SystemExit(1), asyncio.CancelledError()], ids=lambda error: type(error).__name__
)
@pytest.mark.parametrize("beside", [[], [Allows()]], ids=["alone", "beside one that waits"])
async def test_a_synchronous_policy_that_raises_denies_the_call(error: BaseException, beside: list[Policy], ledger: Ledger) -> None:
    class Raising(Allows):
        never_waits = True

        def judge(self, call: ValidatedCall) -> Verdict:
            raise error

    async with Engine([paying_amounts(ledger)], policies=[*beside, Raising()]) as engine:
        result = await said(engine, call("pay", to="ann"))
        assert [verdict["verdict"] for verdict in bodies(engine, "call.verdict")] == ["deny"]
    assert (result.failure_class, result.code, ledger.lines()) == ("denied", "policy_failed", [])
    assert type(error).__name__ in str(result.error)


async def test_a_cancelled_policy_and_an_exiting_hook_are_treated_as_failures(ledger: Ledger) -> None:
    class Cancelled:
        async def decide(self, call: ValidatedCall) -> Verdict:
            future: asyncio.Future[Verdict] = asyncio.get_running_loop().create_future()
            future.cancel()
            return await future

    @before_call()
    async def leaving(call: ValidatedCall) -> None:
        raise SystemExit(1)

    async with Engine([paying_amounts(ledger)], policies=[Cancelled()]) as engine:
        assert (await said(engine, call("pay", to="ann"))).code == "policy_failed"
    async with Engine([paying_amounts(ledger)], hooks=[leaving]) as engine:
        assert (await said(engine, call("pay", to="ann"))).success
        assert "hook.failed" in kinds(engine)


@pytest.mark.parametrize("journal", ["memory", "sqlite"])
async def test_text_with_lone_surrogates_breaks_neither_calls_nor_the_journal(journal: str, tmp_path: Path) -> None:
    odd = "a\ud800b"

    @tool(effect="none")
    async def look() -> str:
        """Look."""
        return "seen"

    class Odd:
        answers: list[Verdict] = [Deny(reason=odd, rule=odd), Ask(question=odd, rule=odd), Allow(rule=odd)]

        async def decide(self, call: ValidatedCall) -> Verdict:
            return self.answers.pop(0)

    kept = SqliteJournal(tmp_path / "journal.db") if journal == "sqlite" else None
    async with Engine([look], policies=[Odd()], journal=kept) as engine:
        assert (await said(engine, RawCall(name=odd, arguments="{}"))).code == "unknown_tool"
        assert (await said(engine, RawCall(name="look", id=odd, arguments="{}", reasoning=odd))).failure_class == "denied"
        assert isinstance(await engine.call(RawCall(name="look")), Suspended)
        assert (await said(engine, RawCall(name="look"))).success
        engine.control.kill("c", odd)
        assert isinstance(await engine.call(RawCall(name="look"), Scope(conversation="c")), Aborted)
        with pytest.raises(UsageError, match=r"Scope\.principal"):
            await engine.call(RawCall(name="look"), Scope(principal=odd))
        assert set(ends(engine).values()) == {1}
        for event in engine.journal.read():
            event.body.decode("utf-8")
        if kept is not None:
            assert kept.verify() is None


async def test_a_transform_hook_that_returns_no_mapping_fails_the_call(ledger: Ledger) -> None:
    @before_call("pay", kind="transform")
    def five(call: ValidatedCall) -> int:
        return 5

    async with Engine([paying_amounts(ledger)], hooks=[five], policies=[Rules.parse("")]) as engine:
        assert (await said(engine, call("pay", to="ann"))).code == "hook_failed"


async def test_the_log_says_how_a_policy_failed_and_the_model_does_not(ledger: Ledger, caplog: pytest.LogCaptureFixture) -> None:
    """The author of the policy finds the mistake; its text may have what the model must not read."""

    class Waits(Allows):
        async def decide(self, call: ValidatedCall) -> Verdict:
            return Ask("Sure?")  # type: ignore[call-arg]

    class Answers(Allows):
        never_waits = True

        def judge(self, call: ValidatedCall) -> Verdict:
            raise KeyError("limits of ann")

    for policy, why in ((Waits(), "Ask was given 'Sure?' without a name"), (Answers(), "KeyError: 'limits of ann'")):
        caplog.clear()
        async with Engine([paying_amounts(ledger)], policies=[policy]) as engine:
            result = await said(engine, call("pay", to="ann", amount=5))
        assert result.code == "policy_failed"
        assert [why in record.message and result.uid in record.message for record in caplog.records] == [True]
        assert why not in result.text
    assert ledger.lines() == []
