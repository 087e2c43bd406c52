"""Requests that are answered without h11 are those that h11 reads in the same way, and clients read their responses with h11."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import h11
import pytest
from hypothesis import given

from callgate.gateway._http import HttpApp, HttpLimits, HttpServer
from callgate.gateway._http.simple_requests import simple_request
from tests.gateway.http.conftest import TOKEN, EchoFronts
from tests.mcp.http.changed_bytes import changed, with_each_line
from tests.waiting import HANGS_S

POST = b'POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: */*\r\nContent-Type: application/json\r\nContent-Length: 7\r\n\r\n{"a":1}'
REQUESTS = (POST, POST + POST, POST.replace(b"/mcp", b"/mcp?a=b%20c"), POST.replace(b"POST", b"GET"))
MOST = 32 * 1024


def read_by_h11(data: bytes) -> object:
    """Return what h11 reads if it is one request, or its beginning, after which the connection is kept; else None."""
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=MOST)
    connection.receive_data(data)
    events: list[Any] = []
    try:
        while (event := connection.next_event()) is not h11.NEED_DATA and event is not h11.PAUSED:
            events.append(event)
    except h11.RemoteProtocolError:
        return None
    if not events or connection.trailing_data[0] or connection.they_are_waiting_for_100_continue:
        return None
    if connection.their_state is h11.MUST_CLOSE:
        return None
    request = events[0]
    body = b"".join(bytes(event.data) for event in events[1:] if isinstance(event, h11.Data))
    return request.method, request.target, list(request.headers), body, isinstance(events[-1], h11.EndOfMessage)


def check(data: bytes) -> None:
    found = simple_request(data, MOST)
    if found is not None:
        whole = len(found.body) == found.body_bytes
        assert read_by_h11(data) == (b"POST", found.path, found.headers, found.body, whole), data


@given(changed(REQUESTS))
def test_a_request_that_is_read_without_h11_is_read_as_h11_reads_it(data: bytes) -> None:
    check(data)


@pytest.mark.parametrize("request_data", REQUESTS)
def test_another_line_is_read_as_h11_reads_it_or_left_to_it(request_data: bytes) -> None:
    for data in with_each_line(request_data):
        check(data)


def test_a_usual_request_is_read_without_h11_and_one_with_a_large_head_is_not() -> None:
    for end in range(len(POST) - len('{"a":1}'), len(POST) + 1):
        assert simple_request(POST[:end], MOST) is not None
    assert simple_request(POST, len(POST) - len('{"a":1}') - 1) is None


# Their responses


class Connection:
    """A client's connection, whose responses h11 reads."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.http = h11.Connection(h11.CLIENT)

    async def response(self) -> tuple[int, bytes]:
        """Return the status and the body of the next response; raise `h11.RemoteProtocolError` if it is not whole."""
        self.http.send(h11.Request(method="POST", target="/mcp", headers=[("host", "h")]))
        self.http.send(h11.EndOfMessage())
        status, body = 0, b""
        while not isinstance(event := self.http.next_event(), h11.EndOfMessage):
            if event is h11.NEED_DATA:
                self.http.receive_data(await asyncio.wait_for(self.reader.read(65536), HANGS_S))
            elif isinstance(event, h11.Response):
                status = event.status_code
            elif isinstance(event, h11.Data):
                body += bytes(event.data)
        if self.http.their_state is h11.DONE:
            self.http.start_next_cycle()
        return status, body


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[Connection]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield Connection(reader, writer)
    finally:
        writer.close()


def post(port: int, number: int, method: str) -> bytes:
    meta = {"_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}}
    body = json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": meta}).encode()
    lines = [
        "POST /mcp HTTP/1.1",
        f"Host: 127.0.0.1:{port}",
        f"Authorization: Bearer {TOKEN}",
        "Content-Type: application/json",
        "Accept: */*",
        "MCP-Protocol-Version: 2026-07-28",
        f"Mcp-Method: {method}",
        f"Content-Length: {len(body)}",
    ]
    return "\r\n".join([*lines, "", ""]).encode() + body


def number_in(body: bytes) -> object:
    return json.loads(body.rpartition(b"data: ")[2])["id"]


async def test_requests_that_follow_at_once_are_answered_in_their_order(server: HttpServer, fronts: EchoFronts) -> None:
    async with connected(server.port) as client:
        client.writer.write(post(server.port, 1, "wait"))
        await fronts.front.started.wait()
        client.writer.write(post(server.port, 2, "echo") + post(server.port, 3, "talk") + post(server.port, 4, "echo"))
        await in_server(server)
        fronts.front.cancelled.set()
        assert [number_in((await client.response())[1]) for _ in range(4)] == [1, 2, 3, 4]
        client.writer.write(post(server.port, 6, "talk"))
        assert number_in((await client.response())[1]) == 6


async def test_a_request_may_come_in_any_parts(server: HttpServer) -> None:
    data = post(server.port, 1, "echo")
    async with connected(server.port) as client:
        for end in range(1, len(data), 7):
            for part in (data[:end], data[end:]):
                client.writer.write(part)
                await client.writer.drain()
                await asyncio.sleep(0)  # so that the server, which runs in this event loop, may read the parts alone
            assert number_in((await client.response())[1]) == 1


@pytest.mark.parametrize("parts", [1, 2])
async def test_a_client_that_goes_away_ends_its_request(server: HttpServer, fronts: EchoFronts, parts: int) -> None:
    data = post(server.port, 1, "wait")
    async with connected(server.port) as client:
        if parts == 2:  # which makes it a request that h11 reads
            client.writer.write(data[:5])
            await in_server(server)
            data = data[5:]
        client.writer.write(data)
        await fronts.front.started.wait()
    await asyncio.wait_for(fronts.front.cancelled.wait(), HANGS_S)


async def test_the_rest_of_a_body_that_was_refused_is_skipped_and_the_next_request_answered(server: HttpServer) -> None:
    refused, data = post(server.port, 1, "echo").replace(TOKEN.encode(), b"nobody"), post(server.port, 2, "echo")
    async with connected(server.port) as client:
        client.writer.write(refused[:-20])
        assert (await client.response())[0] == 401
        client.writer.write(refused[-20:-10])
        await in_server(server)
        client.writer.write(refused[-10:] + data)
        assert number_in((await client.response())[1]) == 2


async def in_server(server: HttpServer) -> None:
    """Wait until the server has read what was sent before: it reads in turn, and answers another client."""
    async with connected(server.port) as other:
        other.writer.write(post(server.port, 9, "echo"))
        await other.response()


class OneResponse:
    """An application with one response."""

    limits = HttpLimits()
    on_refused = staticmethod(str)

    def __init__(self, headers: Sequence[tuple[bytes, bytes]], *parts: bytes) -> None:
        self.headers, self.parts = headers, parts

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.headers})
        for part in self.parts:
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body"})

    async def close(self) -> None: ...


async def answer_of(*response: Any) -> tuple[int, bytes]:
    async with HttpServer(cast(HttpApp, OneResponse(*response))) as server, connected(server.port) as client:
        client.writer.write(post(server.port, 1, "echo"))
        return await client.response()


@pytest.mark.parametrize("parts", [(b"",), (b"one", b"", b"x" * 70_000), ()])
async def test_a_response_of_unknown_length_is_sent_in_chunks(parts: tuple[bytes, ...]) -> None:
    assert await answer_of((), *parts) == (200, b"".join(parts))


@pytest.mark.parametrize("length", [b"2", b"4"])
async def test_a_response_whose_body_has_another_length_than_its_head_says_ends_the_connection(length: bytes) -> None:
    with pytest.raises(h11.RemoteProtocolError):
        await answer_of(((b"content-length", length),), b"abc")


@pytest.mark.parametrize("value", [b"a\r\nevil: b", b"a\nevil: b", b"a\0", b" a", b"a "])
async def test_a_header_that_cannot_be_sent_is_not_sent(value: bytes) -> None:
    assert await answer_of(((b"x", value), (b"content-length", b"0"))) == (500, b"Internal Server Error")


async def test_a_response_that_ends_the_connection_ends_it() -> None:
    headers = ((b"content-length", b"2"), (b"connection", b"close"))
    async with HttpServer(cast(HttpApp, OneResponse(headers, b"ok"))) as server, connected(server.port) as client:
        client.writer.write(post(server.port, 1, "echo"))
        assert await client.response() == (200, b"ok")
        assert await asyncio.wait_for(client.reader.read(), HANGS_S) == b""
