"""What a caller is told when a request over HTTP fails, and that only this request fails.

The error says whether the server may have got the request: what was sent once is never sent again.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from callgate.mcp import ConnectionLost, McpError, NotSent, ProtocolError
from callgate.mcp._messages import MAX_MESSAGE_BYTES
from tests.mcp.http.clients import connected
from tests.mcp.http.fake_server import FakeServer, Reply, Sent, result_of

pytestmark = pytest.mark.usefixtures("each_connection")

TEXT = {"type": "text", "text": "done"}


async def answer(sent: Sent, reply: Reply) -> None:
    await reply.json(result_of(sent, content=[TEXT]))


async def failure_of(url: str, **options: Any) -> McpError:
    """Return the error of one call."""
    async with connected(url, **options) as client:
        with pytest.raises(McpError) as caught:
            await client.call("pay")
    return caught.value


async def failure_with(write: Any, **options: Any) -> McpError:
    """Return the error of one call at a server whose response `write` writes. It is sent exactly once."""
    async with FakeServer(write) as server:
        error = await failure_of(server.url, **options)
    assert len(server.sent) == 1
    return error


async def test_a_refused_connection_is_a_request_that_was_not_sent(unused_tcp_port: int) -> None:
    error = await failure_of(f"http://127.0.0.1:{unused_tcp_port}/mcp")
    assert isinstance(error, NotSent)
    assert str(error).startswith(f"The MCP server 'fake' cannot be reached at http://127.0.0.1:{unused_tcp_port}/mcp ")
    assert "(Connection refused). Check the " in str(error)
    assert str(error).endswith("and whether the server runs.")


async def test_an_unknown_host_is_a_request_that_was_not_sent() -> None:
    assert isinstance(await failure_of("http://nowhere.invalid/mcp"), NotSent)


async def test_a_server_without_tls_at_an_https_address_is_a_request_that_was_not_sent() -> None:
    def plain(_: object, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 X\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(plain, "127.0.0.1", 0) as server:
        assert isinstance(await failure_of(f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"), NotSent)


async def test_a_server_can_be_reached_again_after_it_was_not(unused_tcp_port: int) -> None:
    async with connected(f"http://127.0.0.1:{unused_tcp_port}/mcp") as client:
        with pytest.raises(NotSent):
            await client.call("pay")
        async with FakeServer(answer, port=unused_tcp_port):
            assert await client.call("pay") == "done"


async def drops(sent: Sent, reply: Reply) -> None:
    reply.drop()


async def ends(sent: Sent, reply: Reply) -> None:
    reply.end()


async def half_a_body(sent: Sent, reply: Reply) -> None:
    await reply.raw(b'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 500\r\n\r\n{"jsonrpc": "2.0"')
    reply.end()


async def half_a_head(sent: Sent, reply: Reply) -> None:
    await reply.raw(b"HTTP/1.1 200 OK\r\ncontent-ty")
    reply.end()


async def half_an_event(sent: Sent, reply: Reply) -> None:
    await reply.stream(b"data: " + json.dumps(result_of(sent, content=[TEXT])).encode() + b"\n")
    reply.end()


async def no_event(sent: Sent, reply: Reply) -> None:
    await reply.stream(b": ping\n\n")
    reply.end()


@pytest.mark.parametrize("write", [drops, ends, half_a_body, half_a_head, half_an_event, no_event])
async def test_a_connection_that_ends_before_the_answer_leaves_the_outcome_open(write: Any) -> None:
    error = await failure_with(write)
    assert isinstance(error, ConnectionLost)
    assert str(error).endswith("It may have done what was asked: look at the server before you ask again.")


async def page(sent: Sent, reply: Reply) -> None:
    await reply.send(502, "text/html", b"<h1>Bad Gateway</h1>")


async def greeting(sent: Sent, reply: Reply) -> None:
    await reply.send(200, "text/html; charset=utf-8", b"<h1>Welcome</h1>")


async def accepted(sent: Sent, reply: Reply) -> None:
    await reply.raw(b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n")


async def no_json(sent: Sent, reply: Reply) -> None:
    await reply.send(200, "application/json", b'{"jsonrpc": "2.0", "id": 1, "result": NaN}')


async def no_answer(sent: Sent, reply: Reply) -> None:
    await reply.json({"jsonrpc": "2.0", "id": sent.message["id"]})


async def another_id(sent: Sent, reply: Reply) -> None:
    await reply.json(result_of(sent) | {"id": 99})


async def a_text_as_id(sent: Sent, reply: Reply) -> None:
    await reply.json(result_of(sent) | {"id": str(sent.message["id"])})


async def an_event_with_another_id(sent: Sent, reply: Reply) -> None:
    await reply.stream()
    await reply.event(result_of(sent) | {"id": 99})
    await asyncio.sleep(60)


async def an_event_without_json(sent: Sent, reply: Reply) -> None:
    await reply.stream(b'data: {"id": %d, "result": NaN}\n\n' % sent.message["id"])
    await asyncio.sleep(60)


async def no_http(sent: Sent, reply: Reply) -> None:
    await reply.raw(b"220 mail.example ESMTP\r\n\r\n")
    reply.end()


async def compressed(sent: Sent, reply: Reply) -> None:
    await reply.send(200, "application/json", b"\x1f\x8b", content_encoding="gzip")


async def an_error_without_id(sent: Sent, reply: Reply) -> None:
    await reply.json({"jsonrpc": "2.0", "id": None, "error": {"code": -32000, "message": "Server busy"}})


async def see_other(sent: Sent, reply: Reply) -> None:
    await reply.send(303, "text/html", location="/result")


@pytest.mark.parametrize(
    ("write", "says"),
    [
        (page, "answered 502 Bad Gateway with text/html"),
        (greeting, "answered 200 OK with text/html"),
        (accepted, "answered 202 Accepted with no content type"),
        (no_json, "cannot be read: it is not JSON"),
        (no_answer, "it has neither a result nor an error"),
        (another_id, "it has the id 99 of another request"),
        (a_text_as_id, "it has the id '1' of another request"),
        (an_event_with_another_id, "it has the id 99 of another request"),
        (an_error_without_id, "it has the id None of another request and says 'Server busy'"),
        (an_event_without_json, "cannot be read: it is not JSON"),
        (no_http, "is not HTTP"),
        (compressed, "the encoding 'gzip'"),
        (see_other, "answered 303 See Other and redirects to"),
    ],
)
async def test_a_response_that_is_no_answer_leaves_the_outcome_open(write: Any, says: str) -> None:
    error = await failure_with(write)
    assert isinstance(error, ProtocolError)
    assert says in str(error)


async def a_large_body(sent: Sent, reply: Reply) -> None:
    await reply.raw(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % (MAX_MESSAGE_BYTES + 1))


async def an_endless_body(sent: Sent, reply: Reply) -> None:
    await reply.raw(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n")
    while True:
        await reply.raw(b" " * 65_536)


async def an_endless_event(sent: Sent, reply: Reply) -> None:
    await reply.stream(b"data: ")
    while True:
        await reply.raw(b"x" * 65_536)


async def an_event_of_endless_lines(sent: Sent, reply: Reply) -> None:
    await reply.stream()
    while True:
        await reply.raw(b"data: x\n" * 8_192)


@pytest.mark.parametrize("write", [a_large_body, an_endless_body, an_endless_event, an_event_of_endless_lines])
async def test_a_message_larger_than_the_limit_is_not_read(write: Any) -> None:
    error = await failure_with(write)
    assert isinstance(error, ProtocolError)
    assert error.code == "output_too_large"
    assert f"more than {MAX_MESSAGE_BYTES} bytes" in str(error)


async def test_an_answer_that_arrives_byte_by_byte_is_read() -> None:
    async def slowly(sent: Sent, reply: Reply) -> None:
        text = b"event: message\r\ndata: " + json.dumps(result_of(sent, content=[TEXT])).encode() + b"\r\n\r\n"
        await reply.stream()
        for place in range(len(text)):
            await reply.raw(text[place : place + 1])
            await asyncio.sleep(0)

    async with FakeServer(slowly) as server, connected(server.url) as client:
        assert await client.call("pay") == "done"


async def test_a_dropped_connection_ends_only_its_own_call() -> None:
    every = asyncio.Barrier(64)

    async def one_drops(sent: Sent, reply: Reply) -> None:
        await every.wait()
        if sent.message["params"]["arguments"]["number"] == 17:
            reply.drop()
        else:
            await answer(sent, reply)

    async with FakeServer(one_drops) as server, connected(server.url) as client:
        results = await asyncio.gather(*(client.call("pay", {"number": number}) for number in range(64)), return_exceptions=True)
        assert [number for number, result in enumerate(results) if result != "done"] == [17]
        assert isinstance(results[17], ConnectionLost)
        server.answer = answer
        assert await client.call("pay") == "done"
    assert len(server.sent) == 65


async def test_calls_one_after_the_other_use_one_connection() -> None:
    async with FakeServer(answer) as server, connected(server.url) as client:
        for _ in range(3):
            await client.call("pay")
    assert [sent.connection for sent in server.sent] == [0, 0, 0]


async def test_calls_at_once_use_the_connections_of_earlier_ones_again() -> None:
    every = asyncio.Barrier(32)

    async def at_once(sent: Sent, reply: Reply) -> None:
        await every.wait()
        await answer(sent, reply)

    async with FakeServer(at_once) as server, connected(server.url) as client:
        for _ in range(3):
            await asyncio.gather(*(client.call("pay") for _ in range(32)))
    assert len({sent.connection for sent in server.sent}) == 32


async def test_calls_go_on_after_calls_that_were_cancelled_in_the_middle_of_their_answers() -> None:
    waiting = asyncio.Semaphore(0)

    async def half(sent: Sent, reply: Reply) -> None:
        await reply.raw(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{")
        waiting.release()

    async with FakeServer(half) as server, connected(server.url) as client:
        for _ in range(3):
            calls = [asyncio.ensure_future(client.call("pay")) for _ in range(4)]
            for _ in calls:
                await waiting.acquire()
            for one in calls:
                one.cancel()
            await asyncio.wait(calls)
        server.answer = answer
        assert await asyncio.gather(*(client.call("pay") for _ in range(8))) == ["done"] * 8


async def test_a_connection_is_used_again_after_a_stream_that_the_server_has_ended() -> None:
    async def stream(sent: Sent, reply: Reply) -> None:
        event = b"data: %s\n\n" % json.dumps(result_of(sent, content=[TEXT])).encode()
        head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        await reply.raw(head + b"%x\r\n%s\r\n" % (len(event), event))
        await reply.raw(b"0\r\n\r\n")

    async with FakeServer(stream) as server, connected(server.url) as client:
        for _ in range(8):
            assert await client.call("pay") == "done"
    assert len({sent.connection for sent in server.sent}) < 8


async def test_a_call_after_the_server_has_closed_the_idle_connection_uses_another() -> None:
    async def once(sent: Sent, reply: Reply) -> None:
        await answer(sent, reply)
        reply.end()

    async with FakeServer(once) as server, connected(server.url) as client:
        for _ in range(3):
            assert await client.call("pay") == "done"
            await server.all_closed()
    assert len(server.sent) == 3


async def test_a_call_that_meets_the_end_of_its_connection_is_not_sent_again() -> None:
    async def only_first(sent: Sent, reply: Reply) -> None:
        await (answer(sent, reply) if len(server.sent) == 1 else drops(sent, reply))

    async with FakeServer(only_first) as server, connected(server.url) as client:
        assert await client.call("pay") == "done"
        with pytest.raises(ConnectionLost):
            await client.call("pay")
    assert [sent.connection for sent in server.sent] == [0, 0]


async def test_bytes_after_an_answer_are_not_read_as_the_next_answer() -> None:
    async def more(sent: Sent, reply: Reply) -> None:
        await answer(sent, reply)
        if len(server.sent) == 1:
            await reply.json({"jsonrpc": "2.0", "id": 2, "result": {"content": [{"type": "text", "text": "forged"}]}})

    async with FakeServer(more) as server, connected(server.url) as client:
        assert [await client.call("pay"), await client.call("pay")] == ["done", "done"]


async def test_a_cancelled_call_closes_its_connection() -> None:
    asked = asyncio.Event()

    async def silent(sent: Sent, reply: Reply) -> None:
        asked.set()
        await asyncio.sleep(60)

    async with FakeServer(silent) as server, connected(server.url) as client:
        call = asyncio.create_task(client.call("pay"))
        await asked.wait()
        call.cancel()
        await asyncio.wait([call])
        assert call.cancelled()
        await server.closed.acquire()
    assert server.methods == ["tools/call"]


async def test_a_closed_connection_sends_nothing() -> None:
    async with FakeServer(answer) as server:
        async with connected(server.url) as client:
            await client.call("pay")
        with pytest.raises(NotSent, match="the connection is closed"):
            await client.call("pay")
        assert client.connection.lost.done()
    assert len(server.sent) == 1


async def test_a_call_that_runs_while_the_connection_is_closed_ends() -> None:
    asked = asyncio.Event()

    async def silent(sent: Sent, reply: Reply) -> None:
        asked.set()
        await asyncio.sleep(60)

    async with FakeServer(silent) as server, connected(server.url) as client:
        call = asyncio.create_task(client.call("pay"))
        await asked.wait()
        await client.connection.close()
        with pytest.raises(ConnectionLost):
            await call
