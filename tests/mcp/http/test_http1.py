"""What HTTP/1.1 allows a server to send is read, and what it does not allow is refused."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from callgate.mcp import NotSent, ProtocolError
from tests.mcp.http.clients import connected
from tests.mcp.http.fake_server import FakeServer, Reply, Sent, result_of
from tests.mcp.http.test_failures import TEXT, answer, failure_with

pytestmark = pytest.mark.usefixtures("each_connection")


def _body(sent: Sent) -> bytes:
    return json.dumps(result_of(sent, content=[TEXT])).encode()


async def early_hints(sent: Sent, reply: Reply) -> None:
    await reply.raw(b"HTTP/1.1 102 Processing\r\n\r\n" * 40 + b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n")
    await answer(sent, reply)


async def until_the_end(sent: Sent, reply: Reply) -> None:
    await reply.raw(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n" + _body(sent))
    reply.end()


async def version_1_0(sent: Sent, reply: Reply) -> None:
    await reply.raw(b"HTTP/1.0 200 OK\r\ncontent-type: application/json\r\n\r\n" + _body(sent))
    reply.end()


async def chunked_with_trailer(sent: Sent, reply: Reply) -> None:
    await reply.raw(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
    for start in range(0, len(body := _body(sent)), 7):
        piece = body[start : start + 7]
        await reply.raw(b"%x;ext=1\r\n%b\r\n" % (len(piece), piece))
    await reply.raw(b"0\r\nchecksum: 1\r\n\r\n")


async def told_to_close(sent: Sent, reply: Reply) -> None:
    await reply.json(result_of(sent, content=[TEXT]), connection="close")


async def head_byte_by_byte(sent: Sent, reply: Reply) -> None:
    body = _body(sent)
    for byte in b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body):
        await reply.raw(bytes([byte]))
        await asyncio.sleep(0)
    await reply.raw(body)


@pytest.mark.parametrize("write", [early_hints, until_the_end, version_1_0, chunked_with_trailer, told_to_close, head_byte_by_byte])
async def test_every_form_of_a_response_is_read_and_the_next_call_goes_on(write: Any) -> None:
    async with FakeServer(write) as server, connected(server.url) as client:
        assert [await client.call("pay"), await client.call("pay")] == ["done", "done"]
    assert len(server.sent) == 2


async def test_a_large_request_and_a_large_answer_arrive_whole() -> None:
    text = "ä" * 1_000_000

    async def echo(sent: Sent, reply: Reply) -> None:
        given = sent.message["params"]["arguments"]["text"]
        await reply.json(result_of(sent, content=[{"type": "text", "text": given}]))

    async with FakeServer(echo) as server, connected(server.url) as client:
        assert await client.call("echo", {"text": text}) == text
    assert int(server.sent[0].headers["content-length"]) == len(server.sent[0].body)


async def test_a_connection_that_the_server_will_close_is_not_used_again() -> None:
    async with FakeServer(told_to_close) as server, connected(server.url) as client:
        await client.call("pay")
        await client.call("pay")
    assert [sent.connection for sent in server.sent] == [0, 1]


async def another_protocol(sent: Sent, reply: Reply) -> None:
    await reply.raw(b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n")


async def two_lengths(sent: Sent, reply: Reply) -> None:
    await reply.raw(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\n{}")


async def an_endless_head(sent: Sent, reply: Reply) -> None:
    await reply.raw(b"HTTP/1.1 200 OK\r\n")
    while True:
        await reply.raw(b"x: y\r\n" * 1_000)


async def a_broken_chunk(sent: Sent, reply: Reply) -> None:
    await reply.raw(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n")


@pytest.mark.parametrize("write", [another_protocol, two_lengths, an_endless_head, a_broken_chunk])
async def test_bytes_that_are_not_http_leave_the_outcome_open(write: Any) -> None:
    error = await failure_with(write)
    assert isinstance(error, ProtocolError)
    assert "is not HTTP" in str(error)


async def test_a_name_with_several_addresses_is_connected_at_the_one_that_listens() -> None:
    """`localhost` is `::1` and `127.0.0.1`; the server has the second."""
    async with FakeServer(answer) as server, connected(server.url.replace("127.0.0.1", "localhost")) as client:
        assert await client.call("pay") == "done"
    assert server.sent[0].headers["host"].startswith("localhost:")


async def test_a_cancellation_while_it_connects_leaves_nothing_open() -> None:
    async with FakeServer(answer) as server:
        for turns in range(8):
            async with connected(server.url) as client:
                call = asyncio.create_task(client.call("pay"))
                for _ in range(turns):
                    await asyncio.sleep(0)
                call.cancel()
                await asyncio.wait([call])
        await server.all_closed()


async def test_a_name_that_no_host_can_have_is_a_request_that_was_not_sent() -> None:
    async with connected(f"http://{'a' * 64}.example/mcp") as client:
        with pytest.raises(NotSent, match="cannot be reached"):
            await client.call("pay")


async def test_the_host_header_of_the_configuration_replaces_that_of_the_address() -> None:
    async with FakeServer(answer) as server, connected(server.url, headers={"Host": "shop.example"}) as client:
        assert await client.call("pay") == "done"
    assert server.sent[0].headers["host"] == "shop.example"
