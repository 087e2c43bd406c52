"""`engine.respond`: the model's message comes back to the provider as the model wrote it."""

from __future__ import annotations

import pytest

from callgate import Engine, tool
from tests.provider_responses.shop import completion


@tool(effect="none")
def look() -> str:
    """Look."""
    return "seen"


@pytest.mark.parametrize("arguments", ["null", " null ", "", "{}"])
async def test_arguments_that_are_none_come_back_as_an_empty_object(arguments: str) -> None:
    async with Engine([look]) as engine:
        reply = await engine.respond(completion(("look", arguments)))
    assert reply.messages[0]["tool_calls"][0]["function"]["arguments"] == "{}"
    assert reply.results[0]["content"] == "seen"
