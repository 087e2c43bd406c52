"""A judge that fails, answers with something else than one verdict, or has no budget left denies the call."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest

from callgate import Allow, Engine, Judge, Rules, Scope, UsageError
from callgate.judging import JudgeContext, JudgeLimits, Judgment
from callgate.models.model_events import ModelEvent, Usage
from callgate.models.model_protocol import StreamingContext
from callgate.models.wire.request import ModelRequest
from callgate.protocols import JudgmentRequired
from callgate.stage_types import ValidatedCall
from callgate.testing import Call, End, Fail, Item, Pause, Raise, ScriptedModel
from tests.effect_ledger import Ledger
from tests.engine_calls import call, result_of, said
from tests.judged_calls import ALLOW, DENY, LOOKS, Always, judged, paying, word_of


@pytest.mark.parametrize(
    "answer",
    [
        "allow",
        '{"verdict": "allow", "reason": "fine"}',
        [],
        Call("allow", {"verdict": "allow", "reason": "fine"}),
        [ALLOW, ALLOW],
        [ALLOW, DENY],
        Call("give_verdict", '{"verdict": "allow", "reason": "fine"'),
        Call("give_verdict", '{"verdict": "deny", "reason": "no", "verdict": "allow"}'),
        Call("give_verdict", {"verdict": "Allow", "reason": "fine"}),
        Call("give_verdict", {"verdict": True, "reason": "fine"}),
        Call("give_verdict", {"verdict": "allow"}),
        Call("give_verdict", {"verdict": "allow", "reason": " "}),
        Call("give_verdict", {"verdict": "allow", "reason": ["fine"]}),
        Call("give_verdict", {"verdict": "allow", "reason": "fine", "sure": True}),
        Call("give_verdict", '[{"verdict": "allow", "reason": "fine"}]'),
        Call("give_verdict", "null"),
        Call("give_verdict", {"verdict": "allow", "reason": "x" * 20_000}),
        [Call("give_verdict", '{"verdict": "allow", "reason": "fine"}'), End("cut")],
    ],
    ids=str,
)
async def test_an_answer_that_is_not_one_well_formed_verdict_is_a_deny(ledger: Ledger, answer: Any) -> None:
    async with Engine(paying(ledger), policies=[Judge(ScriptedModel([answer]))]) as engine:
        result = await said(engine, call("pay", to="ann"))
        (one,) = judged(engine)
    assert (result.code, result.failure_class) == ("judge_failed", "denied")
    assert one["failed"] in ("malformed", "error")
    assert ledger.lines() == []


class Stubborn:
    """A model that ignores cancellation, and then allows the call too late."""

    provider, name, native_tools = "stubborn", "one", True

    async def stream(self, request: ModelRequest, context: StreamingContext) -> AsyncIterator[ModelEvent]:
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        late = ScriptedModel([ALLOW])
        async for event in late.stream(request, context):
            yield event


class Cancelling:
    """A model whose stream raises `CancelledError`."""

    provider, name, native_tools = "cancelling", "one", True

    async def stream(self, request: ModelRequest, context: StreamingContext) -> AsyncIterator[ModelEvent]:
        async for event in ScriptedModel([Raise(asyncio.CancelledError())]).stream(request, context):
            yield event


@pytest.mark.parametrize(
    ("model", "failed", "named"),
    [
        (ScriptedModel([Raise(RuntimeError("no line"))]), "error", "RuntimeError"),
        (ScriptedModel([[ALLOW, Fail("overloaded", "Too busy.")]]), "error", "Too busy"),
        (ScriptedModel([]), "error", "UsageError"),
        (ScriptedModel([[Pause(3_600.0), ALLOW]]), "timeout", "0.05 s"),
        (Stubborn(), "timeout", "0.05 s"),
        (Cancelling(), "error", "CancelledError"),
    ],
    ids=["raises", "fails", "has no answer", "is silent", "will not be cancelled", "cancels itself"],
)
async def test_a_failed_judge_denies_the_call_and_the_reason_names_the_failure(ledger: Ledger, model: Any, failed: str, named: str) -> None:
    async with Engine(paying(ledger), policies=[Judge(model, timeout_s=0.05 if failed == "timeout" else 20.0)]) as engine:
        result = await said(engine, call("pay", to="ann"))
        (one,) = judged(engine)
    assert (result.code, result.failure_class, one["failed"], one["verdict"]) == ("judge_failed", "denied", failed, "deny")
    assert named in one["reason"]
    assert ".." not in result.text
    assert named in result.text
    assert ledger.lines() == []


async def test_calls_are_denied_after_a_run_uses_up_its_own_budget_of_judgments(ledger: Ledger) -> None:
    model = ScriptedModel([ALLOW] * 5)
    async with Engine(paying(ledger), policies=[Judge(model, limits=JudgeLimits(calls=2))]) as engine:
        outcomes = [await engine.call(call("pay", to=str(n)), Scope(run="a")) for n in range(4)]
        outcomes.append(await engine.call(call("pay", to="x"), Scope(run="b")))
        failed = [one.get("failed") for one in judged(engine)]
    assert [word_of(one) for one in outcomes] == ["ok", "ok", "judge_failed", "judge_failed", "ok"]
    assert failed == [None, None, "budget", "budget", None]
    assert "budget for this run is used up (2 judgments)" in result_of(outcomes[2]).text


@pytest.mark.parametrize("usage", [[Usage(input_tokens=900, output_tokens=101)], []], ids=["told", "estimated"])
async def test_calls_are_denied_after_a_run_uses_up_its_judge_tokens(ledger: Ledger, usage: list[Item]) -> None:
    model = ScriptedModel([[ALLOW, *usage]] * 5)
    async with Engine(paying(ledger), policies=[Judge(model, limits=JudgeLimits(tokens=500))]) as engine:
        outcomes = [await engine.call(call("pay", to=str(n), note="x" * 2_000)) for n in range(3)]
    assert [word_of(one) for one in outcomes] == ["ok", "judge_failed", "judge_failed"]
    assert len(model.requests) == 1


async def test_calls_that_are_judged_concurrently_share_the_budget(ledger: Ledger) -> None:
    gate = asyncio.Event()
    model = ScriptedModel([[Pause(gate), ALLOW]] * 6)
    async with Engine(paying(ledger), policies=[Judge(model, reads=True, limits=JudgeLimits(calls=3))]) as engine:
        emission = [asyncio.ensure_future(engine.call(call("look", at=str(n)))) for n in range(6)]
        while len(model.requests) < 3:
            await asyncio.sleep(0)
        gate.set()
        ends = sorted(word_of(one) for one in await asyncio.gather(*emission))
    assert ends == ["judge_failed"] * 3 + ["ok"] * 3


async def test_arguments_too_large_for_the_judge_are_denied_without_asking_it(ledger: Ledger) -> None:
    model = ScriptedModel([ALLOW])
    async with Engine(paying(ledger), policies=[Judge(model, limits=JudgeLimits(argument_bytes=1_000))]) as engine:
        result = await said(engine, call("pay", to="ann", note="x" * 1_000))
        (one,) = judged(engine)
    assert (result.code, one["failed"], model.requests) == ("judge_failed", "too_large", [])
    assert "1,000" in result.text


async def test_a_judge_verdict_is_refused_if_there_is_no_judge(ledger: Ledger) -> None:
    for rules in (LOOKS, 'default = "judge"'):
        with pytest.raises(UsageError, match="there is no judge"):
            Engine(paying(ledger), policies=[Rules.parse(rules)])
    async with Engine(paying(ledger), policies=[Always(JudgmentRequired(rule="mine"))]) as engine:
        result = await said(engine, call("look", at="this"))
    assert (result.failure_class, result.code) == ("denied", "policy_failed")


async def test_a_judge_that_changes_arguments_or_returns_no_judgment_denies_the_call(ledger: Ledger) -> None:
    class Sly:
        timeout_s, title = 1.0, "sly"

        def __init__(self, *, changes: bool) -> None:
            self.changes = changes

        def wants(self, call: ValidatedCall) -> bool:
            return True

        async def judge(self, call: ValidatedCall, context: JudgeContext) -> Judgment:
            if self.changes:
                call.arguments["to"] = "eve"
                return Judgment(verdict="allow", reason="fine")
            return Allow()  # type: ignore[return-value]

    for changes in (True, False):
        async with Engine(paying(ledger), policies=[Sly(changes=changes)]) as engine:
            assert (await said(engine, call("pay", to="ann"))).failure_class == "denied"
    assert ledger.lines() == []


class Own:
    """A judge that the host implements."""

    title = "own"

    def __init__(self, wants: Any = True, judgment: Any = None, timeout_s: Any = 1.0) -> None:
        self._wants, self._judgment, self.timeout_s = wants, judgment or Judgment(verdict="allow", reason="fine"), timeout_s

    def wants(self, call: ValidatedCall) -> bool:
        if isinstance(self._wants, BaseException):
            raise self._wants
        return self._wants() if callable(self._wants) else self._wants  # type: ignore[no-any-return]

    async def judge(self, call: ValidatedCall, context: JudgeContext) -> Judgment:
        return self._judgment


async def _later() -> bool:
    return False


@pytest.mark.parametrize(
    "wants", [RuntimeError("no"), SystemExit(1), None, 0, "yes", _later], ids=["raises", "exits", "None", "0", "text", "coroutine"]
)
async def test_a_judge_whose_wants_raises_or_returns_no_bool_denies_the_call(ledger: Ledger, wants: Any) -> None:
    async with Engine(paying(ledger), policies=[Own(wants)]) as engine:
        for name, arguments in (("pay", {"to": "ann"}), ("look", {"at": "this"})):
            result = await said(engine, call(name, **arguments))
            assert (result.code, result.failure_class) == ("judge_failed", "denied")
        assert [one["judge"] for one in judged(engine)] == ["own", "own"]
        assert {one["failed"] for one in judged(engine)} <= {"error", "malformed"}
    assert ledger.lines() == []


@pytest.mark.parametrize(
    "judgment",
    [
        Judgment(verdict="allow", reason="fine", judge=5),  # type: ignore[arg-type]
        Judgment(verdict="allow", reason="fine", input_tokens=object()),  # type: ignore[arg-type]
        Judgment(verdict="allow", reason="fine", failed="timeout"),
        Judgment(verdict=["allow"], reason="fine"),  # type: ignore[arg-type]
        Judgment(verdict="deny", reason="fine", failed=object()),  # type: ignore[arg-type]
    ],
    ids=["judge", "tokens", "allowed and failed", "verdict", "failed"],
)
async def test_an_invalid_or_contradictory_judgment_is_recorded_as_a_deny(ledger: Ledger, judgment: Judgment) -> None:
    async with Engine(paying(ledger), policies=[Own(judgment=judgment)]) as engine:
        result = await said(engine, call("pay", to="ann"))
        (one,) = judged(engine)
    assert (result.code, one["failed"], one["judge"]) == ("judge_failed", "malformed", "own")
    assert ledger.lines() == []


@pytest.mark.parametrize("timeout_s", [None, 0, -1.0, "5", float("inf"), float("nan")], ids=repr)
def test_a_judge_without_a_finite_positive_timeout_is_refused(ledger: Ledger, timeout_s: Any) -> None:
    with pytest.raises(UsageError, match="timeout_s"):
        Engine(paying(ledger), policies=[Own(timeout_s=timeout_s)])


async def test_a_kill_ends_the_wait_for_a_judge_and_the_call_never_runs(ledger: Ledger) -> None:
    for model in (ScriptedModel([[Pause(3_600.0), ALLOW]]), Noting()):
        async with Engine(paying(ledger), policies=[Judge(model, timeout_s=3_000.0)]) as engine:
            pending = asyncio.ensure_future(engine.call(call("pay", to="ann"), Scope(conversation="c")))
            while not model.requests:
                await asyncio.sleep(0)
            engine.control.kill("c", "the user has gone")
            result = result_of(await pending)
        assert (result.failure_class, "the user has gone" in result.text) == ("not_started", True)
    assert ledger.lines() == []


class Noting(Stubborn):
    """A stubborn model that records its requests."""

    def __init__(self) -> None:
        self.requests: list[ModelRequest] = []

    async def stream(self, request: ModelRequest, context: StreamingContext) -> AsyncIterator[ModelEvent]:
        self.requests.append(request)
        async for event in super().stream(request, context):
            yield event
