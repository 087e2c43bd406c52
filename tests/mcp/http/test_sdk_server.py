"""What a connection does with a server of the official SDK, in both eras."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.mcp.http.clients import connected, handshaken
from tests.mcp.http.sdk_server import SdkServer
from tests.waiting import PATIENCE_S

ERAS = pytest.mark.parametrize("client_of", [connected, handshaken], ids=["2026-07-28", "2025-11-25"])


async def acquired(semaphore: Any) -> bool:
    found: bool = await asyncio.to_thread(semaphore.acquire, timeout=PATIENCE_S)
    return found


@ERAS
async def test_a_call_returns_the_result(sdk_server: SdkServer, client_of: Any) -> None:
    async with client_of(sdk_server.url) as client:
        assert await client.call("echo", {"text": "hello"}) == "hello"


@ERAS
async def test_tools_are_listed_as_the_server_defines_them(sdk_server: SdkServer, client_of: Any) -> None:
    async with client_of(sdk_server.url) as client:
        tools = (await client.ask("tools/list"))["result"]["tools"]
    assert next(tool for tool in tools if tool["name"] == "echo")["inputSchema"]["required"] == ["text"]


@ERAS
async def test_sixty_four_calls_run_at_once(sdk_server: SdkServer, client_of: Any) -> None:
    async with client_of(sdk_server.url) as client:
        texts = [f"call {number}" for number in range(64)]
        assert await asyncio.gather(*(client.call("echo", {"text": text}) for text in texts)) == texts


@ERAS
async def test_progress_of_a_call_arrives_before_its_result(sdk_server: SdkServer, client_of: Any) -> None:
    seen: list[Any] = []
    async with client_of(sdk_server.url) as client:
        assert await client.call("count", {"steps": 3}, seen.append) == "counted"
    assert [message["params"]["message"] for message in seen] == ["step 1", "step 2", "step 3"]


@ERAS
async def test_a_cancelled_call_is_cancelled_inside_the_tool(sdk_server: SdkServer, client_of: Any) -> None:
    async with client_of(sdk_server.url) as client:
        call = asyncio.create_task(client.call("wait"))
        assert await acquired(sdk_server.waiting)
        call.cancel()
        await asyncio.wait([call])
        assert call.cancelled()
        assert await acquired(sdk_server.cancelled)
        assert await client.call("echo", {"text": "next"}) == "next"


async def test_an_argument_is_sent_as_a_header_if_the_tool_declares_one(sdk_server: SdkServer) -> None:
    async with connected(sdk_server.url) as client:
        await client.ask("tools/list")
        assert await client.call("region", {"place": "Zürich"}) == "Zürich"


async def test_a_server_asks_the_user_within_a_call_of_a_session(sdk_server: SdkServer) -> None:
    async with handshaken(sdk_server.url) as client:
        answers: list[asyncio.Task[None]] = []

        def answer(message: dict[str, Any]) -> None:
            reply = {"jsonrpc": "2.0", "id": message["id"], "result": {"action": "accept", "content": {"colour": "red"}}}
            answers.append(asyncio.create_task(client.connection.notify(reply)))

        assert await client.call("ask", {}, answer) == "red"
        await asyncio.gather(*answers)


async def test_a_session_is_told_of_new_tools() -> None:
    with SdkServer() as server:
        async with handshaken(server.url) as client:
            while not client.messages:  # the server drops what it sends before the session's own stream is open
                await client.call("grow")
            assert client.messages[0]["method"] == "notifications/tools/list_changed"


async def test_a_listening_request_is_told_of_new_tools() -> None:
    with SdkServer() as server:
        async with connected(server.url) as client:
            heard = asyncio.Queue[Any]()
            listening = asyncio.create_task(
                client.ask("subscriptions/listen", {"notifications": {"toolsListChanged": True}}, heard.put_nowait)
            )
            assert (await heard.get())["method"] == "notifications/subscriptions/acknowledged"
            await client.call("grow")
            assert (await heard.get())["method"] == "notifications/tools/list_changed"
            listening.cancel()
            await asyncio.wait([listening])


async def test_a_stream_that_the_server_ends_is_continued() -> None:
    seen: list[Any] = []
    with SdkServer(events=True) as server:
        async with handshaken(server.url) as client:
            assert await client.call("leave", {"text": "still here"}, seen.append) == "still here"
    assert [message["params"]["message"] for message in seen] == ["before", "after"]
    assert server.calls == []


@ERAS
async def test_json_bodies_are_read(client_of: Any) -> None:
    with SdkServer(json_answers=True) as server:
        async with client_of(server.url) as client:
            assert await client.call("echo", {"text": "hello"}) == "hello"
