"""`engine.respond` with what Google's SDK returns for an interaction."""

from __future__ import annotations

from typing import Any

import pytest

from callgate import Engine, UsageError, tool
from callgate.calls import Image
from tests.provider_responses.recorded_bodies import body
from tests.provider_responses.recorded_server import RecordedServer
from tests.provider_responses.sdk_requests import SDK_WARNINGS
from tests.provider_responses.shop import paid, refund

pytestmark = SDK_WARNINGS


HEAD = {
    "id": "int_1",
    "object": "interaction",
    "model": "gemini-3-pro",
    "created": "2026-11-23T10:00:00Z",
    "updated": "2026-11-23T10:00:00Z",
}


async def interaction(engine: Engine, status: str, *orders: str) -> Any:
    """Return an interaction with this status and a refund for each order."""
    from google import genai

    steps = [{"type": "function_call", "id": order, "name": "refund", "arguments": {"order": order}} for order in orders]
    with RecordedServer(("application/json", body({**HEAD, "status": status, "steps": steps}))) as server:
        client = genai.Client(api_key="x", http_options=genai.types.HttpOptions(base_url=server.url))
        tools: Any = engine.schemas("gemini.interactions")
        return await client.aio.interactions.create(model="gemini-3-pro", input="Refund.", tools=tools)


@pytest.mark.parametrize("status", ["queued", "in_progress"])
async def test_an_interaction_that_the_provider_still_works_on_is_refused(status: str) -> None:
    """Its calls may still change; without a call it was taken for an empty answer, which ended the loop."""
    async with Engine([refund]) as engine:
        for orders in ((), ("A7",)):
            with pytest.raises(UsageError, match=f"'{status}'.*Wait for it"):
                await engine.respond(await interaction(engine, status, *orders))
    assert paid == []


@pytest.mark.parametrize("status", ["incomplete", "budget_exceeded", "requires_continuation"])
async def test_the_last_call_of_an_interaction_that_a_limit_ended_does_not_run(status: str) -> None:
    async with Engine([refund]) as engine:
        reply = await engine.respond(await interaction(engine, status, "A7", "B8"))
    assert (paid, reply.finish) == (["A7"], "length")
    assert [result.get("is_error", False) for result in reply.results] == [False, True]


async def test_calls_of_an_interaction_that_requires_action_run() -> None:
    async with Engine([refund]) as engine:
        reply = await engine.respond(await interaction(engine, "requires_action", "A7", "B8"))
    assert (paid, reply.finish, reply.message_id) == (["A7", "B8"], "tool_calls", "int_1")


async def test_an_image_that_a_tool_returns_is_sent_in_the_next_interaction() -> None:
    """The SDK takes bytes for `generate_content`, and refuses them for an interaction."""
    from google import genai

    @tool(effect="none")
    def draw() -> Image:
        """Draw."""
        return Image(data="iVBORw0KGgo=", mime_type="image/png")

    steps = [{"type": "thought", "signature": "AAEC+/8="}, {"type": "function_call", "id": "a", "name": "draw", "arguments": {}}]
    bodies = [{**HEAD, "status": "requires_action", "steps": steps}, {**HEAD, "status": "completed", "steps": []}]
    with RecordedServer(*[("application/json", body(one)) for one in bodies]) as server:
        async with Engine([draw]) as engine:
            client = genai.Client(api_key="x", http_options=genai.types.HttpOptions(base_url=server.url))
            ask, tools = client.aio.interactions.create, engine.schemas("gemini.interactions")
            reply = await engine.respond(await ask(model="gemini-3-pro", input="Draw.", tools=tools))
            await ask(model="gemini-3-pro", input=reply.messages, tools=tools)
    thought, _, result = server.requests[1]["input"]
    assert (thought["signature"], result["result"][0]["data"]) == ("AAEC+/8=", "iVBORw0KGgo=")
