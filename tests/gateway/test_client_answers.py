"""Answers of clients that no server can read are not passed on, to any server, and the question counts as not answered."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.raw_client import Era, RawClient, Serve, raw_client, served

pytestmark = [pytest.mark.process]

CAPABILITIES: dict[str, Any] = {"elicitation": {"form": {}}, "sampling": {}, "roots": {}}
TEXT = {"type": "text", "text": "hello"}
MESSAGE = {"role": "assistant", "content": TEXT, "model": "m"}
FILE = {"uri": "file:///work"}
WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("ask", {"action": "maybe"}, "its action is 'maybe'; it must be 'accept', 'decline' or 'cancel'"),
    ("model", {}, "its role is None; it must be 'user' or 'assistant'"),
    ("model", MESSAGE | {"role": "system"}, "its role is 'system'; it must be 'user' or 'assistant'"),
    ("model", MESSAGE | {"content": "hello"}, "its content is 'hello'; it must be an object or a list of objects"),
    ("model", MESSAGE | {"content": [TEXT, 1]}, "it must be an object or a list of objects"),
    ("model", MESSAGE | {"model": 4}, "its model is 4; it must be a text"),
    ("folders", {"action": "accept"}, "its roots are None; it must be a list"),
    ("folders", {"roots": FILE}, "it must be a list"),
    ("folders", {"roots": [FILE, "file:///work"]}, "one of its roots is 'file:///work'; it must be an object with a uri, a text"),
    ("folders", {"roots": [{"uri": 7}]}, "it must be an object with a uri, a text"),
]
RIGHT: list[tuple[str, dict[str, Any]]] = [
    ("model", MESSAGE | {"content": [TEXT, TEXT], "stopReason": "endTurn", "vendor": 1}),
    ("folders", {"roots": [], "vendor": 1}),
    ("folders", {"roots": [FILE | {"name": "work", "vendor": None}]}),
]
upstreams = pytest.mark.parametrize("upstream", ["handshake", "stateless"])


def gateway(upstream: Era, tmp_path: Path) -> Serve:
    return served(servers=[[sys.executable, str(Path(__file__).with_name("asking_server.py")), upstream, str(tmp_path / "log")]])


async def answered(client: RawClient, tool: str, answer: dict[str, Any]) -> dict[str, Any]:
    """Call a tool with arguments of its own, answer the question that it asks in the handshake era, and return the result."""
    _, called = client.begin("tools/call", {"name": tool, "arguments": {"as": json.dumps(answer)}})
    asked = await client.next_message()
    client.send({"jsonrpc": "2.0", "id": asked["id"], "result": answer})
    result: dict[str, Any] = (await called)["result"]
    return result


@upstreams
async def test_an_answer_that_no_server_can_read_is_none(upstream: Era, tmp_path: Path) -> None:
    async with raw_client(gateway(upstream, tmp_path), "handshake", CAPABILITIES) as client:
        for tool, wrong, _ in WRONG:
            result = await answered(client, tool, wrong)
            told = result["content"][0]["text"]
            if upstream == "handshake":
                assert (tool, json.loads(told)[0]["code"]) == (tool, -32603)
            elif tool == "ask":
                assert json.loads(told) == [{"action": "cancel"}]
            else:
                assert result["isError"]
                assert "which it did not get: The client could not answer this request" in told


@upstreams
async def test_a_stateless_client_is_told_why_and_can_answer_again(upstream: Era, tmp_path: Path) -> None:
    async with raw_client(gateway(upstream, tmp_path), "stateless", CAPABILITIES) as client:
        for tool, wrong, why in WRONG:
            asked = (await client.call(tool, {}))["result"]
            (key,) = asked["inputRequests"]
            continued = {"requestState": asked["requestState"], "inputResponses": {key: wrong}}
            refused = (await client.call(tool, {}, **continued))["error"]
            assert refused["code"] == -32602
            assert why in refused["message"]
            if tool == "model":
                continued["inputResponses"] = {key: MESSAGE}
                returned = (await client.call(tool, {}, **continued))["result"]["content"][0]["text"]
                assert json.loads(returned) == [MESSAGE]


@upstreams
async def test_a_right_answer_reaches_the_server_with_its_unknown_fields(upstream: Era, tmp_path: Path) -> None:
    async with raw_client(gateway(upstream, tmp_path), "handshake", CAPABILITIES) as client:
        for tool, right in RIGHT:
            assert json.loads((await answered(client, tool, right))["content"][0]["text"]) == [right]
