"""Tools of Pydantic AI that start work elsewhere, and raise `CallDeferred`: the work is not started twice."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from pydantic_ai import Agent, ApprovalRequired, CallDeferred, DeferredToolRequests, DeferredToolResults, RunContext, ToolFailed

from callgate import Engine
from callgate.integrations.pydantic_ai import CallgateCapability
from tests.integrations.contract import Call
from tests.integrations.test_pydantic_ai_contract import scripted, told_in

PAY = Call("pay", {"invoice": "A"})
PAY_AGAIN = Call("pay", {"invoice": "A"}, id="c2")


class Payments:
    """An agent whose tool starts a payment elsewhere."""

    def __init__(self, error: BaseException, *messages: Sequence[Call] | str, effect: Any = "once") -> None:
        self.started = 0
        self.engine = Engine()
        pays = CallgateCapability(self.engine, effects={"pay": effect}, options={"pay": {"key": "{invoice}"}} if effect == "once" else {})
        output: Any = [str, DeferredToolRequests]
        self.agent: Agent[None, Any] = Agent(scripted([PAY], *messages, "done"), output_type=output, capabilities=[pays])

        @self.agent.tool
        def pay(ctx: RunContext[None], invoice: str) -> str:
            if ctx.tool_call_approved:
                return "paid"
            self.started += 1
            raise error

    async def hand_in(self, deferred: Any, result: Any) -> Any:
        results = DeferredToolResults(calls={"c1": result})
        return await self.agent.run(message_history=deferred.all_messages(), deferred_tool_results=results)


@asynccontextmanager
async def payments(*given: Any, **options: Any) -> AsyncIterator[Payments]:
    made = Payments(*given, **options)
    async with made.engine:
        yield made


async def test_a_deferred_call_ends_the_run_as_the_tool_has_asked() -> None:
    async with payments(CallDeferred(metadata={"job": 1})) as paid:
        deferred = await paid.agent.run("go")
    assert [call.tool_call_id for call in deferred.output.calls] == ["c1"]
    assert deferred.output.metadata == {"c1": {"job": 1}}


async def test_a_deferred_call_that_is_made_again_does_not_start_its_work_again() -> None:
    async with payments(CallDeferred()) as paid:
        deferred = await paid.agent.run("go")
        result = await paid.agent.run(message_history=deferred.all_messages()[:2])
    assert paid.started == 1
    assert "started elsewhere" in told_in(result.all_messages())["c1"].text


async def test_another_call_with_the_key_of_a_deferred_one_does_not_run() -> None:
    async with payments(CallDeferred()) as paid:
        await paid.agent.run("go")
        result = await paid.agent.run("go")
    assert paid.started == 1
    told = told_in(result.all_messages())["c1"]
    assert told.is_error
    assert "its outcome is not known" in told.text


async def test_the_result_of_a_deferred_call_settles_it() -> None:
    async with payments(CallDeferred(), [PAY_AGAIN]) as paid:
        result = await paid.hand_in(await paid.agent.run("go"), "job done")
        told = told_in(result.all_messages())
        assert told["c1"].text == "job done"
        assert "took effect before" in told["c2"].text
        assert not told["c2"].is_error
    assert paid.started == 1


async def test_a_failure_that_is_handed_in_leaves_the_outcome_of_a_deferred_call_unknown() -> None:
    async with payments(CallDeferred(), [PAY_AGAIN]) as paid:
        result = await paid.hand_in(await paid.agent.run("go"), ToolFailed("the job was lost"))
        assert "its outcome is not known" in told_in(result.all_messages())["c2"].text
    assert paid.started == 1


@pytest.mark.parametrize(("kind", "effect"), [("question", "once"), ("external", "none"), ("external", "idempotent")])
async def test_a_deferred_call_that_starts_nothing_or_may_be_repeated_is_deferred_again(kind: Any, effect: str) -> None:
    async with payments(CallDeferred(kind=kind), effect=effect) as paid:
        deferred = await paid.agent.run("go")
        again = await paid.agent.run(message_history=deferred.all_messages()[:2])
    assert isinstance(again.output, DeferredToolRequests)


async def test_a_tool_that_asks_for_approval_itself_runs_after_the_yes() -> None:
    async with payments(ApprovalRequired()) as paid:
        asked = await paid.agent.run("go")
        results = DeferredToolResults(approvals={"c1": True})
        result = await paid.agent.run(message_history=asked.all_messages(), deferred_tool_results=results)
    assert told_in(result.all_messages())["c1"].text == "paid"
