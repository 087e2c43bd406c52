"""A message that is refused is answered under its id, so that its client does not wait for ever."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.gateway.raw_client import Era, program, raw_client, served
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


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("half a surrogate pair", "half of a surrogate pair"),
        ("a number that is too large", "a number that is out of range"),
        ("an integer of very many digits", "a number that is out of range"),
    ],
)
async def test_the_refusal_says_what_is_wrong(name: str, said: str) -> None:
    async with raw_client(served(), "handshake") as client:
        client.write(REFUSED[name][0].encode() + b"\n")
        assert said in (await client.next_message())["error"]["message"]


@pytest.mark.parametrize(
    ("members", "why"),
    [
        (r'"result":{"action":"accept","content":{"name":"cut \ud83d"}}', "half of a surrogate pair"),
        ('"result":{"action":"accept","content":{"name":"a","name":"b"}}', "it has the key 'name' twice"),
        ('"result":{"action":"accept","content":{"name":NaN}}', "it is not JSON"),
        ('"result":{"action":"accept"},"error":{"code":-1,"message":"no"}', "it has both a result and an error"),
        ('"vendor":1', "it has neither a result nor an error"),
        ('"result":["accept"]', "its result is not an object"),
        ('"result":null', "its result is not an object"),
        ('"error":{"message":"no"}', "its error has no code and message"),
    ],
)
async def test_a_call_goes_on_when_the_response_that_it_waits_for_is_refused(members: str, why: str, tmp_path: Path) -> None:
    asking = [sys.executable, str(Path(__file__).with_name("asking_server.py")), "handshake", str(tmp_path / "log")]
    async with raw_client(served(servers=[asking]), "handshake", {"elicitation": {"form": {}}}) as client:
        _, called = client.begin("tools/call", {"name": "ask", "arguments": {}})
        number = json.dumps((await client.next_message())["id"])
        client.write(f'{{"jsonrpc":"2.0","id":{number},{members}}}\n'.encode())
        (told,) = json.loads((await called)["result"]["content"][0]["text"])
    assert "The client's response was refused: " in told["message"]
    assert why in told["message"]


@pytest.mark.parametrize("era", ["handshake", "stateless"])
async def test_a_cursor_that_the_gateway_has_not_given_is_refused(era: Era) -> None:
    async with raw_client(served(), era) as client:
        assert (await client.request("tools/list", {"cursor": "next"}))["error"]["code"] == -32602
        assert "result" in await client.request("tools/list", {"cursor": None})


@pytest.mark.parametrize("params", ["", ',"params":{}', ',"params":{"_meta":{}}'])
async def test_a_request_without_a_handshake_and_without_a_revision_lacks_a_parameter(params: str) -> None:
    async with raw_client(served(), "stateless") as client:
        client.write(b'{"jsonrpc":"2.0","id":7,"method":"tools/list"' + params.encode() + b"}\n")
        refused = await client.next_message()
    assert (refused["id"], refused["error"]["code"]) == (7, -32602)
    assert "Send initialize first, or name a revision in each _meta" in refused["error"]["message"]


LIMIT_BYTES = 10_485_760
LARGE = "x" * LIMIT_BYTES


@pytest.mark.parametrize(
    ("line", "number"),
    [
        ('{"jsonrpc":"2.0","id":"a \\"b\\"","method":"tools/call","params":{"name":"price","arguments":{"item":"%s"}}}', 'a "b"'),
        ('{"method":"tools/call","params":{"name":"price","arguments":{"item":"%s"}},"jsonrpc":"2.0","id":77}', 77),
        ('{"id" : 77 , "method" : "%s", "jsonrpc":"2.0"}', 77),
        ('{"jsonrpc":"2.0","method":"tools/call","params":{"item":"%s","id":5},"id":77}', 77),
        ('{"jsonrpc":"2.0","method":"notifications/x","params":{"item":"%s","id":77}}', None),
        ('{"jsonrpc":"2.0","method":"tools/call","params":"%s,\\"id\\":77}"}', None),
        ('{"jsonrpc":"2.0","id":77,"result":{"item":"%s"}}', None),
        ('{"jsonrpc":"2.0","id":1.5,"method":"x","params":"%s"}', None),
        ("x%s", None),
    ],
)
async def test_a_line_that_is_too_long_is_answered_and_running_calls_go_on(line: str, number: object, tmp_path: Path) -> None:
    asking = [sys.executable, str(Path(__file__).with_name("asking_server.py")), "handshake", str(tmp_path / "log")]
    async with raw_client(served(servers=[asking]), "handshake", {"elicitation": {"form": {}}}) as client:
        _, running = client.begin("tools/call", {"name": "ask", "arguments": {}})
        asked = await client.next_message()
        client.write((line % LARGE).encode() + b"\n")
        refused = await client.next_message()
        assert (refused["id"], refused["error"]["code"]) == (number, -32700 if number is None else -32600)
        assert refused["error"]["message"] == "The line is refused: it has more than 10485760 bytes, which is the limit."
        client.send({"jsonrpc": "2.0", "id": asked["id"], "result": {"action": "decline"}})
        assert "result" in await running
        assert "result" in await client.call("price", {"item": "tea"})


async def test_a_call_goes_on_when_the_response_that_it_waits_for_is_too_long(tmp_path: Path) -> None:
    asking = [sys.executable, str(Path(__file__).with_name("asking_server.py")), "handshake", str(tmp_path / "log")]
    async with raw_client(served(servers=[asking]), "handshake", {"elicitation": {"form": {}}}) as client:
        _, called = client.begin("tools/call", {"name": "ask", "arguments": {}})
        number = (await client.next_message())["id"]
        client.send({"jsonrpc": "2.0", "id": number, "result": {"action": "accept", "content": {"name": LARGE}}})
        (told,) = json.loads((await called)["result"]["content"][0]["text"])
    assert "The client's response was refused: it has more than 10485760 bytes" in told["message"]


async def test_the_longest_line_is_served_and_a_line_of_any_length_needs_bounded_memory() -> None:
    async with raw_client(program(), "handshake") as client:
        empty = json.dumps({"jsonrpc": "2.0", "id": 0, "method": "tools/call", "params": {"name": "price", "arguments": {"item": ""}}})
        longest = empty.replace('"item": ""', f'"item": "{"x" * (LIMIT_BYTES - len(empty))}"')
        assert len(longest) == LIMIT_BYTES
        client.write(longest.encode() + b"\n")
        assert "error" not in await client.next_message()
        before_kb = most_memory_kb(client.process.pid)
        for _ in range(30):
            client.write(LARGE.encode())
            assert client.process.stdin is not None
            await client.process.stdin.drain()
        client.write(b"\n")
        assert "is refused" in (await client.next_message())["error"]["message"]
        assert most_memory_kb(client.process.pid) - before_kb < 64 * 1024


def most_memory_kb(pid: int) -> int:
    [line] = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1])
