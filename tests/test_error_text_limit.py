"""The text of a refusal or failure is bounded, whatever its source."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from callgate import Ask, Deny, Engine, Limits, RawCall, Suspended, before_call, tool
from callgate.protocols import Verdict
from callgate.stage_types import ValidatedCall
from tests.engine_calls import call, said

MUCH = "no! " * 500_000
LIMITS = Limits(error_bytes=1_024)


@tool
async def pay(to: str) -> str:
    """Pay somebody."""
    return f"paid {to}"


class Says:
    def __init__(self, verdict: Verdict) -> None:
        self.verdict = verdict

    async def decide(self, call: ValidatedCall) -> Verdict:
        return self.verdict


@before_call("pay", kind="reject")
def rejects(call: ValidatedCall) -> str:
    return MUCH


@before_call("pay", kind="reject")
def breaks(call: ValidatedCall) -> str:
    raise RuntimeError(MUCH)


@tool(name="pay")
async def fails(to: str) -> str:
    """Fail with a long text."""
    raise ValueError(MUCH)


@tool(name="pay")
async def declares(to: str) -> dict[str, Any]:
    """Return a long error."""
    return {"success": False, "error": MUCH}


PAY = call("pay", to="ann")
CASES: dict[str, tuple[dict[str, Any], RawCall]] = {
    "a policy": ({"policies": [Says(Deny(reason=MUCH, rule=MUCH))]}, PAY),
    "a hook": ({"hooks": [rejects]}, PAY),
    "a broken hook": ({"hooks": [breaks]}, PAY),
    "an unknown name": ({}, call(MUCH)),
    "arguments that are none": ({}, RawCall(name="pay", arguments=json.dumps({"to": [MUCH] * 3}))),
    "arguments that are no JSON": ({}, RawCall(name="pay", arguments='{"to": ' + MUCH)),
    "many arguments that are unknown": ({}, RawCall(name="pay", arguments=json.dumps({f"{n}{'x' * 500}": n for n in range(5_000)}))),
    "a tool that raises": ({"tools": [fails]}, PAY),
    "a tool that declares it": ({"tools": [declares]}, PAY),
}


@pytest.mark.parametrize(("settings", "raw"), CASES.values(), ids=CASES.keys())
async def test_the_error_text_and_record_of_a_failure_are_within_the_limit(settings: dict[str, Any], raw: RawCall) -> None:
    """The limit also applies to `error`, which hosts show, and the recorded event is bounded as well."""
    async with Engine(**{"tools": [pay], "limits": LIMITS, **settings}) as engine:
        result = await said(engine, raw)
        ends = [event.body for event in engine.journal.read() if event.kind == "call.completed"]
    assert not result.success
    assert len((result.error or "").encode()) <= LIMITS.error_bytes
    assert len(result.text.encode()) <= LIMITS.error_bytes + 1
    assert all(len(body) < 8 * LIMITS.error_bytes for body in ends)


@pytest.mark.parametrize("most", [1_024, 4_096, 65_536])
@pytest.mark.parametrize(
    "refuses", [lambda: {"tools": [fails]}, lambda: {"policies": [Says(Deny(reason=MUCH))]}], ids=["a tool", "a policy"]
)
async def test_error_bytes_sets_the_limit_of_the_error_text(most: int, refuses: Callable[[], dict[str, Any]]) -> None:
    async with Engine(**{"tools": [pay], "limits": Limits(error_bytes=most), **refuses()}) as engine:
        result = await said(engine, PAY)
    assert len(result.text.encode()) <= most


async def test_the_question_of_an_approval_is_bounded() -> None:
    async with Engine([pay], policies=[Says(Ask(question=MUCH, rule=MUCH))], limits=LIMITS) as engine:
        outcome = await engine.call(PAY)
        bodies = [len(event.body) for event in engine.journal.read() if event.kind == "call.suspended"]
    assert isinstance(outcome, Suspended)
    assert len(outcome.question) <= 4_096
    assert max(bodies) < 16_384
