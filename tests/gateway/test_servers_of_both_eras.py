"""A server that speaks both eras works behind the gateway as it works without one, for clients of each."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from callgate import Engine, RawCall
from callgate.mcp import mcp
from tests.app_thread import AppThread
from tests.engine_calls import result_of
from tests.forked_programs import forked_program
from tests.gateway.dual_era_server import dual_server
from tests.gateway.raw_client import Era, RawClient, raw_client, served

pytestmark = [
    pytest.mark.process,
    pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning"),  # sampling and roots, which old tools use
]

ALL: Mapping[str, Any] = {"elicitation": {"form": {}}, "sampling": {}, "roots": {}}
RED = {"action": "accept", "content": {"colour": "red"}}
HELLO = {"role": "assistant", "content": {"type": "text", "text": "hello"}, "model": "m"}
FOLDERS = {"roots": [{"uri": "file:///work"}]}


def stdio() -> list[str]:
    """Return the command of the server."""
    return forked_program("-m", "tests.gateway.dual_era_server")


@pytest.fixture(params=["stdio", "http"])
def target(request: pytest.FixtureRequest) -> Iterator[Any]:
    """The command or the address of the server."""
    if request.param == "stdio":
        yield stdio()
        return
    with AppThread(dual_server().streamable_http_app()) as thread:
        yield f"http://127.0.0.1:{thread.port}/mcp"


@asynccontextmanager
async def client_of(target: Any, front: Era, capabilities: Mapping[str, Any] = ALL, **options: Any) -> AsyncIterator[RawClient]:
    async with raw_client(served(servers=[target], options=options), front, capabilities) as client:
        yield client


async def said(client: RawClient, tool: str, answer: Mapping[str, Any] | None = None) -> str:
    """Call a tool, answer what is asked, and return the text of the result or of the error."""
    _, response = client.begin("tools/call", {"name": tool, "arguments": {}})
    if answer is not None and client.era == "handshake":
        question = asyncio.create_task(client.next_message())
        await asyncio.wait((question, response), return_when=asyncio.FIRST_COMPLETED)
        if question.done():
            client.send({"jsonrpc": "2.0", "id": question.result()["id"], "result": answer})
        question.cancel()
    message = await response
    if answer is not None and "inputRequests" in message.get("result", {}):
        result = message["result"]
        given = {"inputResponses": dict.fromkeys(result["inputRequests"], answer), "requestState": result["requestState"]}
        message = await client.request("tools/call", {"name": tool, "arguments": {}, **given})
    text: str = message["error"]["message"] if "error" in message else message["result"]["content"][0]["text"]
    return text


async def test_a_client_that_has_shaken_hands_is_asked_by_requests(target: Any) -> None:
    asked: list[tuple[str, Mapping[str, Any], str]] = [
        ("ask", RED, "red"),
        ("model", HELLO, "hello"),
        ("folders", FOLDERS, "file:///work"),
        ("resolve", RED, "red"),
    ]
    async with client_of(target, "handshake") as client:
        for tool, answer, expected in asked:
            assert (tool, await said(client, tool, answer)) == (tool, expected)


async def test_a_client_is_told_when_its_user_is_done_at_an_address_that_it_was_asked_to_open(target: Any) -> None:
    async with client_of(target, "handshake", {"elicitation": {"url": {}}}) as client:
        assert await said(client, "open_page", {"action": "accept"}) == "accept"
        assert "payment-2" in json.dumps(await client.call("refuse_until_paid", {}))
        assert await said(client, "user_has_paid") == "paid"
        told = [await client.next_message() for _ in range(2)]
        await client.request("ping", {})
    assert client.messages.empty()
    assert [(one["method"], one["params"]["elicitationId"]) for one in told] == [
        ("notifications/elicitation/complete", "payment-1"),
        ("notifications/elicitation/complete", "payment-2"),
    ]


async def test_a_client_without_a_handshake_is_asked_within_the_result(target: Any) -> None:
    async with client_of(target, "stateless") as client:
        assert [await said(client, tool, RED) for tool in ("resolve", "hand")] == ["red", "red"]


async def test_a_client_that_cannot_be_asked_has_no_process_of_its_own() -> None:
    async with client_of(stdio(), "handshake", {}) as client:
        without = await said(client, "process")
        assert await said(client, "process") == without
    async with client_of(stdio(), "handshake", {}, era="handshake") as client:
        assert await said(client, "process")


@pytest.mark.parametrize(
    ("fault", "tried"), [("refuses", 1), ("ignores", 1), ("ends", 1), ("refuses_lists", 1), ("others", 1), ("fails", 3)]
)
async def test_a_server_that_cannot_be_used_after_a_handshake_is_used_without_one(fault: str, tried: int, tmp_path: Path) -> None:
    async with client_of(half(fault, tmp_path), "handshake", start_timeout_s=3.0) as client:
        assert [await said(client, "work") for _ in range(3)] == ["without"] * 3
    assert handshakes(tmp_path) == tried


async def test_a_server_that_is_busy_at_first_is_asked_for_a_handshake_again(tmp_path: Path) -> None:
    async with client_of(half("busy", tmp_path), "handshake") as client:
        assert [await said(client, "work") for _ in range(2)] == ["after a handshake"] * 2
    assert handshakes(tmp_path) == 2


async def test_calls_that_do_not_wait_for_an_answer_to_a_handshake_find_out_that_there_is_none(tmp_path: Path) -> None:
    async with client_of(half("ignores", tmp_path), "handshake", start_timeout_s=3.0, timeout_s=1.0) as client:
        while "without" not in await said(client, "work"):
            assert handshakes(tmp_path) == 1


def half(fault: str, folder: Path) -> list[str]:
    """Return the command of a server that speaks the handshake era with a fault."""
    return [sys.executable, str(Path(__file__).with_name("half_handshake_server.py")), fault, str(folder / "log")]


def handshakes(folder: Path) -> int:
    return (folder / "log").read_text(encoding="utf-8").split().count("handshake")


async def test_a_server_without_sessions_that_could_not_ask_after_a_handshake_is_used_without_one() -> None:
    with AppThread(dual_server().streamable_http_app(stateless_http=True)) as thread:
        async with client_of(f"http://127.0.0.1:{thread.port}/mcp", "handshake") as client:
            assert [await said(client, tool, RED) for tool in ("resolve", "hand")] == ["red", "red"]


async def test_a_tool_that_a_server_adds_later_can_be_called_in_the_session_of_a_client() -> None:
    with AppThread(dual_server().streamable_http_app()) as thread:
        async with client_of(f"http://127.0.0.1:{thread.port}/mcp", "handshake") as client:
            assert await said(client, "ask", RED) == "red"
            assert await said(client, "grow") == "added"
            assert await until_listed(client, "ask_later")
            assert await said(client, "ask_later", RED) == "red"


async def until_listed(client: RawClient, tool: str) -> bool:
    """Wait until a tool is listed."""
    while tool not in [one["name"] for one in (await client.request("tools/list", {}))["result"]["tools"]]:
        await client.next_message()
    return True


@pytest.mark.parametrize("front", ["handshake", "stateless"])
async def test_with_the_era_handshake_every_client_is_asked(target: Any, front: Era) -> None:
    async with client_of(target, front, era="handshake") as client:
        assert await said(client, "ask", RED) == "red"


async def test_with_the_era_stateless_no_session_is_begun(target: Any) -> None:
    async with client_of(target, "handshake", era="stateless") as client:
        assert await said(client, "hand", RED) == "red"
        assert "no back-channel" in await said(client, "ask")


async def test_the_host_is_asked_in_the_era_that_the_server_is_configured_for(target: Any) -> None:
    async def accept(params: Mapping[str, Any]) -> Mapping[str, Any]:
        return RED

    async with Engine(servers=[mcp(target, elicitation=accept, era="handshake")]) as engine:
        assert result_of(await engine.call(RawCall(name="ask", arguments={}))).text == "red"
