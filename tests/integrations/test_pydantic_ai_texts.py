"""What a model of a Pydantic AI agent reads about calls that failed, or of which only an operator knows the outcome."""

from __future__ import annotations

import json
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ToolReturnPart
from pydantic_ai.tools import Tool

from callgate import Engine, MemoryJournal
from callgate.integrations import import_tools
from callgate.integrations.pydantic_ai import CallgateToolset
from tests.integrations.contract import Call
from tests.integrations.test_pydantic_ai_contract import scripted


def _content(messages: list[ModelMessage]) -> Any:
    (content,) = [part.content for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]
    return content


async def refund(order: str) -> dict[str, str]:
    """Refund an order."""
    raise RuntimeError("the connection was closed")


async def nothing() -> None:
    """Return nothing."""


async def test_a_call_of_which_an_operator_says_that_it_happened_is_told_as_the_journal_has_it() -> None:
    journal = MemoryJournal()
    async with Engine(import_tools([Tool(refund)]), journal=journal) as engine:
        agent = Agent(scripted([Call("refund", {"order": "A7"})], "done"), toolsets=[CallgateToolset([refund], engine)])
        first = await agent.run("go")
        (uid,) = [event.call for event in journal.read() if event.kind == "call.completed"]
        await engine.settle(uid, happened=True, by="ann")
        second = await agent.run(message_history=first.all_messages()[:2])
    recorded = [event.body for event in journal.read() if event.kind == "call.completed"][-1]
    assert _content(second.all_messages()) == json.loads(recorded)["content"][0]["text"]
    assert "ann has checked it" in _content(second.all_messages())


async def test_a_failed_return_is_plain_text_because_pydantic_ai_wraps_it_in_json() -> None:
    async with Engine(import_tools([Tool(refund)])) as engine:
        agent = Agent(scripted([Call("refund", {"order": "A7"})], "done"), toolsets=[CallgateToolset([refund], engine)])
        result = await agent.run("go")
    assert _content(result.all_messages()).startswith("refund failed: the connection was closed. It may have taken effect.")


async def test_a_stored_result_of_a_tool_that_returns_nothing_is_nothing() -> None:
    async with Engine(import_tools([Tool(nothing)])) as engine:
        agent = Agent(scripted([Call("nothing")], "done"), toolsets=[CallgateToolset([nothing], engine)])
        first = await agent.run("go")
        second = await agent.run(message_history=first.all_messages()[:2])
    assert [_content(one.all_messages()) for one in (first, second)] == [None, None]
