"""Answers over real sockets: with any framing, concurrent, and not read beyond their end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable

import pytest

from callgate.messages import UserMessage
from callgate.models.model_events import TextDelta
from callgate.models.model_protocol import StreamingContext
from callgate.models.providers import model
from callgate.models.wire.request import ModelRequest
from callgate.testing import Beat, Call, Pause, Raw, Reply, ScriptedServer
from tests.models.decoding import calls_of, finished, text_of
from tests.models.http_requests import KEY, NEVER, REQUEST, ask, at


async def test_a_streamed_answer_arrives_event_by_event() -> None:
    """Each event arrives before the provider writes the next one."""
    said, held = asyncio.Event(), asyncio.Event()
    async with ScriptedServer([["Let me ", Pause(held), "look.", Call("search", {"q": "books"})]]) as server:
        of = at(server)
        events = []
        async for event in of.stream(REQUEST, StreamingContext()):
            events.append(event)
            if event == TextDelta("Let me "):
                said.set()
                held.set()
        await of.close()
    assert said.is_set()
    assert text_of(events) == "Let me look."
    assert calls_of(events) == [("call_1", "search", '{"q":"books"}', "sealed")]
    assert finished(events).reason == "tool_calls"


async def test_a_response_that_is_not_streamed_is_read() -> None:
    async with ScriptedServer([["Hello", Call("search", {"q": 1})]]) as server:
        events = await ask(of := at(server), ModelRequest(model="other", messages=REQUEST.messages, stream=False))
        await of.close()
    assert (text_of(events), finished(events).reason, finished(events).model) == ("Hello", "tool_calls", "other")


async def test_tool_names_are_restored_from_their_wire_names() -> None:
    def called(received: object) -> Call:
        tools = server.requests[-1].body_json["tools"]
        assert isinstance(tools, list)
        return Call(tools[1]["function"]["name"], {})

    async with ScriptedServer([called]) as server:
        events = await ask(of := at(server))
        await of.close()
    assert calls_of(events)[0][1] == "files/read"


@pytest.mark.parametrize("framing", ["chunked", "length", "close"])
@pytest.mark.parametrize("compressed", [False, True], ids=["plain", "gzip"])
async def test_every_body_framing_is_read_plain_and_compressed(framing: str, compressed: bool) -> None:
    reply = Reply(turn=["Hello ", Beat(), "there", Call("search", {"q": "x" * 5_000})], framing=framing, compressed=compressed)  # type: ignore[arg-type]
    async with ScriptedServer([reply, reply]) as server:
        of = at(server)
        for _ in range(2):
            events = await ask(of)
            assert (text_of(events), finished(events).reason) == ("Hello there", "tool_calls")
        await of.close()
        assert server.connections == (2 if framing == "close" else 1)


async def test_a_response_without_a_content_type_is_read() -> None:
    async with ScriptedServer([Reply(turn="Hello", headers={"content-type": ""})]) as server:
        events = await ask(of := at(server))
        await of.close()
    assert text_of(events) == "Hello"


async def test_a_message_ends_although_the_server_keeps_the_connection_open() -> None:
    """`[DONE]` ends the message, whether or not the body ends."""
    done = Raw(b'data: {"choices":[{"delta":{"content":"Hello"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n')
    async with ScriptedServer([[done, NEVER]]) as server:
        events = await ask(of := at(server))
        await of.close()
    assert (text_of(events), finished(events).reason) == ("Hello", "stop")


async def test_fifty_concurrent_streams_are_not_mixed_up() -> None:
    """One model and fifty conversations: all streams are open at the same time, and each gets its own answer."""
    everybody = asyncio.Event()

    def turn(received: object) -> Iterable[str | Pause]:
        if len(server.requests) == 50:
            everybody.set()
        return ["for ", Pause(everybody), str(server.requests[-1].body_json["messages"])]

    async with ScriptedServer(turn) as server:
        of = at(server)

        async def one(number: int) -> bool:
            request = ModelRequest(model="m", messages=[UserMessage(f"<{number}>")])
            return f"<{number}>" in text_of(await ask(of, request))

        assert all(await asyncio.gather(*(one(number) for number in range(50))))
        await of.close()
        assert server.connections == 50


async def test_connections_are_bounded_and_further_requests_wait() -> None:
    async with ScriptedServer(lambda _: "Hello") as server:
        of = at(server, connections=3)
        assert {text_of(events) for events in await asyncio.gather(*(ask(of) for _ in range(20)))} == {"Hello"}
        await of.close()
        assert server.connections == 3


async def test_a_proxy_from_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async with ScriptedServer(["through the proxy"]) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url.removesuffix("/v1"))
        of = at("http://provider.example/v1")
        assert text_of(await ask(of)) == "through the proxy"
        await of.close()
        assert proxy.requests[0].path == "http://provider.example/v1/chat/completions"


async def test_a_message_ends_although_the_server_keeps_sending_comments() -> None:
    """`[DONE]` ends the message; the client waits only briefly for the end of the body, however much it still receives."""
    done = b'data: {"choices":[{"delta":{"content":"Hello"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
    gone = asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n" + done)
        with contextlib.suppress(ConnectionError):
            while True:
                writer.write(b": still here\n\n")
                await writer.drain()
                await asyncio.sleep(0.001)
        writer.close()
        gone.set()

    async with await asyncio.start_server(talk, "127.0.0.1", 0) as server:
        of = model("openai:some", base_url=f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", api_key=KEY)
        events = await asyncio.wait_for(ask(of), 60)
        await of.close()
        await gone.wait()
    assert (text_of(events), finished(events).reason) == ("Hello", "stop")
