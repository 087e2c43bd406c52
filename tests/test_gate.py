"""Policies, hooks, limits and humans decide which calls run. Whatever fails denies the call."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from callgate import Allow, Ask, Deny, Engine, Limits, Modify, Scope, Suspended, Tool, before_call, tool
from callgate.errors import UsageError
from callgate.protocols import Policy, Verdict
from callgate.stage_types import ValidatedCall
from tests.effect_ledger import Ledger
from tests.engine_calls import bodies, call, kinds, result_of, said, verdicts


class Always:
    def __init__(self, verdict: Verdict) -> None:
        self.verdict = verdict
        self.asked = 0

    async def decide(self, call: ValidatedCall) -> Verdict:
        self.asked += 1
        return self.verdict


class Raising:
    async def decide(self, call: ValidatedCall) -> Verdict:
        raise RuntimeError("the rule server is down")


class Silent:
    async def decide(self, call: ValidatedCall) -> Verdict:
        return None  # type: ignore[return-value]


def paying(ledger: Ledger) -> Tool:
    @tool
    async def pay(to: str, amount: int) -> str:
        """Pay somebody."""
        ledger.write(f"{to} {amount}")
        return f"paid {amount} to {to}"

    return pay


@pytest.mark.parametrize(
    "policy", [Always(Deny(reason="payments are off; offer a voucher")), Raising(), Silent()], ids=["denied", "failed", "silent"]
)
async def test_a_call_nobody_allows_never_runs(policy: Policy, ledger: Ledger) -> None:
    """A policy that raises or returns nothing denies the call."""
    async with Engine([paying(ledger)], policies=[policy]) as engine:
        result = await said(engine, call("pay", to="ann", amount=5))
        given = verdicts(engine)
    assert (result.failure_class, result.metadata.attempts) == ("denied", 0)
    assert [verdict["verdict"] for verdict in given] == ["deny"]
    assert ledger.lines() == []


async def test_the_reason_of_a_deny_reaches_the_model() -> None:
    @tool
    async def pay(amount: int) -> str:
        """Pay."""
        return "paid"

    async with Engine([pay], policies=[Always(Deny(reason="offer a voucher instead", rule="r1"))]) as engine:
        result = await said(engine, call("pay", amount=1))
    assert "offer a voucher instead" in result.text
    assert result.code == "policy_denied"


async def test_a_deny_outranks_an_allow_and_an_ask(ledger: Ledger) -> None:
    policies = [Always(Allow()), Always(Ask(question="sure?")), Always(Deny(reason="no"))]
    async with Engine([paying(ledger)], policies=policies) as engine:
        assert (await said(engine, call("pay", to="a", amount=1))).failure_class == "denied"


async def test_arguments_changed_by_a_policy_are_validated_again_and_the_model_is_told(ledger: Ledger) -> None:
    class Cap:
        async def decide(self, call: ValidatedCall) -> Verdict:
            if call.arguments["amount"] == 500:
                return Modify(arguments={**call.arguments, "amount": 100}, reason="100 is the most", rule="cap")
            return Allow(rule="ok")

    async with Engine([paying(ledger)], policies=[Cap()]) as engine:
        result = await said(engine, call("pay", to="ann", amount=500))
    assert ledger.lines() == ["ann 100"]
    assert "100 is the most" in result.text
    assert "amount" in result.text
    assert [note.kind for note in result.metadata.notes] == ["modified"]


async def test_a_modification_that_violates_the_schema_denies_the_call(ledger: Ledger) -> None:
    policy = Always(Modify(arguments={"to": "ann", "amount": "lots"}, reason="more"))
    async with Engine([paying(ledger)], policies=[policy]) as engine:
        result = await said(engine, call("pay", to="ann", amount=1))
    assert (result.failure_class, result.code) == ("denied", "modification_invalid")
    assert ledger.lines() == []


@pytest.mark.parametrize("by", ["policy", "hook"])
async def test_a_modification_that_is_repeated_unchanged_is_applied_once(by: str) -> None:
    """Arguments are compared after defaults are filled in and unknown arguments are dropped."""

    @tool(effect="none")
    async def search(query: str, limit: int = 10) -> str:
        """Search."""
        return f"{query} {limit}"

    wanted = {"query": "tea", "unknown": 1}

    @before_call("search", kind="transform")
    def hook(call: ValidatedCall) -> dict[str, object]:
        return wanted

    policies = [Always(Modify(arguments=wanted, reason="tea is what we have"))] if by == "policy" else []
    async with Engine([search], policies=policies, hooks=[hook] if by == "hook" else []) as engine:
        result = await said(engine, call("search", query="coffee", limit=3))
    assert (result.structured, result.error) == ("tea 10", None)
    assert [note.kind for note in result.metadata.notes] == ["dropped", "modified"]


class Instant:
    """A policy that declares `never_waits`."""

    never_waits = True

    def __init__(self, judge: Callable[[ValidatedCall], Any]) -> None:
        self.judge = judge

    async def decide(self, call: ValidatedCall) -> Any:
        return self.judge(call)


def _breaks_arguments(call: ValidatedCall) -> Verdict:
    call.arguments["amount"] = object()
    return Allow()


def _knots_arguments(call: ValidatedCall) -> Verdict:
    call.arguments["amount"] = call.arguments
    return Allow()


@pytest.mark.parametrize("beside_one_that_waits", [False, True])
@pytest.mark.parametrize(
    "judge",
    [
        _breaks_arguments,
        _knots_arguments,
        lambda call: Allow(rule=5),  # type: ignore[arg-type]
        lambda call: Allow,
        lambda call: True,
    ],
    ids=["no JSON", "a circle", "a rule that is not text", "a class", "no verdict"],
)
async def test_an_invalid_verdict_or_corrupted_arguments_are_recorded_as_a_deny(
    judge: Callable[[ValidatedCall], Any], beside_one_that_waits: bool, ledger: Ledger
) -> None:
    """The failure is a deny and not an internal error of the engine."""
    policies: list[Policy] = [*([Always(Allow())] if beside_one_that_waits else []), Instant(judge)]
    async with Engine([paying(ledger)], policies=policies) as engine:
        result = await said(engine, call("pay", to="ann", amount=5))
        assert [verdict["verdict"] for verdict in verdicts(engine)] == ["deny"]
    assert (result.failure_class, result.code, ledger.lines()) == ("denied", "policy_failed", [])


class WaitsAllTheSame(Instant):
    def __init__(self) -> None:
        super().__init__(self._judge)

    async def _judge(self, call: ValidatedCall) -> Verdict:
        await asyncio.Event().wait()
        return Allow()

    async def decide(self, call: ValidatedCall) -> Verdict:
        return await self._judge(call)


@pytest.mark.parametrize("policies", [[WaitsAllTheSame()], [WaitsAllTheSame(), Always(Allow())]], ids=["alone", "beside another"])
async def test_a_policy_that_waits_despite_never_waits_is_bounded_by_the_policy_timeout(policies: list[Any], ledger: Ledger) -> None:
    async with Engine([paying(ledger)], policies=policies, limits=Limits(policy_timeout_s=0.01)) as engine:
        result = await said(engine, call("pay", to="ann", amount=5))
    assert (result.code, ledger.lines()) == ("policy_failed", [])


@pytest.mark.parametrize("by", ["policy", "hook"])
@pytest.mark.parametrize(
    ("came", "wanted"), [({"value": 1}, {"value": True}), ({"value": [1.0]}, {"value": [1]}), ({}, {"value": None})], ids=str
)
async def test_a_modification_equal_in_python_but_different_in_json_counts_as_a_change(
    by: str, came: dict[str, Any], wanted: dict[str, Any]
) -> None:
    """Requirement D18: the change is reported and recorded, and the tool gets it. In JSON, true differs from 1, and null from an absent
    member.
    """
    parameters = {"type": "object", "properties": {"value": {}}}

    @tool(effect="none", parameters=parameters)
    async def keep(**given: Any) -> str:
        """Keeps a value."""
        return json.dumps(given)

    @before_call("keep", kind="transform")
    def hook(call: ValidatedCall) -> dict[str, object]:
        return wanted

    policies = [Always(Modify(arguments=wanted, reason="so it has to be"))] if by == "policy" else []
    async with Engine([keep], policies=policies, hooks=[hook] if by == "hook" else []) as engine:
        result = await said(engine, call("keep", **came))
        change, verdict = verdicts(engine)
    assert json.loads(str(result.structured)) == wanted
    assert str(result.structured) == json.dumps(wanted)
    assert (change["verdict"], verdict["verdict"]) == ("modify", "allow")
    assert json.dumps(change["arguments"]) == json.dumps(verdict["arguments"]) == json.dumps(wanted)
    assert "The arguments were changed (value)" in result.text


async def test_a_policy_that_keeps_modifying_arguments_denies_the_call_after_three_rounds(ledger: Ledger) -> None:
    class Restless:
        async def decide(self, call: ValidatedCall) -> Verdict:
            amount = call.arguments["amount"]
            assert isinstance(amount, int)
            return Modify(arguments={**call.arguments, "amount": amount + 1}, reason="one more")

    async with Engine([paying(ledger)], policies=[Restless()]) as engine:
        result = await said(engine, call("pay", to="ann", amount=1))
    assert result.code == "policy_unstable"
    assert ledger.lines() == []


async def test_policies_judge_the_arguments_that_a_hook_changed(ledger: Ledger) -> None:
    @before_call("pay", kind="transform")
    def to_mallory(call: ValidatedCall) -> dict[str, object] | None:
        return {**call.arguments, "to": "mallory"}

    class NoMallory:
        async def decide(self, call: ValidatedCall) -> Verdict:
            return Deny(reason="not mallory") if call.arguments["to"] == "mallory" else Allow()

    async with Engine([paying(ledger)], policies=[NoMallory()], hooks=[to_mallory]) as engine:
        assert (await said(engine, call("pay", to="ann", amount=1))).failure_class == "denied"
    assert ledger.lines() == []


async def test_an_ask_verdict_suspends_the_call_without_waiting(ledger: Ledger) -> None:
    async with Engine([paying(ledger)], policies=[Always(Ask(question="Pay?", rule="big"))]) as engine:
        outcome = await engine.call(call("pay", to="ann", amount=1))
        assert isinstance(outcome, Suspended)
        assert outcome.question == "Pay?"
        assert kinds(engine) == ["call.received", "call.verdict", "call.suspended"]
    assert ledger.lines() == []


async def test_an_approval_lets_exactly_this_call_run_once(ledger: Ledger) -> None:
    async with Engine([paying(ledger)], policies=[Always(Ask(question="Pay?"))]) as engine:
        first = await engine.call(call("pay", to="ann", amount=1))
        assert isinstance(first, Suspended)
        await engine.answer(first.approval_id, allow=True, by="bob")
        other = await engine.call(call("pay", to="ann", amount=2))
        assert isinstance(other, Suspended)
        result = await said(engine, call("pay", to="ann", amount=1))
        assert result.success
        assert "bob" in result.metadata.rule
        assert isinstance(await engine.call(call("pay", to="ann", amount=1)), Suspended)
    assert ledger.lines() == ["ann 1"]


async def test_an_approval_ignores_key_order_but_not_another_run_or_principal(ledger: Ledger) -> None:
    async with Engine([paying(ledger)], policies=[Always(Ask(question="Pay?"))]) as engine:
        first = await engine.call(call("pay", to="ann", amount=1))
        assert isinstance(first, Suspended)
        await engine.answer(first.approval_id, allow=True)
        assert isinstance(await engine.call(call("pay", to="ann", amount=1), Scope(principal="eve")), Suspended)
        assert isinstance(await engine.call(call("pay", to="ann", amount=1), Scope(run="other")), Suspended)
        assert result_of(await engine.call(call("pay", amount=1, to="ann"))).success


async def test_a_denied_or_unknown_approval_cannot_be_granted(ledger: Ledger) -> None:
    async with Engine([paying(ledger)], policies=[Always(Ask(question="Pay?"))]) as engine:
        first = await engine.call(call("pay", to="ann", amount=1))
        assert isinstance(first, Suspended)
        await engine.answer(first.approval_id, allow=False)
        with pytest.raises(UsageError, match="answered with no already"):
            await engine.answer(first.approval_id, allow=True)
        with pytest.raises(UsageError, match="open"):
            await engine.answer("0" * 16, allow=True)
        assert (await said(engine, call("pay", to="ann", amount=1))).code == "human_denied"


async def test_a_call_that_a_limit_refuses_asks_for_no_approval() -> None:
    @tool(category="dangerous")
    async def drop() -> str:
        """Drop it."""
        return "dropped"

    policy = Always(Ask(question="Drop?"))
    async with Engine([drop], policies=[policy], limits=Limits(dangerous_per_tick=0)) as engine:
        assert (await said(engine, call("drop"))).failure_class == "dangerous_limit"


async def test_a_repeated_answer_changes_nothing_and_a_denial_revokes_an_approval(ledger: Ledger) -> None:
    """The first name is recorded for each answer."""
    async with Engine([paying(ledger)], policies=[Always(Ask(question="pay?"))]) as engine:
        asked = await engine.call(call("pay", id="a", to="ann", amount=5))
        assert isinstance(asked, Suspended)
        for allow, names in ((True, "bob eve"), (False, "cid eve")):
            for by in names.split():
                await engine.answer(asked.approval_id, allow=allow, by=by)
        with pytest.raises(UsageError, match="answered with no already, by cid"):
            await engine.answer(asked.approval_id, allow=True, by="eve")
        assert (await said(engine, call("pay", id="b", to="ann", amount=5))).code == "human_denied"
        answers = [(body["status"], body["reason"]) for body in bodies(engine, "approval.answered")]
    assert (answers, ledger.lines()) == ([("allowed", "bob"), ("refused", "cid")], [])


class Speak(Tool):
    name = "speak"
    description = "Say something."
    parameters = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
    category = "terminal"

    async def execute(self, actor: str, **params: object) -> dict[str, object]:
        return {"success": True, "data": f"{actor}: {params['text']}"}


async def test_a_tool_class_needs_an_actor_and_a_function_does_not() -> None:
    @tool(effect="none")
    async def ping() -> str:
        """Ping."""
        return "pong"

    async with Engine([Speak(), ping]) as engine:
        refused = await said(engine, call("speak", text="hi"))
        assert refused.failure_class == "requires_actor"
        assert (await said(engine, call("speak", text="hi"), Scope(actor="ann"))).data == "ann: hi"
        assert (await said(engine, call("ping"))).success


async def test_a_second_dangerous_call_in_a_tick_is_refused_and_safe_calls_run() -> None:
    ran = []

    @tool(category="dangerous")
    async def execute(command: str) -> str:
        """Execute."""
        ran.append(command)
        return "done"

    @tool(category="safe_chain")
    async def look() -> str:
        """Look."""
        return "seen"

    async with Engine([execute, look], limits=Limits(dangerous_per_tick=1)) as engine:
        assert (await said(engine, call("execute", command=7), Scope(turn=1))).failure_class == "invalid_parameters"
        assert (await said(engine, call("execute", command="a"), Scope(turn=1))).success
        assert (await said(engine, call("execute", command="b"), Scope(turn=1, iteration=1))).failure_class == "dangerous_limit"
        assert (await said(engine, call("look"), Scope(turn=1))).success
        assert (await said(engine, call("execute", command="c"), Scope(turn=2))).success
    assert ran == ["a", "c"]


async def test_dangerous_calls_are_unlimited_by_default() -> None:
    @tool(category="dangerous")
    async def execute(n: int) -> str:
        """Execute."""
        return "done"

    async with Engine([execute]) as engine:
        assert all([(await said(engine, call("execute", n=n))).success for n in range(3)])


async def test_a_kill_ends_the_wait_for_a_policy_and_the_call_never_runs(ledger: Ledger) -> None:
    """The wait ends although the policy timeout is much longer."""
    begun = asyncio.Event()

    class Slow:
        async def decide(self, call: ValidatedCall) -> Verdict:
            begun.set()
            await asyncio.Event().wait()
            return Allow()

    async with Engine([paying(ledger)], policies=[Slow()], limits=Limits(policy_timeout_s=3_000.0)) as engine:
        pending = asyncio.ensure_future(engine.call(call("pay", to="ann", amount=5), Scope(conversation="c")))
        await begun.wait()
        engine.control.kill("c", "the user has gone")
        result = result_of(await pending)
    assert (result.failure_class, "the user has gone" in result.text) == ("not_started", True)
    assert ledger.lines() == []
