"""Requests that are cancelled close their connections at once, not when the garbage is collected."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator

import pytest

from tests.loopback_server import LoopbackServer
from tests.mcp.http.clients import Client, connected
from tests.mcp.http.fake_server import FakeServer, Reply, Sent, result_of
from tests.mcp.http.test_failures import TEXT
from tests.waiting import PATIENCE_S

IDLE = 4
"""How many connections are open at the same time and then idle."""
STEPS = 8
"""After this many steps, a request over loopback has closed the connections that its server has ended."""


@pytest.fixture(autouse=True)
def _no_garbage_collection() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


class SilentServer(LoopbackServer):
    """Reads, and answers nothing: a client that wants TLS waits for its part of the handshake."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = asyncio.Event()
        self.left = asyncio.Event()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        self.asked.set()
        await reader.read()
        self.left.set()


async def cancelled(call: asyncio.Task[object]) -> None:
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)


async def test_a_request_that_is_cancelled_during_the_handshake_of_tls_closes_its_connection() -> None:
    async with SilentServer() as server, connected(server.url.replace("http:", "https:")) as client:
        call = asyncio.create_task(client.call("pay"))
        async with asyncio.timeout(PATIENCE_S):
            await server.asked.wait()
            await cancelled(call)
            await server.left.wait()


class AnswersTogether:
    """Answers when `IDLE` calls have come, each on a connection of its own."""

    def __init__(self) -> None:
        self.replies: list[Reply] = []
        self._all = asyncio.Barrier(IDLE)

    async def __call__(self, sent: Sent, reply: Reply) -> None:
        self.replies.append(reply)
        await self._all.wait()
        await reply.json(result_of(sent, content=[TEXT]))


@pytest.mark.parametrize("steps", range(STEPS))
async def test_a_request_that_is_cancelled_closes_all_connections_that_the_server_has_ended(steps: int) -> None:
    answer = AnswersTogether()
    async with FakeServer(answer) as server, connected(server.url) as client:
        await asyncio.gather(*(client.call("pay") for _ in range(IDLE)))
        for reply in answer.replies:
            reply.half_close()
        await _ended(client)
        call = asyncio.create_task(client.call("pay"))
        for _ in range(steps):
            await asyncio.sleep(0)
        await cancelled(call)
        await client.connection.close()
        async with asyncio.timeout(PATIENCE_S):
            await server.all_closed()


async def _ended(client: Client) -> None:
    """Wait until the client has the end of its idle connections."""
    connections = client.connection._exchange._connections
    assert connections is not None
    sockets = [idle._socket for idle, _ in connections._idle]  # type: ignore[attr-defined]
    async with asyncio.timeout(PATIENCE_S):
        while any(socket.reusable() for socket in sockets):
            await asyncio.sleep(0)
