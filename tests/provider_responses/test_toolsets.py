"""Members of Anthropic's toolsets are other tools than those of the host with the same name."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from callgate import Engine, Scope, tool
from tests.provider_responses.recorded_server import RecordedServer
from tests.provider_responses.sdk_requests import SDK_WARNINGS, close_clients, kept

pytestmark = SDK_WARNINGS

typed: list[str] = []

_HEAD = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude", "usage": {"input_tokens": 1, "output_tokens": 1}}
_MEMBER = {"type": "tool_use", "id": "toolu_1", "name": "type", "input": {"text": "hello"}, "toolset_name": "computer"}


@tool(name="type")
def write(text: str) -> str:
    """Write a text into the ledger."""
    typed.append(f"ledger {text}")
    return "written"


@tool(name="computer.type", requires_approval=True)
def press(text: str) -> str:
    """Type a text on the computer."""
    typed.append(f"computer {text}")
    return "typed"


@pytest.fixture(autouse=True)
async def _closed_clients() -> AsyncIterator[None]:
    typed.clear()
    yield
    await close_clients()


def _events() -> bytes:
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {**_HEAD, "content": [], "stop_reason": None}},
        {"type": "content_block_start", "index": 0, "content_block": {**_MEMBER, "input": {}}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": json.dumps(_MEMBER["input"])}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 1}},
        {"type": "message_stop"},
    ]
    return "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events).encode()


async def _reply(engine: Engine, url: str, *, stream: bool) -> Any:
    import anthropic

    client = kept(anthropic.AsyncAnthropic(api_key="x", base_url=url, max_retries=0))
    toolset = {"type": "computer_toolset_20260801", "display_width_px": 640, "display_height_px": 480}
    asked = [{"role": "user", "content": "Go."}]
    sent = await client.beta.messages.create(
        model="claude", max_tokens=99, messages=asked, tools=[*engine.schemas("anthropic", ["type"]), toolset], stream=stream
    )
    if not stream:
        return await engine.respond(sent, Scope(run="r"))
    async with engine.watch(sent, Scope(run="r")) as chunks:
        return await chunks.reply()


def _server(*, stream: bool) -> RecordedServer:
    whole = json.dumps({**_HEAD, "content": [_MEMBER], "stop_reason": "tool_use"}).encode()
    return RecordedServer(("text/event-stream", [_events()]) if stream else ("application/json", [whole]))


@pytest.mark.parametrize("stream", [False, True], ids=["respond", "watch"])
async def test_a_member_of_a_toolset_never_runs_the_hosts_tool_of_the_same_name(stream: bool) -> None:
    with _server(stream=stream) as server:
        async with Engine([write]) as engine:
            reply = await _reply(engine, server.url, stream=stream)
    assert typed == []
    message, results = reply.messages
    assert message["content"] == [_MEMBER]
    (result,) = results["content"]
    assert (result["toolset_name"], result["is_error"]) == ("computer", True)
    assert "No tool is named 'computer.type'" in result["content"]


@pytest.mark.parametrize("stream", [False, True], ids=["respond", "watch"])
async def test_a_tool_with_the_toolsets_name_before_its_own_is_the_member(stream: bool) -> None:
    with _server(stream=stream) as server:
        async with Engine([write, press]) as engine:
            (question,) = (await _reply(engine, server.url, stream=stream)).suspended
            assert (question.tool, typed) == ("computer.type", [])
            await engine.approve(question.approval_id, by="ann")
            reply = await engine.respond({**_HEAD, "content": [_MEMBER], "stop_reason": "tool_use"}, Scope(run="r"))
    assert typed == ["computer hello"]
    assert reply.messages[0]["content"] == [_MEMBER]
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "typed", "toolset_name": "computer"}
    assert reply.messages[1]["content"] == [result]
