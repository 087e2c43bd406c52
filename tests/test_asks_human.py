"""`engine.asks_human`: whether a human has to decide about a call, before the call is made."""

from __future__ import annotations

import pytest

from callgate import Allow, Ask, Deny, Engine, Modify, RawCall, Scope, Suspended, tool
from callgate.protocols import Verdict
from callgate.stage_types import ValidatedCall
from tests.engine_calls import call, kinds, result_of

SCOPE = Scope(run="r")


@tool
def pay(order: str) -> str:
    """Pay an order."""
    return f"{order} paid"


class Asks:
    """Asks about the order A7, denies B8, and changes C9 to A7."""

    async def decide(self, call: ValidatedCall) -> Verdict:
        match call.arguments["order"]:
            case "A7":
                return Ask(question="Pay?", rule="ask")
            case "B8":
                return Deny(reason="no", rule="deny")
            case "C9":
                return Modify(arguments={"order": "A7"}, reason="moved", rule="change")
        return Allow(rule="others")


@pytest.mark.parametrize(("order", "asks"), [("A7", True), ("B8", False), ("C9", True), ("D1", False), (3.5, False)])
async def test_it_says_whether_a_human_has_to_decide_and_records_nothing(order: object, asks: bool) -> None:
    async with Engine([pay], policies=[Asks()], coerce=False) as engine:
        assert engine.may_ask
        assert await engine.asks_human(call("pay", order=order), SCOPE) is asks
        assert await engine.asks_human(RawCall(name="unknown", arguments={}), SCOPE) is False
        assert kinds(engine) == []


@pytest.mark.parametrize("allow", [True, False])
async def test_an_answered_question_is_not_asked_again(allow: bool) -> None:
    async with Engine([pay], policies=[Asks()]) as engine:
        suspended = await engine.call(call("pay", order="A7"), SCOPE)
        assert isinstance(suspended, Suspended)
        assert await engine.asks_human(call("pay", order="A7"), SCOPE)
        await (engine.approve if allow else engine.deny)(suspended.approval_id)
        assert not await engine.asks_human(call("pay", order="A7"), SCOPE)
        assert result_of(await engine.call(call("pay", order="A7"), SCOPE)).success is allow


async def test_an_engine_without_policies_never_asks() -> None:
    async with Engine([pay]) as engine:
        assert not engine.may_ask
        assert not await engine.asks_human(call("pay", order="A7"))
