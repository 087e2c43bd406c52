"""Several approval requests of one message of Microsoft Agent Framework, which a human answers one after the other."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from agent_framework import Agent, AgentSession, Content, Message
from agent_framework import tool as framework_tool

from callgate import Engine
from callgate.integrations import import_tools
from callgate.integrations.agent_framework import callgate_middleware
from tests.integrations.agent_framework_agents import ScriptedClient, told_by
from tests.integrations.contract import Call

CALLS = [Call("refund", {"order": order}, id=order) for order in ("A7", "B8", "C9")]


class Shop:
    """An agent whose session is stored between its runs, and what its tool has done."""

    def __init__(self, engine: Engine, tools: Sequence[Any]) -> None:
        self.client = ScriptedClient(CALLS, "done", "still done")
        self.agent: Agent[Any] = Agent(client=self.client, tools=tools, middleware=callgate_middleware(engine))
        self._saved = json.dumps(AgentSession(session_id="case-7").to_dict())

    async def run(self, message: str | Message) -> list[Content]:
        """Run the agent with a message. Return its requests."""
        session = AgentSession.from_dict(json.loads(self._saved))
        result = await self.agent.run(message, session=session)
        self._saved = json.dumps(session.to_dict())
        return list(result.user_input_requests)

    async def answer(self, request: Content, *, approved: bool = True) -> list[Content]:
        response = request.to_function_approval_response(approved=approved)
        response.additional_properties["reason"] = "Not today."
        return await self.run(Message("user", [response]))


@pytest.mark.parametrize("effect", ["none", "once"])
@pytest.mark.parametrize("order", [[0, 1, 2], [2, 0, 1]])
async def test_the_model_is_asked_when_all_requests_of_its_message_are_answered(order: list[int], effect: Any) -> None:
    """A message with calls that have no result is refused by providers."""
    paid: list[str] = []

    @framework_tool
    async def refund(order: str) -> str:
        """Refund an order."""
        paid.append(order)
        return f"{order} refunded"

    async with Engine(import_tools([refund], options={"refund": {"effect": effect, "requires_approval": True}})) as engine:
        shop = Shop(engine, [refund])
        requests = await shop.run("go")
        for left, index in zip((2, 1, 0), order, strict=True):
            assert (len(shop.client.seen), paid) == (1, [])
            waiting = await shop.answer(requests[index], approved=index != 1)
            assert len(waiting) == left
    told = told_by(shop.agent)
    assert list(told) == ["A7", "B8", "C9"]
    assert sorted(paid) == ["A7", "C9"]
    assert (told["A7"].text, told["C9"].text) == ("A7 refunded", "C9 refunded")
    assert "Not today." in told["B8"].text
    assert not [one for message in shop.client.seen[-1] for one in message.contents if "approval" in one.type]


async def test_an_answer_that_came_before_another_message_counts_when_the_others_are_answered() -> None:
    @framework_tool
    async def refund(order: str) -> str:
        """Refund an order."""
        return f"{order} refunded"

    async with Engine(import_tools([refund], options={"refund": {"requires_approval": True}})) as engine:
        shop = Shop(engine, [refund])
        first, *others = await shop.run("go")
        await shop.answer(first)
        await shop.run("Wait a moment.")
        assert not told_by(shop.agent)
        for request in others:
            waiting = await shop.answer(request)
    assert not waiting
    assert [one.text for one in told_by(shop.agent).values()] == ["A7 refunded", "B8 refunded", "C9 refunded"]


async def test_the_latest_answer_to_a_request_counts_while_others_are_not_answered() -> None:
    paid: list[str] = []

    @framework_tool
    async def refund(order: str) -> str:
        """Refund an order."""
        paid.append(order)
        return f"{order} refunded"

    async with Engine(import_tools([refund], options={"refund": {"requires_approval": True}})) as engine:
        shop = Shop(engine, [refund])
        first, second, third = await shop.run("go")
        await shop.answer(first)
        await shop.answer(second, approved=False)
        waiting = [str(one.id) for one in await shop.answer(first, approved=False)]
        assert waiting == [third.id]
        await shop.answer(second)
        assert await shop.answer(third) == []
    told = told_by(shop.agent)
    assert (paid, told["B8"].text) == (["B8", "C9"], "B8 refunded")
    assert "Not today." in told["A7"].text
