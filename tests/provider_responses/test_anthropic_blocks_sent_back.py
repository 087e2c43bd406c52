"""Blocks of Anthropic's own tools in a message that comes back: the API must take the conversation with whatever follows."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from anthropic.types import Message
from anthropic.types.beta import BetaMessage

from callgate import Engine, tool
from callgate.calls import Scope
from callgate.response_calls import ResponseReply
from tests.provider_responses.shop import claude, refund

THINKING = {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}
SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "lamps", "site": None}}
CODE = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "code_execution", "input": {"code": "refund('A7')"}}
FOUND = {
    "type": "web_search_tool_result",
    "tool_use_id": "srvtoolu_1",
    "content": [{"type": "web_search_result", "url": "https://x.test", "title": "X", "encrypted_content": "ZW5j", "page_age": None}],
}
REFUND = {"type": "tool_use", "id": "toolu_0", "name": "refund", "input": {"order": "A7"}}
USAGE = {"input_tokens": 1, "output_tokens": 1}


def message(*content: dict[str, Any], reason: str) -> dict[str, Any]:
    return {**claude(reason=reason), "content": list(content), "usage": USAGE}


def chunks_of(whole: dict[str, Any]) -> list[dict[str, Any]]:
    """The chunks of a message's stream, each block at once."""
    chunks: list[dict[str, Any]] = [{"type": "message_start", "message": {**whole, "content": [], "stop_reason": None}}]
    for index, block in enumerate(whole["content"]):
        chunks += [
            {"type": "content_block_start", "index": index, "content_block": block},
            {"type": "content_block_stop", "index": index},
        ]
    return [*chunks, {"type": "message_delta", "delta": {"stop_reason": whole["stop_reason"]}}, {"type": "message_stop"}]


async def replied(engine: Engine, whole: dict[str, Any], way: str) -> ResponseReply:
    return await (engine.respond(whole) if way == "respond" else engine.watch(chunks_of(whole)).reply())


def types_of(reply: ResponseReply) -> list[list[str]]:
    return [[block["type"] for block in one["content"]] for one in reply.messages]


async def test_what_the_sdk_of_anthropic_dumps_as_null_is_not_sent_back() -> None:
    """A host stores `message.model_dump()` to hand it in after a restart; the API refuses `caller: null`, but no null within a result."""
    received = Message.model_validate(message(SEARCH, FOUND, REFUND, reason="tool_use")).model_dump(mode="json")
    assert received["content"][0]["caller"] is None
    async with Engine([refund]) as engine:
        reply = await engine.respond(received)
    assert reply.messages[0]["content"] == [SEARCH, FOUND, REFUND]


async def test_a_compaction_without_content_keeps_its_null() -> None:
    """The API requires the field of a compaction that failed."""
    compaction = {"type": "compaction", "content": None}
    received = BetaMessage.model_validate(message(compaction, REFUND, reason="tool_use")).model_dump(mode="json")
    async with Engine([refund]) as engine:
        reply = await engine.respond(received)
    assert reply.messages[0]["content"] == [compaction, REFUND]


@pytest.mark.parametrize("way", ["respond", "watch"])
@pytest.mark.parametrize("reason", ["max_tokens", "model_context_window_exceeded", "end_turn"])
async def test_a_search_without_a_result_is_left_out_where_the_users_message_follows(reason: str, way: str) -> None:
    """The API refuses such a block before a text of the user, and the conversation could not go on."""
    async with Engine([refund]) as engine:
        cut = await replied(engine, message(THINKING, {"type": "text", "text": "I look."}, SEARCH, reason=reason), way)
        alone = await replied(engine, message(THINKING, SEARCH, reason=reason) | {"id": "msg_2"}, way)
        answered = await replied(engine, message(THINKING, SEARCH, FOUND, reason=reason) | {"id": "msg_3"}, way)
    assert (types_of(cut), cut.done) == ([["thinking", "text"]], True)
    assert (alone.messages, alone.done) == ([], True)
    assert types_of(answered) == [["thinking", "server_tool_use", "web_search_tool_result"]]


@pytest.mark.parametrize("way", ["respond", "watch"])
async def test_a_search_without_a_result_stays_where_the_provider_goes_on_with_it(way: str) -> None:
    async with Engine([refund]) as engine:
        paused = await replied(engine, message(THINKING, SEARCH, reason="pause_turn"), way)
        beside = await replied(engine, message(SEARCH, REFUND, reason="tool_use") | {"id": "msg_2"}, way)
    assert (types_of(paused), paused.done) == ([["thinking", "server_tool_use"]], False)
    assert (types_of(beside), beside.done) == ([["server_tool_use", "tool_use"], ["tool_result"]], False)


@pytest.mark.parametrize("block", [SEARCH, CODE], ids=["a search", "the code that made the call"])
async def test_after_a_kill_the_message_has_no_block_that_the_provider_would_still_run(block: dict[str, Any]) -> None:
    started = asyncio.Event()

    @tool(name="refund")
    async def pay(order: str) -> None:
        """Pay."""
        started.set()
        await asyncio.Event().wait()

    caller = {"caller": {"type": "code_execution_20260120", "tool_id": "srvtoolu_1"}} if block is CODE else {}
    async with Engine([pay]) as engine:
        whole = message(THINKING, block, REFUND | caller, reason="tool_use")
        replying = asyncio.create_task(engine.respond(whole, Scope(conversation="chat")))
        await started.wait()
        engine.control.kill("chat")
        reply = await replying
    assert reply.ended == "aborted"
    assert types_of(reply) == [["thinking", "tool_use"], ["tool_result"]]
    assert reply.messages[0]["content"][1] == REFUND


@pytest.mark.parametrize("way", ["respond", "object", "watch from the start", "watch to the end"])
async def test_the_reply_has_the_container_that_the_next_request_must_name(way: str) -> None:
    """The API refuses results of calls that code in a container has made if the request does not name the container."""
    container = {"id": "container_1", "expires_at": "2026-12-01T00:00:00Z", "skills": None}
    called = {**REFUND, "caller": {"type": "code_execution_20260120", "tool_id": "srvtoolu_1"}}
    whole = message(CODE, called, reason="tool_use")
    async with Engine([refund]) as engine:
        if way == "respond":
            reply = await engine.respond({**whole, "container": container})
        elif way == "object":
            reply = await engine.respond(Message.model_validate({**whole, "container": container}))
        else:
            chunks = chunks_of(whole)
            place = chunks[0]["message"] if way == "watch from the start" else chunks[-2]["delta"]
            place["container"] = container
            reply = await engine.watch(chunks).reply()
        assert (reply.container, len(reply.outcomes)) == ("container_1", 1)
        assert (await engine.respond({**whole, "id": "msg_2", "container": None})).container is None
