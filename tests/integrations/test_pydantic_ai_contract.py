"""The promises of a wrapper, with agents of Pydantic AI."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, ToolApproved, ToolDenied
from pydantic_ai.messages import ModelMessage, ModelResponse, RetryPromptPart, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.tools import Tool

from callgate import Engine
from callgate.integrations.pydantic_ai import CallgateToolset
from tests.integrations.contract import Call, Said, Told, WrapperContract

__all__ = ["scripted", "told_in"]


def scripted(*messages: Sequence[Call] | str) -> FunctionModel:
    """Return a model whose nth message of a conversation is the nth of these: calls, or a text."""

    def answer(history: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        message = messages[sum(isinstance(one, ModelResponse) for one in history)]
        if isinstance(message, str):
            return ModelResponse(parts=[TextPart(message)])
        return ModelResponse(parts=[ToolCallPart(one.name, one.arguments, tool_call_id=one.id) for one in message])

    return FunctionModel(answer)


def told_in(messages: Sequence[ModelMessage]) -> dict[str, Told]:
    """Return the results of tools that the model read, by call id."""
    told: dict[str, Told] = {}
    for part in (part for message in messages for part in message.parts):
        if isinstance(part, ToolReturnPart):
            told[part.tool_call_id] = Told(part.model_response_str(), part.outcome != "success")
        elif isinstance(part, RetryPromptPart):
            told[part.tool_call_id] = Told(part.model_response(), is_error=True)
    return told


def _approval(said: Said) -> Any:
    return ToolApproved(override_args=said.arguments) if said.allow else ToolDenied(said.reason)


class TestToolset(WrapperContract):
    def tool(self, function: Callable[..., Any]) -> Any:
        return Tool(function)

    async def run(
        self,
        engine: Engine,
        tools: Sequence[Any],
        message: Sequence[Call],
        *,
        then: Sequence[Sequence[Call]] = (),
        says: Mapping[str, Said] | None = None,
    ) -> dict[str, Told]:
        model = scripted(message, *then, "done")
        agent = Agent(model, toolsets=[CallgateToolset(tools, engine)], output_type=[str, DeferredToolRequests])
        result = await agent.run("go")
        while isinstance(result.output, DeferredToolRequests):
            assert says is not None, result.output
            approvals = {one.tool_call_id: _approval(says[one.tool_call_id]) for one in result.output.approvals}
            results = DeferredToolResults(approvals=approvals)
            result = await agent.run(message_history=result.all_messages(), deferred_tool_results=results)
        assert result.output == "done"
        return told_in(result.all_messages())

    async def make_again(self, engine: Engine, tools: Sequence[Any], message: Sequence[Call]) -> list[dict[str, Told]]:
        agent = Agent(scripted(message, "done"), toolsets=[CallgateToolset(tools, engine)])
        first = await agent.run("go")
        second = await agent.run(message_history=first.all_messages()[:2])
        return [told_in(first.all_messages()), told_in(second.all_messages())]
