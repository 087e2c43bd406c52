"""Tools that a server shows only in the session of one client are listed for this client, with `client_tools` of the server."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from callgate import Engine
from callgate.gateway import Gateway, Principal
from callgate.mcp import mcp
from tests.gateway.raw_client import RawClient, raw_client, served
from tests.waiting import until

pytestmark = pytest.mark.process

_GROWING = [sys.executable, str(Path(__file__).with_name("growing_server.py"))]
_CHANGED = "notifications/tools/list_changed"


async def names(client: RawClient) -> list[str]:
    listed = (await client.request("tools/list", {}))["result"]["tools"]
    return [tool["name"] for tool in listed if tool["name"] in ("grow", "shrink", "more")]


async def test_a_client_is_told_of_tools_that_appear_in_its_own_session_and_can_call_them() -> None:
    command = served(servers=[_GROWING], options={"client_tools": True})
    async with raw_client(command, "handshake", {"elicitation": {}}) as client:
        assert await names(client) == ["grow", "shrink"]
        await client.call("grow", {})
        assert (await client.next_message())["method"] == _CHANGED
        assert await names(client) == ["grow", "shrink", "more"]
        assert (await client.call("more", {}))["result"]["content"][0]["text"] == "more was called"
        await client.call("shrink", {})
        assert (await client.next_message())["method"] == _CHANGED
        assert await names(client) == ["grow", "shrink"]


async def test_a_client_is_not_told_when_nothing_appears_in_its_session() -> None:
    command = served(servers=[_GROWING], options={"client_tools": True})
    async with raw_client(command, "handshake", {"elicitation": {}}) as client:
        await client.call("grow", {})
        assert (await client.next_message())["method"] == _CHANGED
        await client.call("grow", {})  # the server says so, and its list is the same
        assert (await client.call("more", {}))["result"]["content"][0]["text"] == "more was called"
        assert client.messages.empty()


class Told:
    """Keeps the methods of the messages that a client is sent."""

    def __init__(self) -> None:
        self.methods: asyncio.Queue[str] = asyncio.Queue()

    def send(self, message: Mapping[str, Any]) -> bool:
        self.methods.put_nowait(message["method"])
        return True


async def test_tools_of_one_principals_session_are_not_listed_for_another() -> None:
    async with Gateway(Engine(servers=[mcp(_GROWING, client_tools=True)])) as gateway:
        told = Told()
        ada, bob = (gateway.handshake(Principal(name=name), told) for name in ("ada", "bob"))

        async def asked(session: Any, method: str, params: Mapping[str, Any]) -> Any:
            return (await session.request({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}, told))["result"]

        for session in (ada, bob):
            await asked(session, "initialize", {"protocolVersion": "2025-11-25", "capabilities": {}})
        await asked(ada, "tools/call", {"name": "grow", "arguments": {}})
        assert await told.methods.get() == _CHANGED
        listed = [[tool["name"] for tool in (await asked(session, "tools/list", {}))["tools"]] for session in (ada, bob)]
        refused = await asked(bob, "tools/call", {"name": "more", "arguments": {}})
    assert listed == [["grow", "shrink", "more"], ["grow", "shrink"]]
    assert "does not offer this tool to this client" in refused["content"][0]["text"]


async def test_the_operator_is_told_once_which_tools_are_not_offered_because_only_clients_have_them(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with raw_client(served(servers=[_GROWING]), "handshake", {"elicitation": {}}) as client:
        for _ in range(2):
            await client.call("grow", {})
            await client.call("shrink", {})
        await client.call("grow", {})
        await until(lambda: "does not list otherwise" in caplog.text)
        assert await names(client) == ["grow", "shrink"]
    (told,) = [record.getMessage() for record in caplog.records if "does not list otherwise" in record.getMessage()]
    assert told.endswith("so they are not offered: more. To offer them, set client_tools to true for the server")
