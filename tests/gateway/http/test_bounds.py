"""What one client may use of a server over HTTP, and how the server stops."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import httpx2
import pytest

from callgate import Engine, tool
from callgate.gateway import Gateway
from callgate.gateway._exchange import Exchange
from callgate.gateway._http import HttpApp, HttpLimits, HttpServer
from callgate.gateway._http.app import ServedGateway
from callgate.gateway.principals import Principal
from callgate.gateway.tokens import StaticTokens
from callgate.mcp._connection import Message
from tests.gateway.http.conftest import OTHER_TOKEN, TOKEN, EchoFront, EchoFronts
from tests.gateway.http.gateway_process import call
from tests.waiting import HANGS_S

ORIGIN = "https://app.example"
VERSION = "2026-07-28"
WAIT = {"jsonrpc": "2.0", "id": 1, "method": "wait"}
META = {"_meta": {"io.modelcontextprotocol/protocolVersion": VERSION}}
HEADERS = {"MCP-Protocol-Version": VERSION, "Mcp-Method": "wait"}
PING = {"jsonrpc": "2.0", "id": 1, "method": "echo", "params": {}}
INITIALIZE = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}}


@asynccontextmanager
async def serving(fronts: ServedGateway, **limits: Any) -> AsyncIterator[tuple[HttpServer, httpx2.AsyncClient]]:
    app = HttpApp(
        fronts,
        StaticTokens({TOKEN: Principal(name="alice", parallel=1, queued=1), OTHER_TOKEN: Principal(name="bob")}),
        origins=[ORIGIN],
        limits=HttpLimits(**limits),
    )
    headers = {"Authorization": f"Bearer {TOKEN}", "Accept": "application/json, text/event-stream"}
    async with HttpServer(app) as server, httpx2.AsyncClient(base_url=f"http://127.0.0.1:{server.port}", headers=headers) as client:
        yield server, client


def post_head(port: int, *more: str) -> bytes:
    lines = [
        "POST /mcp HTTP/1.1",
        f"Host: 127.0.0.1:{port}",
        f"Authorization: Bearer {TOKEN}",
        "Content-Type: application/json",
        "Accept: */*",
    ]
    return "\r\n".join([*lines, *more, "", ""]).encode()


async def answered(port: int, request: bytes) -> bytes:
    """Send bytes; return what arrives until the server closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        return await asyncio.wait_for(reader.read(), HANGS_S)
    except ConnectionError:
        return b""
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def opened(client: httpx2.AsyncClient, params: Mapping[str, Any] = {}) -> dict[str, str]:
    return {"Mcp-Session-Id": (await client.post("/mcp", json={**INITIALIZE, "params": params})).headers["mcp-session-id"]}


# Requests that arrive slowly, or are too large


async def test_a_head_that_does_not_arrive_in_time_ends_the_connection(fronts: EchoFronts) -> None:
    async with serving(fronts, head_timeout_s=0.1) as (server, _):
        for begun in (b"", b"POST /mcp HTTP/1.1\r\nHost:"):
            assert await answered(server.port, begun) == b""


async def test_a_body_that_does_not_arrive_in_time_is_408(fronts: EchoFronts) -> None:
    async with serving(fronts, body_timeout_s=0.1) as (server, _):
        begun = post_head(server.port, "Content-Length: 100") + b"{"
        assert (await answered(server.port, begun)).startswith(b"HTTP/1.1 408")


async def test_a_body_without_a_length_is_refused_when_it_becomes_too_large(fronts: EchoFronts) -> None:
    async with serving(fronts, body_bytes=1000) as (server, _):
        begun = post_head(server.port, "Transfer-Encoding: chunked") + b"400\r\n" + b" " * 0x400 + b"\r\n"
        assert (await answered(server.port, begun)).startswith(b"HTTP/1.1 413")


async def test_connections_beyond_the_limit_are_503_while_all_have_requests(fronts: EchoFronts) -> None:
    async with serving(fronts, connections=2) as (_, client):
        waiting = asyncio.create_task(client.post("/mcp", json={**WAIT, "params": META}, headers=HEADERS))
        await fronts.front.started.wait()
        assert (await client.get("/health")).status_code == 503
        fronts.front.cancelled.set()
        await waiting
        assert (await client.get("/health")).status_code == 200


async def test_connections_that_send_no_request_do_not_keep_others_out(fronts: EchoFronts) -> None:
    async with serving(fronts, connections=5, head_timeout_s=HANGS_S) as (server, client):
        silent = [asyncio.create_task(answered(server.port, begun)) for begun in (b"", b"GET /hea", b"", b"GET / HTTP/1.1\r\n") * 5]
        for _ in range(20):
            assert (await client.get("/health")).status_code == 200
        for one in silent:
            one.cancel()
        await asyncio.gather(*silent, return_exceptions=True)


async def test_one_principal_cannot_take_all_places_with_streams(fronts: EchoFronts) -> None:
    async with serving(fronts, requests_per_principal=3) as (_, client), AsyncExitStack() as streams:
        for _ in range(3):
            await streams.enter_async_context(client.stream("GET", "/mcp", headers=await opened(client)))
        refused = await client.post("/mcp", json=INITIALIZE)
        assert refused.status_code == 429
        assert "alice has 3 open requests, which is the limit" in refused.json()["error"]["message"]
        bob = {"Authorization": f"Bearer {OTHER_TOKEN}"}
        assert (await client.post("/mcp", json=INITIALIZE, headers=bob)).status_code == 200
        await streams.aclose()
        while (await client.post("/mcp", json=INITIALIZE)).status_code == 429:
            pass


# Streams and sessions


async def test_a_silent_stream_gets_comments(fronts: EchoFronts) -> None:
    async with serving(fronts, keep_alive_s=0.01) as (_, client), client.stream("GET", "/mcp", headers=await opened(client)) as stream:
        received = b""
        async for part in stream.aiter_bytes():
            received += part
            if received.count(b":\r\n\r\n") > 3:
                break


async def test_an_unused_session_expires_and_one_with_a_stream_does_not(fronts: EchoFronts) -> None:
    async with serving(fronts, session_idle_s=0.2) as (_, client):
        kept, unused = await opened(client), await opened(client)
        async with client.stream("GET", "/mcp", headers=kept):
            while "closed" not in fronts.seen:
                await asyncio.sleep(0.01)
            assert (await client.post("/mcp", json=PING, headers=unused)).status_code == 404
            assert (await client.post("/mcp", json=PING, headers=kept)).status_code == 200


@pytest.mark.parametrize("limit", ["sessions", "sessions_per_principal"])
async def test_a_client_that_never_ends_its_sessions_can_begin_new_ones(fronts: EchoFronts, limit: str) -> None:
    async with serving(fronts, **{limit: 2}, session_spare_s=1e-6) as (_, client):
        used = await opened(client)
        async with client.stream("GET", "/mcp", headers=used):
            unused = [await opened(client) for _ in range(5)]
            assert (await client.post("/mcp", json=PING, headers=unused[-1])).status_code == 200
            assert {(await client.post("/mcp", json=PING, headers=one)).status_code for one in unused[:-1]} == {404}
            assert (await client.post("/mcp", json=PING, headers=used)).status_code == 200


async def test_a_session_that_is_in_use_is_not_ended_for_a_new_one(fronts: EchoFronts) -> None:
    async with serving(fronts, sessions_per_principal=1) as (_, client):
        used = await opened(client)
        assert (await client.post("/mcp", json=INITIALIZE)).status_code == 429
        assert (await client.post("/mcp", json=PING, headers=used)).status_code == 200


async def test_a_session_answers_only_the_revision_it_negotiated(fronts: EchoFronts) -> None:
    async with serving(fronts) as (_, client):
        session = await opened(client)
        found = [
            (await client.post("/mcp", json=PING, headers={**session, "MCP-Protocol-Version": one})).status_code
            for one in ("2025-11-25", "2025-03-26", "1999-01-01")
        ]
        assert found == [200, 400, 400]


class SlowStart(EchoFronts):
    """Begins sessions only when `go` is set; fails if `broken`."""

    def __init__(self) -> None:
        super().__init__()
        self.go, self.broken = asyncio.Event(), False

    def handshake(self, principal: Principal, events: Exchange | None = None) -> EchoFront:
        owner = self

        class Front(EchoFront):
            async def request(self, message: Mapping[str, Any], exchange: Exchange) -> Message | None:
                await owner.go.wait()
                if owner.broken:
                    raise OSError
                return await super().request(message, exchange)

        return Front(self.seen)


async def test_sessions_that_begin_at_the_same_time_count() -> None:
    fronts = SlowStart()
    async with serving(fronts, sessions_per_principal=2) as (_, client):
        starts = [asyncio.create_task(client.post("/mcp", json=INITIALIZE)) for _ in range(5)]
        done: set[asyncio.Task[httpx2.Response]] = set()
        while len(done) < 3:
            done, _ = await asyncio.wait(starts, return_when=asyncio.FIRST_COMPLETED)
        fronts.go.set()
        assert sorted([(await one).status_code for one in starts]) == [200, 200, 429, 429, 429]


async def test_a_session_that_fails_to_begin_does_not_count() -> None:
    fronts = SlowStart()
    fronts.broken = True
    fronts.go.set()
    async with serving(fronts, sessions_per_principal=1) as (_, client):
        failed = await client.post("/mcp", json=INITIALIZE)
        assert (failed.status_code, failed.json()["error"]["code"]) == (500, -32603)
        fronts.broken = False
        assert (await client.post("/mcp", json=INITIALIZE)).status_code == 200


@pytest.mark.parametrize(("header", "status"), [("42", 200), ("42.0", 200), ("4.2e1", 200), ("43", 400), ("042x", 400), ("true", 400)])
async def test_a_number_in_a_header_is_compared_as_a_number(fronts: EchoFronts, header: str, status: int) -> None:
    meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}
    body = {**PING, "method": "tools/call", "params": {"name": "a", "arguments": {"count": 42}, "_meta": meta}}
    routing = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "a", "Mcp-Param-Count": header}
    async with serving(fronts) as (_, client):
        assert (await client.post("/mcp", json=body, headers=routing)).status_code == status


async def test_what_a_client_accepts_may_be_in_several_headers(fronts: EchoFronts) -> None:
    async with serving(fronts) as (_, client):
        accepts = [("Accept", "application/json"), ("Accept", "text/event-stream"), ("Authorization", f"Bearer {TOKEN}")]
        async with httpx2.AsyncClient(base_url=client.base_url) as plain:
            assert (await plain.post("/mcp", json=INITIALIZE, headers=accepts)).status_code == 200


async def test_a_page_of_an_allowed_origin_can_read_responses(fronts: EchoFronts) -> None:
    async with serving(fronts) as (_, client):
        asked = {"Origin": ORIGIN, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "mcp-param-region, x-other"}
        allowed = (await client.options("/mcp", headers=asked)).headers
        assert (allowed["access-control-allow-origin"], allowed["access-control-allow-headers"]) == (ORIGIN, "mcp-param-region")
        for path in ("/mcp", "/nothing"):
            answer = (await client.post(path, json=INITIALIZE, headers={"Origin": ORIGIN})).headers
            assert (answer["access-control-allow-origin"], answer["vary"]) == (ORIGIN, "origin")
            assert answer["access-control-expose-headers"] == "mcp-session-id, www-authenticate"
        assert "access-control-allow-origin" not in (await client.post("/mcp", json=INITIALIZE)).headers


# A real gateway


@tool(effect="none")
async def hang() -> str:
    """Never return."""
    await asyncio.Event().wait()
    return ""


@tool(effect="none")
async def nap() -> str:
    """Rest for longer than the token of `SoonExpired` lasts."""
    await asyncio.sleep(0.3)
    return "rested"


def stateless(method: str, **params: Any) -> dict[str, Any]:
    meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
    return {
        "json": {"jsonrpc": "2.0", "id": 7, "method": method, "params": {**params, "_meta": meta}},
        "headers": {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": method},
    }


async def test_a_subscription_ends_with_its_result_when_the_server_stops() -> None:
    async with Gateway(Engine([hang])) as gateway:
        stopping = asyncio.Event()

        async def listen(client: httpx2.AsyncClient) -> str:
            async with client.stream(
                "POST", "/mcp", **stateless("subscriptions/listen", notifications={"toolsListChanged": True})
            ) as stream:
                received = ""
                async for part in stream.aiter_text():
                    received += part
                    if "acknowledged" in received:
                        stopping.set()
                return received

        headers = {"Authorization": f"Bearer {TOKEN}", "Accept": "*/*"}
        async with httpx2.AsyncClient(headers=headers) as client:
            async with serving(gateway) as (server, _):
                client.base_url = httpx2.URL(f"http://127.0.0.1:{server.port}")
                listening = asyncio.create_task(listen(client))
                await stopping.wait()
            last = (await listening).strip().splitlines()[-1]
        response = json.loads(last.removeprefix("data: "))
        assert (response["id"], response["result"]["resultType"]) == (7, "complete")


class SoonExpired:
    """Knows one token, which expires a moment after each request."""

    async def principal_of(self, token: str) -> Principal | None:
        return Principal(name="alice", expires_at=time.time() + 0.1)


async def test_what_a_token_has_opened_ends_when_it_expires_and_a_running_call_does_not() -> None:
    async with Gateway(Engine([nap])) as gateway:
        app = HttpApp(gateway, SoonExpired())
        async with HttpServer(app) as server, httpx2.AsyncClient(base_url=f"http://127.0.0.1:{server.port}", timeout=HANGS_S) as client:
            client.headers["Accept"] = "application/json, text/event-stream"
            about = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}
            standing = await client.get("/mcp", headers=await opened(client, about))
            listening = await client.post("/mcp", **stateless("subscriptions/listen", notifications={"toolsListChanged": True}))
            assert standing.status_code == 200
            response = json.loads(listening.text.strip().splitlines()[-1].removeprefix("data: "))
            assert (response["id"], response["result"]["resultType"]) == (7, "complete")
            assert (await call(client, "nap", {}))["result"]["content"][0]["text"] == "rested"


async def test_a_call_that_never_ends_does_not_keep_the_server_from_stopping() -> None:
    started = asyncio.Event()

    @tool(effect="none", name="hang")
    async def hanging() -> str:
        """Never return."""
        started.set()
        await asyncio.Event().wait()
        return ""

    async with Gateway(Engine([hanging])) as gateway, httpx2.AsyncClient() as client:
        client.headers = httpx2.Headers({"Authorization": f"Bearer {TOKEN}", "Accept": "*/*"})
        async with serving(gateway, stop_timeout_s=0.1) as (server, _):
            client.base_url = httpx2.URL(f"http://127.0.0.1:{server.port}")
            calling = asyncio.create_task(call(client, "hang", {}, 9))
            await started.wait()
        response = await calling
        assert (response["id"], response["result"]["_meta"]["callgate/outcome"]["code"]) == (9, "request_ended")


async def test_a_request_that_its_client_cancels_is_202_without_a_body() -> None:
    started = asyncio.Event()

    @tool(effect="none", name="hang")
    async def hanging() -> str:
        """Never return."""
        started.set()
        await asyncio.Event().wait()
        return ""

    async with Gateway(Engine([hanging])) as gateway, serving(gateway) as (_, client):
        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}
        begun = await client.post("/mcp", json={**INITIALIZE, "params": params})
        session = {"Mcp-Session-Id": begun.headers["mcp-session-id"]}
        body = {"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": {"name": "hang", "arguments": {}}}
        calling = asyncio.create_task(client.post("/mcp", json=body, headers=session))
        await started.wait()
        cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 5}}
        assert (await client.post("/mcp", json=cancel, headers=session)).status_code == 202
        answer = await calling
        assert (answer.status_code, answer.content) == (202, b"")


async def test_what_clients_send_does_not_fill_the_log_of_the_operator(fronts: EchoFronts, caplog: pytest.LogCaptureFixture) -> None:
    async with serving(fronts) as (server, _):
        assert (await answered(server.port, b"no request\r\n\r\n")).startswith(b"HTTP/1.1 400")
        upgrade = f"GET /mcp HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nConnection: Upgrade, close\r\nUpgrade: websocket\r\n\r\n"
        assert (await answered(server.port, upgrade.encode())).startswith(b"HTTP/1.1 401")
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
