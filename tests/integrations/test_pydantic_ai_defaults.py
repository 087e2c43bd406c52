"""Defaults that a tool of Pydantic AI makes anew each time: a call that is made again is the same call, with its first ones."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import count
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field, SecretStr
from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, ToolApproved
from pydantic_ai.capabilities import AbstractCapability

from callgate import Allow, Engine, Modify
from callgate.integrations.pydantic_ai import CallgateCapability, CallgateToolset, recorded_answers
from callgate.protocols import Verdict
from callgate.stage_types import ValidatedCall
from tests.integrations.contract import Call
from tests.integrations.test_pydantic_ai_contract import scripted, told_in

_numbers = count()


def reference() -> str:
    return f"r{next(_numbers)}"


class Order(BaseModel):
    name: str
    reference: str = Field(default_factory=reference)


class Payments:
    """Tools that pay orders, each payment with a reference of its own."""

    def __init__(self) -> None:
        self.made: list[str] = []

        def pay(name: str, reference: Annotated[str, Field(default_factory=reference)]) -> str:
            return self._pay(name, reference)

        def pay_one(order: Order) -> str:
            return self._pay(order.name, order.reference)

        def pay_all(orders: list[Order]) -> str:
            return ", ".join(self._pay(order.name, order.reference) for order in orders)

        self.tools: dict[str, tuple[Callable[..., str], dict[str, Any]]] = {
            "parameter": (pay, {"name": "A7"}),
            "model": (pay_one, {"name": "A7"}),
            "nested model": (pay_all, {"orders": [{"name": "A7"}]}),
        }

    def _pay(self, name: str, reference: str) -> str:
        self.made.append(f"{name} {reference}")
        return f"{name} paid"

    def agent(self, kind: str, engine: Engine, **given: Any) -> Agent[None, Any]:
        tool, arguments = self.tools[kind]
        options: Any = {tool.__name__: given}
        model = scripted([Call(tool.__name__, arguments)], "done")
        gate = CallgateCapability(engine, options=options)
        return Agent(model, tools=[tool], capabilities=[gate], output_type=[str, DeferredToolRequests])


KINDS = pytest.mark.parametrize("kind", ["parameter", "model", "nested model"])


@KINDS
async def test_a_call_that_is_made_again_with_another_default_is_not_run_twice(kind: str) -> None:
    payments = Payments()
    async with Engine() as engine:
        agent = payments.agent(kind, engine)
        first = await agent.run("go")
        again = await agent.run(message_history=first.all_messages()[:2])
    assert len(payments.made) == 1
    assert told_in(again.all_messages())["c1"].text == "A7 paid"


async def test_a_call_of_a_tool_with_a_prefix_that_is_made_again_is_not_run_twice() -> None:
    payments = Payments()
    tool, arguments = payments.tools["parameter"]
    async with Engine() as engine:
        prefixed = CallgateToolset([tool], engine).prefixed("shop")
        agent = Agent(scripted([Call("shop_pay", arguments)], "done"), toolsets=[prefixed])
        first = await agent.run("go")
        await agent.run(message_history=first.all_messages()[:2])
    assert len(payments.made) == 1


@KINDS
@pytest.mark.parametrize("recorded", [False, True], ids=["through the framework", "in the engine"])
async def test_a_call_that_was_approved_runs_with_the_default_that_the_human_has_seen(kind: str, recorded: bool) -> None:
    payments = Payments()
    async with Engine() as engine:
        agent = payments.agent(kind, engine, requires_approval=True)
        asked = await agent.run("go")
        results = DeferredToolResults(approvals={"c1": True})
        if recorded:
            await engine.approve(asked.output.metadata["c1"]["approval_id"])
            results = recorded_answers(asked.output)
        ended = await agent.run(message_history=asked.all_messages(), deferred_tool_results=results)
    shown = re.findall(r"r\d+", asked.output.metadata["c1"]["question"])
    assert ended.output == "done"
    assert payments.made == [f"A7 {shown[0]}"]


@pytest.mark.parametrize("given", [{"name": "B"}, {"name": "B", "reference": "mine"}], ids=["left out", "given"])
async def test_arguments_that_a_human_gives_instead_have_the_first_default_only_where_they_leave_it_out(given: dict[str, str]) -> None:
    payments = Payments()
    async with Engine() as engine:
        agent = payments.agent("parameter", engine, requires_approval=True)
        asked = await agent.run("go")
        results = DeferredToolResults(approvals={"c1": ToolApproved(override_args=given)})
        for _ in range(2):  # as after a crash
            await agent.run(message_history=asked.all_messages(), deferred_tool_results=results)
    shown = re.findall(r"r\d+", asked.output.metadata["c1"]["question"])
    assert payments.made == [f"B {given.get('reference', shown[0])}"]


class HidesReferences:
    """A redactor that takes the references of payments for secrets."""

    def redact(self, body: bytes) -> bytes:
        return re.sub(rb"\br\d+", b"[hidden]", body)


async def test_a_default_that_is_hidden_in_the_record_is_not_taken_from_it() -> None:
    payments = Payments()
    async with Engine(redactor=HidesReferences()) as engine:
        agent = payments.agent("parameter", engine, requires_approval=True)
        asked = await agent.run("go")
        results = DeferredToolResults(approvals={"c1": True})
        again = await agent.run(message_history=asked.all_messages(), deferred_tool_results=results)
    assert isinstance(again.output, DeferredToolRequests)
    assert not payments.made


class PaysAtMostTen:
    """A policy that changes the amount of a payment."""

    async def decide(self, call: ValidatedCall) -> Verdict:
        amount: Any = call.arguments["amount"]
        if amount <= 10:
            return Allow(rule="small")
        return Modify(arguments={**call.arguments, "amount": 10}, reason="at most 10")


@pytest.mark.parametrize("amount", [5, 50], ids=["unchanged", "changed by a policy"])
async def test_a_secret_that_the_model_gives_reaches_the_tool_beside_other_arguments_that_change(amount: int) -> None:
    made: list[str] = []

    def pay(amount: int, pin: SecretStr, reference: Annotated[str, Field(default_factory=reference)]) -> str:
        made.append(f"{amount} {pin.get_secret_value()}")
        return "paid"

    async with Engine(policies=[PaysAtMostTen()]) as engine:
        gate = CallgateCapability(engine, options={"pay": {"requires_approval": True}})
        model = scripted([Call("pay", {"amount": amount, "pin": "1234"})], "done")
        agent = Agent(model, tools=[pay], capabilities=[gate], output_type=[str, DeferredToolRequests])
        asked = await agent.run("go")
        await agent.run(message_history=asked.all_messages(), deferred_tool_results=DeferredToolResults(approvals={"c1": True}))
    assert made == [f"{min(amount, 10)} 1234"]


async def test_an_argument_that_a_hook_makes_anew_each_time_stays_the_first_one() -> None:
    made: list[str] = []

    def pay(name: str, key: str = "") -> str:
        made.append(f"{name} {key}")
        return "paid"

    class AddsKey(AbstractCapability[Any]):
        async def before_tool_execute(self, ctx: Any, *, call: Any, tool_def: Any, args: Any) -> Any:
            return {**args, "key": reference()}

    async with Engine() as engine:
        agent = Agent(scripted([Call("pay", {"name": "A7"})], "done"), tools=[pay], capabilities=[AddsKey(), CallgateCapability(engine)])
        first = await agent.run("go")
        await agent.run(message_history=first.all_messages()[:2])
    assert len(made) == 1
