"""Responses that come before the whole request, and heads that are refused: the client reads them, and what it still sends is bounded.

Each request is read without h11 if its head is simple, and by h11 otherwise, for which one with a query is enough.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp.client.streamable_http import streamable_http_client

from mcp import Client, MCPError
from tests.gateway.http.gateway_process import ACCEPT, VERSION, GatewayProcess, gateway_process
from tests.waiting import HANGS_S, soon

PATHS = ["/mcp", "/mcp?read-by=h11"]
TOO_LARGE = "The body is larger than 4194304 bytes. Send less at once."


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    with gateway_process(tmp_path_factory.mktemp("gateway"), head_bytes=2000) as running:
        yield running


def echo(text: str) -> bytes:
    meta = {"io.modelcontextprotocol/protocolVersion": VERSION, "io.modelcontextprotocol/clientCapabilities": {}}
    params = {"name": "echo", "arguments": {"text": text}, "_meta": meta}
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()


def head(port: int, *more: str, path: str = "/mcp", token: str = "token-of-alice") -> bytes:
    lines = [
        f"POST {path} HTTP/1.1",
        f"Host: 127.0.0.1:{port}",
        f"Authorization: Bearer {token}",
        "Content-Type: application/json",
        f"Accept: {ACCEPT}",
        f"MCP-Protocol-Version: {VERSION}",
        "Mcp-Method: tools/call",
        "Mcp-Name: echo",
        *more,
    ]
    return "\r\n".join([*lines, "", ""]).encode()


def connected(port: int) -> closing[socket.socket]:
    return closing(socket.create_connection(("127.0.0.1", port), HANGS_S))


def received(client: socket.socket) -> bytes:
    """Return what comes until the server has sent all."""
    parts = []
    while part := client.recv(65536):
        parts.append(part)
    return b"".join(parts)


def answer(port: int, *parts: bytes) -> tuple[int, str]:
    """Send a request that ends the connection, in parts that arrive alone; return the status and the text of the response."""
    with connected(port) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for part in parts:
            client.sendall(part)
            with connected(port) as other:  # the server reads in turn
                other.sendall(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nConnection: close\r\n\r\n" % port)
                received(other)
        first, _, rest = received(client).partition(b"\r\n")
        return int(first.split(b" ")[1]), rest.partition(b"\r\n\r\n")[2].decode()


# Bodies that are too large


@pytest.mark.parametrize("path", PATHS)
def test_a_client_that_sends_a_whole_body_before_it_reads_gets_the_413(gateway: GatewayProcess, path: str) -> None:
    for size in (5_000_000, 20_000_000):
        request = head(gateway.port, f"Content-Length: {size}", path=path)
        with connected(gateway.port) as client:
            client.sendall(request + b" " * size)
            assert TOO_LARGE in received(client).decode()


def test_a_client_of_the_standard_library_gets_the_413(gateway: GatewayProcess) -> None:
    headers = {"Authorization": "Bearer token-of-alice", "Content-Type": "application/json", "Accept": ACCEPT}
    with closing(http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=HANGS_S)) as client:
        client.request("POST", "/mcp", echo("x" * 5_000_000), headers)
        response = client.getresponse()
        assert (response.status, json.loads(response.read())["error"]["message"]) == (413, TOO_LARGE)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_an_sdk_client_is_told_that_its_call_is_too_large_and_can_call_again(gateway: GatewayProcess, mode: Any) -> None:
    http_client = httpx2.AsyncClient(headers={"Authorization": "Bearer token-of-alice"})
    url = f"http://127.0.0.1:{gateway.port}/mcp"
    async with http_client, Client(streamable_http_client(url, http_client=http_client), mode=mode) as client:
        with pytest.raises(MCPError, match="larger than 4194304 bytes"):
            await client.call_tool("echo", {"text": "x" * 5_000_000})
        assert not (await client.call_tool("echo", {"text": "again"})).is_error


@pytest.mark.parametrize(("token", "status"), [("token-of-alice", 413), ("nobody", 401)])
def test_a_body_that_is_refused_is_not_asked_for_and_the_connection_ends(gateway: GatewayProcess, token: str, status: int) -> None:
    with connected(gateway.port) as client:
        client.sendall(head(gateway.port, "Expect: 100-continue", "Content-Length: 5000000", token=token))
        response = received(client)
        assert response.startswith(b"HTTP/1.1 %d" % status)
        assert b"\r\nconnection: close\r\n" in response


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("token", ["token-of-alice", "nobody"])
async def test_a_client_that_sends_for_ever_is_disconnected_in_time(tmp_path: Path, path: str, token: str) -> None:
    with gateway_process(tmp_path, body_timeout_s=0.3) as gateway:
        async with gateway.client() as other:
            await other.get("/health")
            files = gateway.open_files()
            reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
            writer.write(head(gateway.port, "Content-Length: 999999999999", path=path, token=token))
            assert (await reader.readline()).startswith(b"HTTP/1.1 4")
            assert gateway.open_files() == files + 1
            assert await soon(lambda: gateway.open_files() == files)
            writer.close()


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("token", ["token-of-alice", "nobody"])
async def test_a_client_that_sends_without_end_is_disconnected_after_64_mib(gateway: GatewayProcess, path: str, token: str) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    writer.write(head(gateway.port, "Content-Length: 999999999999", path=path, token=token))
    assert (await reader.readline()).startswith(b"HTTP/1.1 4")
    sent_bytes = 0
    with suppress(ConnectionError):
        while sent_bytes < 128 << 20:
            writer.write(bytes(1 << 20))
            await writer.drain()
            sent_bytes += 1 << 20
    assert 64 << 20 <= sent_bytes < 128 << 20
    writer.transport.abort()


@pytest.mark.parametrize("path", PATHS)
async def test_clients_that_do_not_close_refused_connections_keep_nobody_out(tmp_path: Path, path: str) -> None:
    with gateway_process(tmp_path, connections=5) as gateway:
        clients = [await asyncio.open_connection("127.0.0.1", gateway.port) for _ in range(4)]
        for reader, writer in clients:
            writer.write(head(gateway.port, "Content-Length: 5000000", path=path))
            assert (await reader.readline()).startswith(b"HTTP/1.1 413")
        for _ in range(10):
            async with gateway.client() as other:
                assert (await other.get("/health")).status_code == 200
        for _, writer in clients:
            writer.transport.abort()


async def test_a_gateway_stops_without_waiting_for_the_rest_of_a_refused_body(tmp_path: Path) -> None:
    with gateway_process(tmp_path, body_timeout_s=3600.0) as gateway:
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
        writer.write(head(gateway.port, "Content-Length: 5000000"))
        assert (await reader.readline()).startswith(b"HTTP/1.1 413")
    assert gateway.log() == ""  # which would say that the time to stop was over
    writer.close()


@pytest.mark.parametrize("path", PATHS)
async def test_a_connection_is_kept_after_the_rest_of_a_refused_body(gateway: GatewayProcess, path: str) -> None:
    body = echo("kept")
    refused = head(gateway.port, f"Content-Length: {len(body)}", path=path, token="nobody")
    good = head(gateway.port, f"Content-Length: {len(body)}", path=path) + body
    with connected(gateway.port) as client:
        client.sendall(refused)
        assert client.recv(65536).startswith(b"HTTP/1.1 401")
        client.sendall(body + good)
        assert b"kept" in client.recv(65536)


# Heads that are refused


def test_a_head_is_refused_above_the_limit_in_whatever_parts_it_comes(gateway: GatewayProcess) -> None:
    body = echo("x")
    for path in PATHS:
        least = head(gateway.port, f"Content-Length: {len(body)}", "Connection: close", "X: ", path=path)
        for size, status in ((2000, 200), (2001, 431), (30_000, 431), (200_000, 431)):
            filler = "a" * (size - len(least))
            request = head(gateway.port, f"Content-Length: {len(body)}", "Connection: close", f"X: {filler}", path=path)
            assert len(request) == size
            parts = ((request + body,), (request[:1500], request[1500:] + body), (request[:1500], request[1500:1900], request[1900:], body))
            for sent in parts:
                told, text = answer(gateway.port, *sent)
                assert told == status, (path, size)
                assert status == 200 or text == "The head is larger than 2000 bytes. Send fewer or shorter headers."


def test_a_large_head_is_refused_too_where_it_follows_another_request(gateway: GatewayProcess) -> None:
    body = echo("x")
    first, large = head(gateway.port, f"Content-Length: {len(body)}") + body, head(gateway.port, "X: " + "a" * 3000)
    for sent in ((first + large,), (first, large), (first[:-1], first[-1:] + large)):
        with connected(gateway.port) as client:
            for part in sent:
                client.sendall(part)
            response = received(client)
            assert [response.count(status) for status in (b"HTTP/1.1 200", b"HTTP/1.1 431")] == [1, 1]


@pytest.mark.parametrize(
    ("request_bytes", "status", "why"),
    [
        (b"GET /mcp\r\n\r\n", 400, "illegal request line"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200), 400, "illegal request line"),
        (b"POST /mcp HTTP/1.1\r\n\r\n", 400, "Missing mandatory Host: header"),
        (b"POST /mcp HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400, "Found multiple Host: headers"),
        (b"POST /mcp HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n", 400, "bad Content-Length"),
        (b"POST /mcp HTTP/1.1\r\nHost: a\r\nA secret: b\r\n\r\n", 400, "illegal header line"),
        (b"POST /mcp HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n", 501, "Only Transfer-Encoding: chunked is supported"),
    ],
)
def test_what_is_not_valid_http_is_refused_with_the_reason(gateway: GatewayProcess, request_bytes: bytes, status: int, why: str) -> None:
    text = f"The request is not valid HTTP/1.1: {why}. Correct it, and send it on a new connection."
    assert answer(gateway.port, request_bytes) == (status, text)


def test_a_body_that_is_not_valid_is_refused_while_it_is_awaited(gateway: GatewayProcess) -> None:
    begun = head(gateway.port, "Transfer-Encoding: chunked")
    status, text = answer(gateway.port, begun, b"1\r\n{\r\nnot-a-length\r\n")
    assert (status, "illegal chunk header" in text) == (400, True)
    assert (
        answer(gateway.port, begun, b"1;" + b"a" * 3000)[1]
        == "The head of a chunk or the trailer is larger than 2000 bytes. Send fewer extensions."
    )


def test_a_body_that_is_not_valid_ends_the_connection_if_its_request_is_refused_already(gateway: GatewayProcess) -> None:
    begun = head(gateway.port, "Transfer-Encoding: chunked", token="nobody")
    assert answer(gateway.port, begun, b"not-a-length\r\n")[0] == 401
    assert gateway.log() == ""
