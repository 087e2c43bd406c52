"""Sessions over HTTP, as revisions up to 2025-11-25 have them: their ids, their end, and their renewal."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from callgate.mcp import ConnectionLost, NotSent
from tests.mcp.http.clients import handshaken
from tests.mcp.http.fake_server import FakeServer, Reply, Sent, result_of
from tests.mcp.http.session_server import TEXT, SessionServer, hold
from tests.waiting import until


async def test_every_request_of_a_session_names_it_and_its_revision() -> None:
    async with SessionServer() as server:
        async with handshaken(server.url) as client:
            assert await client.call("pay") == "done"
            await until(lambda: server.sent("GET"))
        await until(lambda: server.sent("DELETE"))
    first, *others = server.http.sent
    assert "mcp-protocol-version" not in first.headers
    assert "mcp-session-id" not in first.headers
    named = {(sent.headers["mcp-session-id"], sent.headers["mcp-protocol-version"]) for sent in others}
    assert named == {("session-1", "2025-11-25")}
    assert {"notifications/initialized", "GET", "tools/call", "DELETE"} <= set(server.http.methods)


async def test_a_server_without_sessions_is_used_without_one() -> None:
    async def answer(sent: Sent, reply: Reply) -> None:
        if sent.method != "POST" or "id" not in sent.message:
            await reply.send(405 if sent.method == "GET" else 202, "text/plain")
        else:
            await reply.json(result_of(sent, protocolVersion="2025-11-25", capabilities={}, content=[TEXT]))

    async with FakeServer(answer) as server, handshaken(server.url) as client:
        assert await client.call("pay") == "done"
    assert "DELETE" not in server.methods
    assert not any("mcp-session-id" in sent.headers for sent in server.sent)


@pytest.mark.parametrize("repeats_id", [False, True])
@pytest.mark.parametrize(
    ("status", "reason"), [(404, "Session not found"), (404, "Unknown"), (400, "Bad Request: No valid session ID provided")]
)
async def test_a_session_that_the_server_forgot_is_opened_again_and_the_call_sent_again(status: int, reason: str, repeats_id: bool) -> None:
    async with SessionServer() as server, handshaken(server.url) as client:
        server.forget_status, server.forget_reason, server.repeats_id = status, reason, repeats_id
        server.forget()
        assert await client.call("pay") == "done"
        assert server.opened == 2
        assert [sent.headers["mcp-session-id"] for sent in server.sent("tools/call")] == ["session-1", "session-2"]
        assert [message["method"] for message in client.messages] == ["notifications/tools/list_changed"]
        assert not client.connection.lost.done()


async def test_calls_of_one_forgotten_session_open_one_new_session() -> None:
    async with SessionServer() as server, handshaken(server.url) as client:
        server.forget()
        assert await asyncio.gather(*(client.call("pay") for _ in range(16))) == ["done"] * 16
        assert server.opened == 2


async def test_a_call_waits_until_a_new_session_is_confirmed() -> None:
    async with SessionServer() as server, handshaken(server.url) as client:
        server.forget()
        server.confirm.clear()
        first = asyncio.create_task(client.call("pay"))
        await until(lambda: len(server.sent("notifications/initialized")) == 2)
        second = asyncio.create_task(client.call("pay"))
        await asyncio.sleep(0.05)  # nothing signals that a call is not sent
        server.confirm.set()
        assert [await first, await second] == ["done", "done"]


async def test_a_server_that_forgets_every_session_ends_the_call_as_not_sent() -> None:
    async with SessionServer() as server, handshaken(server.url) as client:
        opens = server._answer

        async def forgets(sent: Sent, reply: Reply) -> None:
            await opens(sent, reply)
            server.forget()

        server.http.answer = forgets
        server.forget()
        with pytest.raises(NotSent):
            await client.call("pay")
        assert server.opened == 2


async def test_a_server_that_opens_no_new_session_ends_the_call_as_not_sent() -> None:
    async with SessionServer() as server, handshaken(server.url) as client:

        async def gone(sent: Sent, reply: Reply) -> None:
            await reply.send(404, "text/plain")

        server.http.answer = gone
        with pytest.raises(NotSent, match="has ended the session, and opens no new one"):
            await client.call("pay")


async def test_a_new_session_of_another_revision_loses_the_connection() -> None:
    async with SessionServer() as server, handshaken(server.url) as client:
        server.forget()
        server.revision = "2025-03-26"
        with pytest.raises(NotSent):
            await client.call("pay")
        assert "does not use revision 2025-11-25" in client.connection.lost.result()


async def test_a_refusal_that_is_not_about_the_session_opens_none() -> None:
    async def refuse(sent: Sent, reply: Reply) -> None:
        await reply.json({"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "Bad Request"}}, 400)

    async with SessionServer(refuse) as server, handshaken(server.url) as client:
        with pytest.raises(NotSent):
            await client.call("pay")
        assert server.opened == 1


async def test_an_answer_with_the_status_404_is_no_end_of_the_session() -> None:
    async def unknown(sent: Sent, reply: Reply) -> None:
        await reply.json({"jsonrpc": "2.0", "id": sent.message["id"], "error": {"code": -32601, "message": "?"}}, 404)

    async with SessionServer(unknown) as server, handshaken(server.url) as client:
        assert await client.call("pay") == {"code": -32601, "message": "?"}
        assert server.opened == 1


async def test_a_cancelled_call_is_cancelled_on_the_server() -> None:
    async with SessionServer(hold) as server, handshaken(server.url) as client:
        call = asyncio.create_task(client.call("pay"))
        await until(lambda: server.sent("tools/call"))
        call.cancel()
        await asyncio.wait([call])
        assert call.cancelled()
        await until(lambda: server.sent("notifications/cancelled"))
        told = server.sent("notifications/cancelled")[0].message["params"]
        assert told["requestId"] == server.sent("tools/call")[0].message["id"]


async def test_a_notification_that_the_server_refuses_is_no_error() -> None:
    async with SessionServer() as server, handshaken(server.url) as client:
        server.http.answer = hang_up
        await client.connection.notify({"jsonrpc": "2.0", "method": "notifications/roots/list_changed"})


async def hang_up(sent: Sent, reply: Reply) -> None:
    reply.drop()


async def test_messages_of_the_server_arrive_over_its_own_stream() -> None:
    async def two(sent: Sent, reply: Reply) -> None:
        await reply.stream()
        await reply.event({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
        await reply.event({"jsonrpc": "2.0", "id": 1, "result": {}})
        await reply.raw(b"data: no message\n\n")
        await reply.event({"jsonrpc": "2.0", "id": "s1", "method": "ping"})
        await asyncio.Event().wait()

    async with SessionServer(get=two) as server, handshaken(server.url) as client:
        await until(lambda: len(client.messages) == 2)
        assert [message["method"] for message in client.messages] == ["notifications/tools/list_changed", "ping"]
        assert len(client.noise) == 2


async def test_the_stream_of_a_session_is_continued_after_its_last_event() -> None:
    async def one(sent: Sent, reply: Reply) -> None:
        number = int(sent.headers.get("last-event-id", "0")) + 1
        await reply.stream(b"retry: 1\n")
        await reply.event({"jsonrpc": "2.0", "method": f"notifications/{number}"}, event_id=str(number))
        await reply.raw(b"id: 77\ndata: cut")
        reply.end()

    async with SessionServer(get=one) as server, handshaken(server.url) as client:
        await until(lambda: len(client.messages) >= 3)
        assert [message["method"] for message in client.messages[:3]] == ["notifications/1", "notifications/2", "notifications/3"]


async def test_a_session_that_ends_while_nobody_calls_is_opened_again() -> None:
    async def short(sent: Sent, reply: Reply) -> None:
        await reply.stream(b"retry: 1\n\n")
        if server.opened > 1:
            await asyncio.Event().wait()
        server.forget()
        reply.end()

    async with SessionServer(get=short) as server, handshaken(server.url) as client:
        await until(lambda: client.messages)
        assert server.opened == 2
        assert await client.call("pay") == "done"


class Continued:
    """Ends the stream of a call, and continues it by GET.

    Args:
        ends: How often the stream ends before its answer.
        ids: Whether its events have ids.
    """

    def __init__(self, ends: int, *, ids: bool = True) -> None:
        self._left = ends
        self._ids = ids
        self._call: Any = None
        self.gets: list[str] = []

    async def call(self, sent: Sent, reply: Reply) -> None:
        self._call = sent
        await reply.stream(b"retry: 1\n")
        await reply.event(None, event_id="e0" if self._ids else "")
        await self._progress(reply)

    async def get(self, sent: Sent, reply: Reply) -> None:
        if "last-event-id" not in sent.headers:
            await reply.send(405, "text/plain")
            return
        self.gets.append(sent.headers["last-event-id"])
        await reply.stream()
        await self._progress(reply)

    async def _progress(self, reply: Reply) -> None:
        if not self._left:
            await reply.event(result_of(self._call, content=[TEXT]), event_id="last")
            return
        self._left -= 1
        await reply.event({"jsonrpc": "2.0", "method": f"notifications/{self._left}"}, event_id=f"e{self._left}" if self._ids else "")
        reply.drop() if self._left % 2 else reply.end()


async def test_a_stream_with_event_ids_is_continued_until_the_answer() -> None:
    seen: list[Any] = []
    told = Continued(3)
    async with SessionServer(told.call, told.get) as server, handshaken(server.url) as client:
        assert await client.call("pay", {}, seen.append) == "done"
        assert told.gets == ["e2", "e1", "e0"]
        assert [message["method"] for message in seen] == ["notifications/2", "notifications/1", "notifications/0"]
        assert len(server.sent("tools/call")) == 1


async def test_a_stream_without_event_ids_is_lost() -> None:
    told = Continued(1, ids=False)
    async with SessionServer(told.call, told.get) as server, handshaken(server.url) as client:
        await until(lambda: server.sent("GET"))
        with pytest.raises(ConnectionLost):
            await client.call("pay")
    assert len(server.sent("GET")) == 1


@pytest.mark.parametrize("status", [404, 405, 401])
async def test_a_stream_that_the_server_does_not_continue_is_lost(status: int) -> None:
    """Never as not sent: the call was sent."""
    told = Continued(1)

    async def refuse(sent: Sent, reply: Reply) -> None:
        await reply.send(status, "text/plain")

    async with SessionServer(told.call, refuse) as server, handshaken(server.url) as client:
        with pytest.raises(ConnectionLost, match="does not continue it"):
            await client.call("pay")
        assert len(server.sent("tools/call")) == 1
