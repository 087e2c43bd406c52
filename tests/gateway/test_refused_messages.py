"""A message that is refused is answered under its id, so that its client does not wait for ever."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.gateway.raw_client import Era, raw_client, served
from tests.gateway.refused_lines import REFUSED

pytestmark = pytest.mark.process


@pytest.mark.parametrize("era", ["handshake", "stateless"])
async def test_a_refused_line_is_answered_under_its_id_and_the_next_one_is_served(era: Era) -> None:
    async with raw_client(served(), era) as client:
        for name, (line, number, code) in REFUSED.items():
            client.write(line.encode() + b"\n")
            answer = await client.next_message()
            assert (name, answer["id"], answer["error"]["code"]) == (name, number, code)
        assert "result" in await client.call("price", {"item": "tea"})


async def test_the_refusal_says_what_is_wrong() -> None:
    async with raw_client(served(), "handshake") as client:
        client.write(REFUSED["half a surrogate pair"][0].encode() + b"\n")
        assert "half of a surrogate pair" in (await client.next_message())["error"]["message"]


@pytest.mark.parametrize("content", [r'{"name":"cut \ud83d"}', '{"name":"a","name":"b"}', '{"name":NaN}'])
async def test_a_call_goes_on_when_the_response_that_it_waits_for_is_refused(content: str, tmp_path: Path) -> None:
    asking = [sys.executable, str(Path(__file__).with_name("asking_server.py")), "handshake", str(tmp_path / "log")]
    async with raw_client(served(servers=[asking]), "handshake", {"elicitation": {"form": {}}}) as client:
        _, called = client.begin("tools/call", {"name": "ask", "arguments": {}})
        number = json.dumps((await client.next_message())["id"])
        client.write(f'{{"jsonrpc":"2.0","id":{number},"result":{{"action":"accept","content":{content}}}}}\n'.encode())
        (told,) = json.loads((await called)["result"]["content"][0]["text"])
    assert "The client's response was refused" in told["message"]


@pytest.mark.parametrize("era", ["handshake", "stateless"])
async def test_a_cursor_that_the_gateway_has_not_given_is_refused(era: Era) -> None:
    async with raw_client(served(), era) as client:
        assert (await client.request("tools/list", {"cursor": "next"}))["error"]["code"] == -32602
        assert "result" in await client.request("tools/list", {"cursor": None})
