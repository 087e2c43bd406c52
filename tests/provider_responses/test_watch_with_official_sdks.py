"""`engine.watch` with the streams of the providers' own SDKs."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from callgate import Engine, Scope, SqliteJournal, UsageError, tool
from callgate.calls import Image
from callgate.testing import Call, ScriptedServer
from tests.models.aws_frames import event
from tests.provider_responses.recorded_bodies import ANSWERS, BODIES, QUESTIONS, body
from tests.provider_responses.recorded_server import RecordedServer
from tests.provider_responses.recorded_streams import CONTENT_TYPES, STREAMS
from tests.provider_responses.sdk_requests import ASK, SDK_WARNINGS, SYNC_STREAMS, bedrock_client, kept
from tests.provider_responses.shop import LookUp, claude

pytestmark = SDK_WARNINGS


async def asked(provider: str, url: str, tools: list[Any], *, stream: Callable[..., Any] | None = None) -> Any:
    """Request a stream."""
    if stream is not None:
        return stream(url, QUESTIONS[provider], tools)
    return await ASK[provider](url, QUESTIONS[provider], tools, stream=True)


CASES = [(provider, None) for provider in BODIES if provider != "bedrock"] + list(SYNC_STREAMS.items())


@pytest.mark.parametrize(("provider", "stream"), CASES, ids=[f"{name}{', in a thread' * (way is not None)}" for name, way in CASES])
async def test_a_call_starts_while_the_stream_of_an_sdk_arrives_and_the_sdk_sends_the_reply(
    provider: str, stream: Callable[..., Any] | None
) -> None:
    """The server sends the rest of the stream only after the tool has started."""
    started = threading.Event()
    first, second = STREAMS[provider]
    streamed: list[bytes | threading.Event] = [*first, started, *second]
    with RecordedServer((CONTENT_TYPES[provider], streamed), ("application/json", body(ANSWERS[provider]))) as server:
        async with Engine([LookUp(started)]) as engine:
            tools = engine.schemas(provider)
            watched = engine.watch(await asked(provider, server.url, tools, stream=stream), Scope(run="r"))
            chunks = [chunk async for chunk in watched]
            early = [event.kind for event in engine.journal.read(run="r")]
            reply = await watched.reply()
            assert await watched.reply() is reply
            assert len(chunks) >= len(first)
            assert isinstance(chunks[0], dict) == (provider == "bedrock")
            assert (len(reply.outcomes), reply.ended, reply.done) == (1, None, False)
            assert reply.message_id or stream is not None
            assert "call.started" in str(early)
            await ASK[provider](server.url, [*QUESTIONS[provider], *reply.messages], tools)
    assert "3" in str(server.requests[1])
    assert str(server.requests[1]).count("lamp") >= 2


@pytest.mark.parametrize("read", ["text", "call"])
async def test_a_stream_of_anthropic_whose_beginning_the_host_has_read_is_refused(read: str) -> None:
    """Otherwise the conversation goes on without the text, the thought or the call that the host has read itself."""
    import anthropic

    paid: list[str] = []

    @tool
    def pay(order: str) -> str:
        """Pay an order."""
        paid.append(order)
        return "paid"

    script: list[Any] = [["One moment.", Call("pay", {"order": "A7"}), Call("pay", {"order": "B8"})]]
    async with ScriptedServer(script, api="anthropic.messages") as server, Engine([pay]) as engine:
        claude = kept(anthropic.AsyncAnthropic(api_key="x", base_url=server.url.removesuffix("/v1"), max_retries=0))
        request: Any = {"model": "m", "max_tokens": 9, "messages": QUESTIONS["anthropic"], "tools": engine.schemas("anthropic")}
        stream = await claude.messages.create(**request, stream=True)
        async for chunk in stream:
            if chunk.type == "content_block_delta" and (read == "text" or chunk.delta.type == "input_json_delta"):
                break
        with pytest.raises(UsageError, match=r"whose beginning has been read: it starts with content_block_\w+, so a part of the message"):
            await engine.watch(stream).reply()
    assert paid == []


async def test_the_stream_helpers_of_openai_and_anthropic_are_read() -> None:
    """Their events repeat the chunks in other forms; each call is made once."""
    import anthropic
    import openai

    started = threading.Event()
    started.set()
    async with Engine([LookUp(started)]) as engine:
        for provider in ("openai", "openai-responses", "anthropic"):
            first, second = STREAMS[provider]
            with RecordedServer((CONTENT_TYPES[provider], [*first, *second])) as server:
                if provider == "anthropic":
                    claude = kept(anthropic.AsyncAnthropic(api_key="x", base_url=server.url, max_retries=0))
                    manager: Any = claude.messages.stream(model="m", max_tokens=9, messages=QUESTIONS[provider])
                else:
                    client = kept(openai.AsyncOpenAI(api_key="x", base_url=server.url, max_retries=0))
                    manager = (
                        client.chat.completions.stream(model="m", messages=QUESTIONS[provider])
                        if provider == "openai"
                        else client.responses.stream(model="m", input=QUESTIONS[provider])
                    )
                async with manager as stream:
                    watched = engine.watch(stream, Scope(run=provider))
                    async for _ in watched:
                        pass
                    reply = await watched.reply()
            assert len(reply.outcomes) == 1
            assert "lamp" in str(reply.messages)


async def test_the_dict_that_boto3_returns_for_a_stream_can_be_given_whole() -> None:
    first, second = STREAMS["bedrock"]
    started = threading.Event()
    started.set()
    with RecordedServer((CONTENT_TYPES["bedrock"], [*first, *second])) as server:
        async with Engine([LookUp(started)]) as engine:
            client = bedrock_client(server.url)
            watched: Any = engine.watch(client.converse_stream(modelId="m", messages=QUESTIONS["bedrock"]))
            reply = await watched.reply()
    assert reply.message_id == "request-1"
    assert len(reply.results) == 1


async def test_an_image_is_sent_back_as_json_to_a_model_that_was_streamed_with_invoke_model() -> None:
    """boto3 takes bytes for Converse. The body of InvokeModel is the host's own JSON, which has no bytes."""

    @tool(effect="none")
    def draw() -> Image:
        """Draw."""
        return Image(data="iVBORw0KGgo=", mime_type="image/png")

    blocks = [{"type": "redacted_thinking", "data": "AAEC+/8="}, *claude(("draw", {}))["content"]]
    sent: list[dict[str, Any]] = [{"type": "message_start", "message": {**claude(), "stop_reason": None}}]
    for index, block in enumerate(blocks):
        sent += [{"type": "content_block_start", "index": index, "content_block": block}, {"type": "content_block_stop", "index": index}]
    sent += [{"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 1}}, {"type": "message_stop"}]
    frames = [event("chunk", {"bytes": base64.b64encode(json.dumps(one).encode()).decode()}) for one in sent]
    with RecordedServer((CONTENT_TYPES["bedrock"], frames)) as server:
        async with Engine([draw]) as engine:
            watched: Any = engine.watch(bedrock_client(server.url).invoke_model_with_response_stream(modelId="m", body="{}"))
            reply = await watched.reply()
    assert (reply.api, reply.finish) == ("bedrock.invoke", "tool_calls")
    body = json.dumps(reply.messages)
    assert '"data": "AAEC+/8="' in body
    assert '"data": "iVBORw0KGgo="' in body


@pytest.mark.parametrize("provider", BODIES)
async def test_chunks_that_a_host_has_kept_are_the_same_message_in_another_engine(provider: str, tmp_path: Path) -> None:
    """Most SDKs have no helper that assembles a message, which could be handed in again after a restart."""
    runs: list[str] = []

    @tool(name="stock/look_up")
    def count(article: str) -> int:
        """Count an article."""
        runs.append(article)
        return 3

    first, second = STREAMS[provider]
    with RecordedServer((CONTENT_TYPES[provider], [*first, *second])) as server:
        async with Engine([count], journal=SqliteJournal(tmp_path / "calls.db")) as engine:
            tools = engine.schemas(provider)
            if provider == "bedrock":
                sent: Any = bedrock_client(server.url).converse_stream(modelId="m", messages=QUESTIONS[provider])
            else:
                sent = await asked(provider, server.url, tools)
            async with engine.watch(sent, Scope(run="r")) as chunks:
                kept = [chunk if isinstance(chunk, dict) else chunk.model_dump(mode="json") async for chunk in chunks]
                reply = await chunks.reply()
    again: Any = {**sent, "stream": kept} if provider == "bedrock" else kept
    async with Engine([count], journal=SqliteJournal(tmp_path / "calls.db")) as engine:
        repeated = await engine.watch(again, Scope(run="r")).reply()
        responded = await engine.respond(again, Scope(run="r"))
    assert (repeated.message_id, repeated.results) == (reply.message_id, reply.results)
    assert (responded.message_id, responded.messages) == (reply.message_id, reply.messages)
    assert runs == ["lamp"]
