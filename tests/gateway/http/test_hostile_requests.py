"""Hostile requests and loads against a real gateway in a process of its own.

Rows of the kind `render`, and the row about headers of the inspector's API, are about the inspector, which a gateway does not have.
"""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.http.gateway_process import GatewayProcess, call, exchanged, gateway_process, session
from tests.waiting import soon

_FILE = Path(__file__).parents[4] / "shared" / "data" / "hostile" / "http.jsonl"
_ROWS = [json.loads(line) for line in _FILE.read_text().splitlines()] if _FILE.exists() else []
_REQUESTS = [pytest.param(row, id=row["id"]) for row in _ROWS if row["kind"] == "http" and row["class"] != "inspector"]
_PLACES = {"{API_RUNS}": "/metrics", "{MCP}": "/mcp", "{SSE}": "/mcp", "{API_APPROVE}": "/mcp", "{STATIC}": "/static"}
_PLACES |= {"{TOKEN}": "token-of-alice", "{OLD_TOKEN}": "old", "{COOKIE}": "x", "{ID}": "1"}
_ABSENT = {"{API_EVENTS}": "/events", "{API_CONFIG}": "/config", "{MCP_TEST}": "/test"}
_READERS = 300
"""Of the 10,000 that the row names: each needs a session and a connection, and a test may take a few seconds."""

pytestmark = pytest.mark.skipif(not _ROWS, reason="the rows of hostile requests are not here")


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    with gateway_process(tmp_path_factory.mktemp("gateway"), head_timeout_s=2.0, sessions_per_principal=1000) as running:
        yield running


def made(node: Any) -> bytes:
    if isinstance(node, str):
        return node.encode()
    [(kind, value)] = node.items()
    if kind == "gen":
        return gzip.compress(bytes(1 << 20)) * 1024
    if kind == "rep":
        return made(value[0]) * int(value[1])
    if kind == "range":
        text, count, between = value
        return between.join(text.replace("%d", str(i)) for i in range(count)).encode()  # type: ignore[no-any-return]
    if kind == "cat":
        return b"".join(made(part) for part in value)
    if kind == "json":
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    return base64.b64decode(value)


def filled(data: bytes, **more: object) -> bytes:
    for name, value in {**_PLACES, **_ABSENT, **{f"{{{key}}}": value for key, value in more.items()}}.items():
        data = data.replace(name.encode(), str(value).encode())
    return data


async def request_of(row: dict[str, Any], gateway: GatewayProcess, folder: Path) -> bytes:
    body = made(row.get("body", ""))
    if "gen" not in row.get("body", ""):
        body = filled(body, PORT=gateway.port)
    lines = [made(line) for line in row["head"]]
    if "{API_APPROVE}" in row["head"][0]:
        lines.append(b"Accept: application/json, text/event-stream")
    if "{SSE}" in row["head"][0]:
        async with gateway.client() as client:
            lines.append(b"Mcp-Session-Id: " + (await session(client)).encode())
        if not any(line.lower().startswith(b"accept:") for line in lines):
            lines.append(b"Accept: text/event-stream")
    head = filled(b"\r\n".join(lines), PORT=gateway.port, CL=len(body), TMP=folder)
    return head + b"\r\n\r\n" + body


@pytest.mark.parametrize("row", _REQUESTS)
async def test_a_hostile_request_is_refused(row: dict[str, Any], gateway: GatewayProcess, tmp_path: Path) -> None:
    expect, invariants = row["expect"], set(row["expect"].get("inv", ()))
    request = await request_of(row, gateway, tmp_path)
    runs, memory_mb = gateway.runs(), gateway.memory_mb()
    gateway.forget_most_memory()
    began = time.monotonic()
    status, response, closed = await exchanged(gateway.port, request, until_closed="closed" in invariants)
    took_ms = (time.monotonic() - began) * 1000
    absent = any(name in row["head"][0] for name in _ABSENT)
    assert status in expect["status"] or (absent and status == 404), row["why"]
    assert gateway.most_memory_mb() - memory_mb <= expect.get("max_rss_mb", 64)
    assert took_ms <= expect.get("max_ms", 10_000)
    assert gateway.runs() == runs
    assert "token-of-alice" not in gateway.log()
    for invariant in invariants:
        name, _, value = invariant.partition(":")
        match name:
            case "jsonrpc_code":
                assert json.loads(response.partition(b"\r\n\r\n")[2])["error"]["code"] == int(value)
            case "no_acao_for_foreign":
                assert b"access-control-allow-origin" not in response.lower()
            case "closed":
                assert closed
            case "file_absent":
                assert not (tmp_path / "pwned").exists()
            case _:
                assert name in ("no_exec", "no_state_change"), "checked above for each row"
    async with gateway.client() as client:
        assert (await client.get("/health")).status_code == 200


async def test_two_clients_with_the_same_ids_get_their_own_answers(gateway: GatewayProcess) -> None:
    async with gateway.client() as a, gateway.client("bob") as b:
        for n in range(200):
            to_a, to_b = await asyncio.gather(call(a, "slow_echo", {"text": f"A{n}"}), call(b, "slow_echo", {"text": f"B{n}"}))
            assert (to_a["id"], to_a["result"]["content"][0]["text"]) == (1, f"A{n}")
            assert (to_b["id"], to_b["result"]["content"][0]["text"]) == (1, f"B{n}")


async def test_a_session_of_one_principal_is_useless_to_another(gateway: GatewayProcess) -> None:
    async with gateway.client() as u1, gateway.client("bob") as u2:
        headers = {"Mcp-Session-Id": await session(u1)}
        ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
        assert [(await client.post("/mcp", json=ping, headers=headers)).status_code for client in (u2, u1)] == [404, 200]
        assert [(await client.delete("/mcp", headers=headers)).status_code for client in (u2, u1)] == [404, 200]


async def test_a_request_state_of_one_principal_is_useless_to_another(gateway: GatewayProcess) -> None:
    runs = gateway.runs()
    async with gateway.client() as u1, gateway.client("bob") as u2:
        asked = (await call(u1, "pay", {"text": "a"}))["result"]
        answers = {name: {"action": "accept", "content": {"approve": True}} for name in asked["inputRequests"]}
        more = {"requestState": asked["requestState"], "inputResponses": answers}
        assert "error" in await call(u2, "pay", {"text": "a"}, 2, **more)
        assert gateway.runs() == runs
        assert (await call(u1, "pay", {"text": "a"}, 3, **more))["result"]["content"][0]["text"] == "paid"


# Loads: the gateway answers others meanwhile, and has closed all files afterwards.


@asynccontextmanager
async def connected(port: int, count: int, request: bytes) -> AsyncIterator[list[socket.socket]]:
    loop = asyncio.get_running_loop()
    with ExitStack() as closed:
        sockets = []
        for _ in range(count):
            made = closed.enter_context(socket.socket())
            made.setblocking(False)
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            await loop.sock_connect(made, ("127.0.0.1", port))
            await loop.sock_sendall(made, request)
            sockets.append(made)
        yield sockets


async def others_live(gateway: GatewayProcess) -> None:
    async with gateway.client("bob") as client:
        assert (await call(client, "echo", {"text": "alive"}))["result"]["content"][0]["text"] == "alive"


def posted(port: int, length: int, body: bytes, tool: str = "echo") -> bytes:
    head = (
        f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer token-of-alice\r\nContent-Type: application/json\r\n"
        f"Accept: */*\r\nMCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: {tool}\r\nContent-Length: {length}\r\n\r\n"
    )
    return head.encode() + body


def page_request(port: int, size: int) -> bytes:
    meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
    params = {"name": "page", "arguments": {"size": size}, "_meta": meta}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
    return posted(port, len(body), body, "page")


async def test_a_hundred_slow_bodies_are_ended(tmp_path: Path) -> None:
    with gateway_process(tmp_path, body_timeout_s=1.0) as gateway:
        await others_live(gateway)
        files, memory_mb = gateway.open_files(), gateway.memory_mb()
        async with connected(gateway.port, 100, posted(gateway.port, 1000, b"{")) as sockets:
            await others_live(gateway)
            loop = asyncio.get_running_loop()
            answers = await asyncio.gather(*(loop.sock_recv(one, 100) for one in sockets))
            assert {answer[:12] for answer in answers} == {b"HTTP/1.1 408"}
            assert await soon(lambda: gateway.open_files() <= files)
            assert gateway.most_memory_mb() - memory_mb <= 160


async def test_more_connections_than_there_are_files_keep_nobody_out(tmp_path: Path) -> None:
    with gateway_process(tmp_path, open_files=200, head_timeout_s=60.0) as gateway:
        async with connected(gateway.port, 400, b""):
            await others_live(gateway)


async def test_clients_that_never_read_are_disconnected(tmp_path: Path) -> None:
    with gateway_process(tmp_path, read_timeout_s=0.5) as gateway:
        await others_live(gateway)
        files, memory_mb = gateway.open_files(), gateway.memory_mb()
        async with connected(gateway.port, 50, page_request(gateway.port, 600_000) * 6):
            await others_live(gateway)
            assert await soon(lambda: gateway.open_files() <= files)
            assert gateway.most_memory_mb() - memory_mb <= 160


async def test_a_pipelined_call_does_not_run_before_the_response_before_it_is_read(tmp_path: Path) -> None:
    with gateway_process(tmp_path, read_timeout_s=0.5) as gateway:
        await others_live(gateway)
        files = gateway.open_files()
        async with connected(gateway.port, 3, page_request(gateway.port, 12_000_000) * 3):
            assert await soon(lambda: gateway.runs().count("page") == 3)
            assert await soon(lambda: gateway.open_files() <= files)
        assert gateway.runs().count("page") == 3


async def test_a_call_sent_during_a_response_does_not_run_before_that_is_read(tmp_path: Path) -> None:
    with gateway_process(tmp_path, read_timeout_s=0.5) as gateway:
        await others_live(gateway)
        files, request = gateway.open_files(), page_request(gateway.port, 12_000_000)
        async with connected(gateway.port, 1, request) as [made]:
            loop = asyncio.get_running_loop()
            assert await loop.sock_recv(made, 1) == b"H"
            await loop.sock_sendall(made, request)
            assert await soon(lambda: gateway.open_files() <= files)
        assert gateway.runs().count("page") == 1


async def test_a_client_that_reads_slowly_gets_all_responses_to_its_pipelined_calls(tmp_path: Path) -> None:
    with gateway_process(tmp_path) as gateway:
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port, limit=4096)
        writer.write(page_request(gateway.port, 12_000_000) * 3)
        for _ in range(3):
            head = await reader.readuntil(b"\r\n\r\n")
            [length] = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
            body = json.loads(await reader.readexactly(int(length.partition(b":")[2])))
            assert len(body["result"]["content"][0]["text"]) == 12_000_000
        writer.close()
        await writer.wait_closed()
        assert gateway.runs() == ["page"] * 3


async def test_many_readers_get_all_events_in_order(tmp_path: Path) -> None:
    with gateway_process(tmp_path, sessions_per_principal=_READERS) as gateway:
        await others_live(gateway)
        files, memory_mb = gateway.open_files(), gateway.memory_mb()
        async with gateway.client() as client:
            ids = [await session(client) for _ in range(_READERS)]
        streams = [await asyncio.open_connection("127.0.0.1", gateway.port) for _ in ids]
        for (reader, writer), one in zip(streams, ids, strict=True):
            head = (
                f"GET /mcp HTTP/1.1\r\nHost: 127.0.0.1:{gateway.port}\r\nAuthorization: Bearer token-of-alice\r\nMcp-Session-Id: {one}\r\n"
            )
            writer.write(f"{head}Accept: text/event-stream\r\n\r\n".encode())
            await reader.readuntil(b"\r\n\r\n")
            await reader.readuntil(b":\r\n\r\n")
        async with gateway.client("bob") as client:
            await call(client, "publish", {"count": 100})
        await others_live(gateway)
        assert [await numbers(reader, 100) for reader, _ in streams] == [list(range(100))] * _READERS
        assert gateway.most_memory_mb() - memory_mb <= 400
        for _, writer in streams:
            writer.close()
        assert await soon(lambda: gateway.open_files() <= files)


async def numbers(reader: asyncio.StreamReader, count: int) -> list[int]:
    found: list[int] = []
    while len(found) < count:
        line = await asyncio.wait_for(reader.readline(), 10)
        if line.startswith(b"data: "):
            found.append(json.loads(line[6:])["params"]["data"])
    return found


async def test_a_thousand_half_closed_connections_are_closed(tmp_path: Path) -> None:
    with gateway_process(tmp_path) as gateway:
        await others_live(gateway)
        files, memory_mb = gateway.open_files(), gateway.memory_mb()
        async with connected(gateway.port, 1000, b"") as sockets:
            for one in sockets:
                one.shutdown(socket.SHUT_WR)
            await others_live(gateway)
            assert await soon(lambda: gateway.open_files() <= files)
            assert gateway.most_memory_mb() - memory_mb <= 160
