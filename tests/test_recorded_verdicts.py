"""Recorded verdicts of the gate: each has its call, its reason and the arguments that it is about."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from callgate import Allow, Ask, Deny, Engine, Hook, Modify, Scope, SqliteJournal, before_call, inbox, tool
from callgate.protocols import Policy, Verdict
from callgate.stage_types import ValidatedCall
from tests.engine_calls import body, call, said, verdicts


@tool
async def pay(to: str, cents: int = 1) -> str:
    """Pay."""
    return f"paid {cents} to {to}"


class AtMostTen:
    """A policy that lowers the amount to ten, and otherwise gives a fixed verdict."""

    def __init__(self, then: Verdict) -> None:
        self.then = then

    async def decide(self, call: ValidatedCall) -> Verdict:
        if call.arguments["cents"] > 10:  # type: ignore[operator]
            return Modify(arguments={**call.arguments, "cents": 10}, reason="ten at most", rule="cap")
        return self.then


FINAL = {"to": "ann", "cents": 10}


async def test_a_modification_by_a_policy_is_recorded_as_a_modify_verdict() -> None:
    """The verdict has the rule, the reason and the new arguments, and is recorded between the received call and its start."""
    async with Engine([pay], policies=[AtMostTen(Allow(rule="fine"))]) as engine:
        result = await said(engine, call("pay", to="ann", cents=99))
        change, allowed = verdicts(engine)
        kinds = [event.kind for event in engine.journal.read(call=result.uid)]
    assert result.data == "paid 10 to ann"
    assert [change[key] for key in ("verdict", "rule", "reason", "arguments")] == ["modify", "cap", "ten at most", FINAL]
    assert [allowed[key] for key in ("verdict", "rule", "arguments")] == ["allow", "fine", FINAL]
    assert kinds == ["call.received", "call.verdict", "call.started", "call.completed"]


@pytest.mark.parametrize(("then", "word"), [(Deny(reason="no", rule="never"), "deny"), (Ask(question="may it?", rule="never"), "ask")])
async def test_every_recorded_verdict_has_the_arguments_it_judged(then: Verdict, word: str) -> None:
    """The arguments are those that the tool would get: coerced, with defaults, and modified."""
    async with Engine([pay], policies=[AtMostTen(then)]) as engine:
        await engine.call(call("pay", to="ann", cents="99"))
        await engine.call(call("pay", to="bob"))
        given = verdicts(engine)
    assert [one["verdict"] for one in given] == ["modify", word, word]
    assert [one["arguments"] for one in given] == [FINAL, FINAL, {"to": "bob", "cents": 1}]
    assert [one["rule"] for one in given] == ["cap", "never", "never"]


async def test_a_modification_by_a_hook_is_recorded_with_the_hook() -> None:
    @before_call("pay", kind="transform")
    def lowers(call: ValidatedCall) -> dict[str, object]:
        return {**call.arguments, "cents": 10}

    async with Engine([pay], hooks=[lowers]) as engine:
        await said(engine, call("pay", to="ann", cents=99))
        change, allowed = verdicts(engine)
    assert (change["verdict"], change["arguments"], allowed["arguments"]) == ("modify", FINAL, FINAL)
    assert str(change["hook"]).endswith("lowers")


def refuses(call: ValidatedCall) -> str:
    return "the bank is closed"


def breaks(call: ValidatedCall) -> str:
    raise RuntimeError("down")


def asks_for_nonsense(call: ValidatedCall) -> dict[str, object]:
    return {"to": 5}


@pytest.mark.parametrize(("run", "kind"), [(refuses, "reject"), (breaks, "reject"), (asks_for_nonsense, "transform")])
async def test_the_recorded_deny_of_a_hook_names_the_hook_and_its_call(run: Any, kind: Any) -> None:
    async with Engine([pay], hooks=[Hook(run=run, phase="before", kind=kind)]) as engine:
        other = await said(engine, call("pay", to="ann"))
        result = await said(engine, call("pay", to="bob"))
        event = next(event for event in engine.journal.read(call=result.uid) if event.kind == "call.verdict")
    verdict = body(event)
    assert other.uid != result.uid
    assert (verdict["verdict"], verdict["hook"], verdict["arguments"]) == ("deny", run.__name__, {"to": "bob", "cents": 1})
    assert (result.failure_class, result.structured) == ("denied", {"hook": run.__name__})


async def test_the_recorded_failure_of_an_observer_names_its_call() -> None:
    async with Engine([pay], hooks=[Hook(run=breaks, phase="before")]) as engine:
        result = await said(engine, call("pay", to="ann"))
        [failed] = [event for event in engine.journal.read() if event.kind == "hook.failed"]
    assert result.success
    assert (failed.call, body(failed)["details"]) == (result.uid, {"hook": "breaks"})


async def test_an_approval_in_the_inbox_shows_the_final_arguments(tmp_path: Path) -> None:
    """Rules, judge and human get the same arguments."""
    path = tmp_path / "journal.db"
    policies: list[Policy] = [AtMostTen(Ask(question="may it?"))]
    async with Engine([pay], policies=policies, journal=SqliteJournal(path)) as engine:
        await engine.call(call("pay", to="ann", cents="99"), Scope(run="r"))
    [waiting] = inbox.waiting(path)
    assert waiting.arguments == '{"to":"ann","cents":10}'
