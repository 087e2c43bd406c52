"""Agents of Pydantic AI in a durable executor, which runs an agent again after a crash, with the model's recorded messages."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta, timezone
from pathlib import Path

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.tools import Tool

from callgate import Engine, Scope, SqliteJournal
from callgate.integrations.pydantic_ai import CallgateCapability
from tests.integrations.contract import Call
from tests.integrations.test_pydantic_ai_contract import scripted


def _recorded(history: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Answer as a model whose messages are on record, with the provider's ids."""
    if any(isinstance(one, ModelResponse) for one in history):
        return ModelResponse([TextPart("done")], provider_response_id="m2")
    return ModelResponse([ToolCallPart("pay", {"invoice": "A7"}, tool_call_id="c1")], provider_response_id="m1")


async def test_a_run_that_the_scope_names_repeats_no_call_if_the_executor_gives_each_run_a_new_conversation(tmp_path: Path) -> None:
    made: list[str] = []

    async def pay(invoice: str) -> str:
        """Pay an invoice."""
        made.append(invoice)
        return f"{invoice} paid"

    for _ in range(2):
        async with Engine(journal=SqliteJournal(tmp_path / "calls.db")) as engine:
            gated = CallgateCapability(engine, scope=Scope(run="case-7"))
            await Agent(FunctionModel(_recorded), tools=[Tool(pay)], capabilities=[gated]).run("go")
    assert made == ["A7"]


async def test_messages_that_a_store_has_given_another_time_zone_repeat_no_call() -> None:
    made: list[str] = []

    async def pay(invoice: str) -> str:
        """Pay an invoice."""
        made.append(invoice)
        return f"{invoice} paid"

    async with Engine() as engine:
        model = scripted([Call("pay", {"invoice": "A7"})], "done")
        agent = Agent(model, tools=[Tool(pay)], capabilities=[CallgateCapability(engine)])
        request, response = (await agent.run("go")).all_messages()[:2]
        assert isinstance(response, ModelResponse)
        stored = replace(response, timestamp=response.timestamp.astimezone(timezone(timedelta(hours=2))))
        await agent.run(message_history=[request, stored])
    assert made == ["A7"]
