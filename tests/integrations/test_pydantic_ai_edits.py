"""A yes through Pydantic AI is about the arguments that the human has seen, or has given with it."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, ToolApproved, ToolDenied
from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart
from pydantic_ai.tools import Tool

from callgate import Engine
from callgate.integrations import import_tools
from callgate.integrations.pydantic_ai import CallgateToolset
from tests.integrations.contract import Call
from tests.integrations.test_pydantic_ai_contract import scripted, told_in

FRAMEWORK, ENGINE = "a tool of the framework", "a plain function of the engine"


class Payments:
    """An agent that pays what a human approves."""

    def __init__(self, kind: str, *messages: Sequence[Call] | str) -> None:
        self.made: list[int] = []

        async def pay(cents: int) -> str:
            """Pay."""
            self.made.append(cents)
            return f"{cents} paid"

        self.tool: Any = Tool(pay) if kind == FRAMEWORK else pay
        self.engine = Engine(import_tools([self.tool], options={"pay": {"requires_approval": True}}))
        self._model = scripted(*(messages or ([Call("pay", {"cents": 1})], "done")))
        self.agent = self.agent_with(self.tool)

    def agent_with(self, tool: Any) -> Agent[None, Any]:
        return Agent(self._model, toolsets=[CallgateToolset([tool], self.engine)], output_type=[str, DeferredToolRequests])

    async def resume(self, messages: list[ModelMessage], decision: Any = True) -> Any:
        results = DeferredToolResults(approvals={"c1": decision})
        return await self.agent.run(message_history=messages, deferred_tool_results=results)


@asynccontextmanager
async def payments(kind: str, *messages: Sequence[Call] | str) -> AsyncIterator[Payments]:
    made = Payments(kind, *messages)
    async with made.engine:
        yield made


def question_in(result: Any) -> str:
    assert isinstance(result.output, DeferredToolRequests)
    return str(result.output.metadata["c1"]["question"])


def edited(messages: list[ModelMessage], *, anew: bool, **arguments: int) -> list[ModelMessage]:
    """Return messages whose call has these arguments, in a response that is made anew, without its id and time, or in the same one."""
    calls: list[ToolCallPart] = [ToolCallPart("pay", arguments, tool_call_id="c1")]
    return [_edited(one, calls, anew=anew) if isinstance(one, ModelResponse) else one for one in messages]


def _edited(message: ModelResponse, calls: list[ToolCallPart], *, anew: bool) -> ModelResponse:
    return ModelResponse(parts=calls) if anew else dataclasses.replace(message, parts=calls)


@pytest.mark.parametrize("kind", [FRAMEWORK, ENGINE])
@pytest.mark.parametrize("anew", [False, True], ids=["the same message", "a message made anew"])
@pytest.mark.parametrize("answered", [False, True], ids=["not answered", "approved in the engine"])
async def test_a_call_whose_arguments_were_edited_in_the_history_is_asked_about_again(kind: str, anew: bool, answered: bool) -> None:
    async with payments(kind) as paid:
        asked = await paid.agent.run("go")
        if answered:
            await paid.engine.approve(asked.output.metadata["c1"]["approval_id"], by="ann")
        again = await paid.resume(edited(asked.all_messages(), anew=anew, cents=900))
        assert "other arguments" in question_in(again)
        assert '{"cents":900}' in question_in(again)
        assert paid.made == []
        result = await paid.resume(again.all_messages())
        assert told_in(result.all_messages())["c1"].text == "900 paid"
        assert paid.made == [900]


@pytest.mark.parametrize("kind", [FRAMEWORK, ENGINE])
async def test_a_call_with_the_arguments_that_were_asked_about_runs_also_if_its_message_was_made_anew(kind: str) -> None:
    async with payments(kind) as paid:
        asked = await paid.agent.run("go")
        await paid.resume(edited(asked.all_messages(), anew=True, cents=1))
    assert paid.made == [1]


@pytest.mark.parametrize("kind", [FRAMEWORK, ENGINE])
@pytest.mark.parametrize("anew", [False, True], ids=["the same message", "a message made anew"])
async def test_arguments_that_come_with_the_yes_need_no_second_question(kind: str, anew: bool) -> None:
    async with payments(kind) as paid:
        asked = await paid.agent.run("go")
        messages = edited(asked.all_messages(), anew=anew, cents=1)
        result = await paid.resume(messages, ToolApproved(override_args={"cents": 7}))
    assert "7 paid" in told_in(result.all_messages())["c1"].text
    assert paid.made == [7]


@pytest.mark.parametrize(("decision", "made"), [(True, [1, 2]), (ToolDenied("too dear"), [2])], ids=["approved", "denied"])
async def test_an_answered_question_about_an_earlier_call_with_the_same_id_does_not_matter(decision: Any, made: list[int]) -> None:
    script = ([Call("pay", {"cents": 1})], "done", [Call("pay", {"cents": 2})], "done")
    async with payments(FRAMEWORK, *script) as paid:
        asked = await paid.agent.run("go")
        first = await paid.resume(asked.all_messages(), decision)
        paid.agent = paid.agent_with(dataclasses.replace(paid.tool, requires_approval=True))  # now Pydantic AI asks itself
        asked = await paid.agent.run("go on", message_history=first.all_messages())
        result = await paid.resume(asked.all_messages())
    assert result.output == "done"
    assert paid.made == made


@pytest.mark.parametrize("kind", [FRAMEWORK, ENGINE])
async def test_an_edit_after_a_yes_in_the_engine_is_refused_with_a_reason(kind: str) -> None:
    async with payments(kind) as paid:
        asked = await paid.agent.run("go")
        await paid.engine.approve(asked.output.metadata["c1"]["approval_id"], by="ann")
        result = await paid.resume(asked.all_messages(), ToolApproved(override_args={"cents": 7}))
        assert paid.made == []
        told = told_in(result.all_messages())["c1"]
        assert told.is_error
        assert "a human has given it other arguments, but the engine did not ask for them" in told.text
        assert '{\\"cents\\":7}' in told.text or '{"cents":7}' in told.text


@pytest.mark.parametrize("kind", [FRAMEWORK, ENGINE])
async def test_an_edit_that_was_made_in_the_engine_too_runs(kind: str) -> None:
    async with payments(kind) as paid:
        asked = await paid.agent.run("go")
        await paid.engine.approve(asked.output.metadata["c1"]["approval_id"], by="ann", arguments={"cents": 7})
        await paid.resume(asked.all_messages(), ToolApproved(override_args={"cents": 7}))
    assert paid.made == [7]


@pytest.mark.parametrize("kind", [FRAMEWORK, ENGINE])
async def test_an_edit_after_a_no_in_the_engine_runs_nothing(kind: str) -> None:
    async with payments(kind) as paid:
        asked = await paid.agent.run("go")
        await paid.engine.deny(asked.output.metadata["c1"]["approval_id"], by="ann", reason="fraud")
        result = await paid.resume(asked.all_messages(), ToolApproved(override_args={"cents": 7}))
    assert "ann said no: fraud" in told_in(result.all_messages())["c1"].text
    assert paid.made == []
