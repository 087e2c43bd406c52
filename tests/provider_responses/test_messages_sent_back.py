"""`engine.respond`: the model's message comes back to the provider as the model wrote it."""

from __future__ import annotations

import pytest

from callgate import Engine, tool
from tests.provider_responses.shop import claude, completion


@tool(effect="none")
def look() -> str:
    """Look."""
    return "seen"


CITED = {"type": "web_search_result_location", "url": "https://x.test", "title": "X", "encrypted_index": "RUlD", "cited_text": "3 lamps"}


@pytest.mark.parametrize("way", ["respond", "watch"])
async def test_citations_of_anthropic_come_back_with_their_text(way: str) -> None:
    """The model finds its sources by them in the next turn."""
    texts = [{"type": "text", "text": "There are 3.", "citations": [CITED]}, {"type": "text", "text": " Anything else?"}]
    head = {**claude(), "stop_reason": None}
    chunks = [
        {"type": "message_start", "message": head},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "There are 3."}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "citations_delta", "citation": CITED}},
        {"type": "content_block_stop", "index": 0},
        {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": " Anything else?"}},
        {"type": "content_block_stop", "index": 1},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}},
        {"type": "message_stop"},
    ]
    async with Engine([look]) as engine:
        whole = {**head, "content": texts, "stop_reason": "end_turn"}
        reply = await (engine.respond(whole) if way == "respond" else engine.watch(chunks).reply())
    assert reply.messages == [{"role": "assistant", "content": texts}]
    assert (reply.text, reply.done) == ("There are 3. Anything else?", True)


@pytest.mark.parametrize("arguments", ["null", " null ", "", "{}"])
async def test_arguments_that_are_none_come_back_as_an_empty_object(arguments: str) -> None:
    async with Engine([look]) as engine:
        reply = await engine.respond(completion(("look", arguments)))
    assert reply.messages[0]["tool_calls"][0]["function"]["arguments"] == "{}"
    assert reply.results[0]["content"] == "seen"
