"""The connections of our own: when they are closed, and what they keep from others."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from callgate.mcp import ConnectionLost, NotSent
from callgate.mcp._http1_connection import _Socket
from tests.mcp.http.clients import Client, connected
from tests.mcp.http.fake_server import FakeServer, Reply, Sent, result_of
from tests.mcp.http.test_failures import TEXT, answer, ends, failure_with
from tests.mcp.http.test_tls import certificate, served
from tests.waiting import PATIENCE_S

__all__ = ["certificate"]

TINY_PARTS = 1_000


async def tiny_parts(sent: Sent, reply: Reply) -> None:
    body = json.dumps(result_of(sent, content=[TEXT])).encode()
    parts = b"".join(b"1\r\n%c\r\n" % byte for byte in body.rjust(TINY_PARTS))
    await reply.raw(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n" + parts + b"0\r\n\r\n")


async def many_events(sent: Sent, reply: Reply) -> None:
    await reply.stream(b'data: {"jsonrpc": "2.0", "method": "n"}\n\n' * TINY_PARTS)
    await reply.event(result_of(sent, content=[TEXT]))
    reply.end()


@pytest.mark.parametrize("write", [tiny_parts, many_events])
async def test_other_tasks_run_while_a_server_sends_tiny_parts(write: Callable[[Sent, Reply], Awaitable[None]]) -> None:
    async def tiny(sent: Sent, reply: Reply) -> None:
        turns.clear()
        await write(sent, reply)

    turns: list[None] = []

    async def count() -> None:
        while True:
            turns.append(None)
            await asyncio.sleep(0)

    async with FakeServer(tiny) as server, connected(server.url) as client:
        counting = asyncio.create_task(count())
        assert await client.call("pay") == "done"
        counting.cancel()
    assert len(turns) >= TINY_PARTS / 20


async def test_a_connection_that_was_idle_for_long_is_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async with FakeServer(answer) as server, connected(server.url) as client:
        await client.call("pay")
        monkeypatch.setattr("callgate.mcp._connection_pool.KEEP_ALIVE_S", -1.0)
        await client.call("pay")
    assert [sent.connection for sent in server.sent] == [0, 1]


async def test_nothing_is_sent_by_a_connection_that_is_closed_while_it_connects(monkeypatch: pytest.MonkeyPatch) -> None:
    found, asked = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    look_up: Callable[..., Awaitable[Any]] = loop.getaddrinfo

    async def slow(*args: Any, **options: Any) -> Any:
        asked.set()
        await found.wait()
        return await look_up(*args, **options)

    monkeypatch.setattr(loop, "getaddrinfo", slow)
    async with FakeServer(answer) as server:
        client = Client(server.url)
        await client.connection.open()
        client.connection.use(client.revision)
        call = asyncio.create_task(client.call("pay"))
        await asked.wait()
        await client.connection.close()
        found.set()
        with pytest.raises(NotSent):
            await call
        async with asyncio.timeout(PATIENCE_S):
            await server.all_closed()
    assert server.sent == []


async def test_a_call_that_is_cancelled_while_tls_begins_keeps_no_other_server_from_being_called(
    certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number of a closed socket is used again at once, by the next connection of the process."""
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    async with (
        FakeServer(answer) as plain,
        _SilentTls(served(certificate)) as url,
        connected(url) as client,
        connected(plain.url) as other,
    ):
        loop, call = asyncio.get_running_loop(), asyncio.create_task(client.call("pay"))
        made = _Socket.connection_made

        def cancelled_now(one: _Socket, transport: asyncio.BaseTransport) -> None:
            made(one, transport)
            if transport.get_extra_info("ssl_object") is not None:
                loop.call_soon(call.cancel)

        monkeypatch.setattr(_Socket, "connection_made", cancelled_now)
        await asyncio.wait([call])
        assert call.cancelled()
        with socket.socket() as following:  # has the number of the one that was closed
            loop.add_reader(following, following.close)
            loop.remove_reader(following)
        assert await other.call("pay") == "done"


async def test_a_server_that_ends_the_connection_is_told_in_words() -> None:
    error = await failure_with(ends)
    assert isinstance(error, ConnectionLost)
    assert "the server disconnected without a response" in str(error)


class _SilentTls:
    """A server in a thread of its own that makes the TLS handshake, and then neither answers nor takes leave."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context

    async def __aenter__(self) -> str:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        return f"https://127.0.0.1:{self._socket.getsockname()[1]}/mcp"

    async def __aexit__(self, *_: object) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        await asyncio.to_thread(self._thread.join)

    def _serve(self) -> None:
        kept = []
        while True:
            try:
                accepted, _ = self._socket.accept()
            except OSError:
                break
            try:
                kept.append(self._context.wrap_socket(accepted, server_side=True))
            except OSError:
                accepted.close()
        for one in kept:
            one.close()
