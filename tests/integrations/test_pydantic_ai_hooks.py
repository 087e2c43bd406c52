"""Hooks of other capabilities of Pydantic AI change the arguments of calls: no such change counts as a human's edit."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, RunContext, ToolApproved
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.tools import Tool

from callgate import Engine
from callgate.integrations.pydantic_ai import CallgateCapability, CallgateToolset, recorded_answers
from tests.integrations.contract import Call
from tests.integrations.test_pydantic_ai_contract import scripted, told_in

Change = Callable[[RunContext[Any], dict[str, Any]], dict[str, Any]]
ASKS: Any = {"pay": {"requires_approval": True}}


class _Before(AbstractCapability[Any]):
    def __init__(self, change: Change) -> None:
        super().__init__()
        self._change = change

    async def before_tool_execute(self, ctx: RunContext[Any], *, call: Any, tool_def: Any, args: dict[str, Any]) -> dict[str, Any]:
        return self._change(ctx, args)


class _BeforeValidation(AbstractCapability[Any]):
    def __init__(self, change: Change) -> None:
        super().__init__()
        self._change = change

    async def before_tool_validate(self, ctx: RunContext[Any], *, call: Any, tool_def: Any, args: Any) -> Any:
        return self._change(ctx, args)


class _AfterValidation(AbstractCapability[Any]):
    def __init__(self, change: Change) -> None:
        super().__init__()
        self._change = change

    async def after_tool_validate(self, ctx: RunContext[Any], *, call: Any, tool_def: Any, args: dict[str, Any]) -> dict[str, Any]:
        return self._change(ctx, args)


class Payments:
    """An agent that pays what a human approves, with a hook that changes the arguments."""

    def __init__(self, wrapper: str, hook: AbstractCapability[Any]) -> None:
        self.made: list[int] = []

        async def pay(cents: int) -> str:
            self.made.append(cents)
            return f"{cents} paid"

        self.engine = Engine()
        is_capability = wrapper == "capability"
        self.agent: Agent[Any, Any] = Agent(
            scripted([Call("pay", {"cents": 1})], "done"),
            deps_type=int,
            output_type=[str, DeferredToolRequests],
            tools=[Tool(pay)] if is_capability else [],
            toolsets=[] if is_capability else [CallgateToolset([pay], self.engine, options=ASKS)],
            capabilities=[*([CallgateCapability(self.engine, options=ASKS)] if is_capability else []), hook],
        )

    async def resume(self, asked: Any, decision: Any = True, deps: int = 0) -> Any:
        results = DeferredToolResults(approvals={"c1": decision}, metadata=asked.output.metadata)
        return await self.agent.run(message_history=asked.all_messages(), deferred_tool_results=results, deps=deps)


@asynccontextmanager
async def payments(wrapper: str, hook: AbstractCapability[Any]) -> AsyncIterator[Payments]:
    made = Payments(wrapper, hook)
    async with made.engine:
        yield made


def question_in(result: Any) -> str:
    assert isinstance(result.output, DeferredToolRequests), result.output
    return str(result.output.metadata["c1"]["question"])


def on_resume(ctx: RunContext[Any], args: dict[str, Any]) -> dict[str, Any]:
    return {"cents": 900} if ctx.tool_call_approved else args


def from_deps(ctx: RunContext[Any], args: dict[str, Any]) -> dict[str, Any]:
    return {"cents": ctx.deps}


def add_ten(ctx: RunContext[Any], args: dict[str, Any]) -> dict[str, Any]:
    return {"cents": args["cents"] + 10}


WRAPPERS = ["capability", "toolset"]


@pytest.mark.parametrize("wrapper", WRAPPERS)
@pytest.mark.parametrize("hook", [_Before, _AfterValidation])
async def test_a_yes_does_not_count_for_arguments_that_a_hook_sets_after_it(wrapper: str, hook: Any) -> None:
    async with payments(wrapper, hook(on_resume)) as paid:
        asked = await paid.agent.run("go", deps=0)
        again = await paid.resume(asked)
        assert '{"cents":900}' in question_in(again)
        assert paid.made == []
        result = await paid.resume(again)
    assert paid.made == [900]
    assert "a human" not in told_in(result.all_messages())["c1"].text


async def test_a_yes_does_not_count_for_arguments_that_a_hook_sets_before_they_are_validated() -> None:
    async with payments("capability", _BeforeValidation(on_resume)) as paid:
        again = await paid.resume(await paid.agent.run("go", deps=0))
        assert '{"cents":900}' in question_in(again)
    assert paid.made == []


@pytest.mark.parametrize("wrapper", WRAPPERS)
async def test_a_call_whose_hook_reads_other_dependencies_each_time_is_asked_about_each_time(wrapper: str) -> None:
    async with payments(wrapper, _Before(from_deps)) as paid:
        asked = await paid.agent.run("go", deps=5)
        for deps in (6, 7):
            asked = await paid.resume(asked, deps=deps)
            assert f'{{"cents":{deps}}}' in question_in(asked)
        assert paid.made == []
        await paid.resume(asked, deps=7)
    assert paid.made == [7]


@pytest.mark.parametrize("wrapper", WRAPPERS)
@pytest.mark.parametrize("hook", [_Before, _BeforeValidation, _AfterValidation])
async def test_one_yes_is_enough_if_a_hook_always_makes_the_same_change(wrapper: str, hook: Any) -> None:
    async with payments(wrapper, hook(add_ten)) as paid:
        asked = await paid.agent.run("go", deps=0)
        assert '{"cents":11}' in question_in(asked)
        result = await paid.resume(asked)
    assert paid.made == [11]
    assert told_in(result.all_messages())["c1"].text == "11 paid"


@pytest.mark.parametrize("wrapper", WRAPPERS)
async def test_a_call_does_not_run_if_a_hook_changes_the_arguments_that_a_human_gave(wrapper: str) -> None:
    async with payments(wrapper, _Before(add_ten)) as paid:
        asked = await paid.agent.run("go", deps=0)
        result = await paid.resume(asked, ToolApproved(override_args={"cents": 7}))
    told = told_in(result.all_messages())["c1"]
    assert told.is_error
    assert "a hook of the agent has changed them" in told.text
    assert paid.made == []


async def test_arguments_that_come_with_the_yes_run_if_a_hook_changes_only_the_models_own() -> None:
    async with payments("capability", _Before(lambda _, args: {"cents": 2} if args == {"cents": 1} else args)) as paid:
        asked = await paid.agent.run("go", deps=0)
        again = await paid.resume(asked, ToolApproved(override_args={"cents": 7}))
        assert '{"cents":7}' in question_in(again)
        await paid.resume(again, ToolApproved(override_args={"cents": 7}))
    assert paid.made == [7]


async def test_an_answer_in_the_journal_does_not_count_for_arguments_that_a_hook_sets_after_it() -> None:
    async with payments("capability", _Before(on_resume)) as paid:
        asked = await paid.agent.run("go", deps=0)
        await paid.engine.approve(asked.output.metadata["c1"]["approval_id"], by="ann")
        go_on = recorded_answers(asked.output)
        again = await paid.agent.run(message_history=asked.all_messages(), deferred_tool_results=go_on, deps=0)
        assert '{"cents":900}' in question_in(again)
    assert paid.made == []
