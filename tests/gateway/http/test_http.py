"""Both eras over streamable HTTP."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from callgate.gateway import Principal
from callgate.gateway._exchange import Exchange
from callgate.gateway._http import HttpApp, HttpServer
from callgate.gateway._http.sessions import StandingStreams
from callgate.gateway.tokens import StaticTokens
from tests.gateway.http.conftest import OTHER_TOKEN, TOKEN, EchoFronts
from tests.gateway.refused_lines import REFUSED
from tests.waiting import HANGS_S, PATIENCE_S, soon

VERSION = "2026-07-28"


def request(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


def stateless(method: str, **params: Any) -> dict[str, Any]:
    return request(method, _meta={"io.modelcontextprotocol/protocolVersion": VERSION}, **params)


def routed(method: str, **more: str) -> dict[str, str]:
    return {"MCP-Protocol-Version": VERSION, "Mcp-Method": method, **more}


async def opened(client: httpx2.AsyncClient) -> dict[str, str]:
    return {"Mcp-Session-Id": (await client.post("/mcp", json=request("initialize"))).headers["mcp-session-id"]}


async def test_a_stateless_request_is_answered_with_json(client: httpx2.AsyncClient) -> None:
    answer = await client.post("/mcp", json=stateless("echo", n=2**70), headers=routed("echo"))
    assert (answer.status_code, answer.json()["result"]["params"]["n"]) == (200, 2**70)


@pytest.mark.parametrize(
    "headers",
    [
        {"MCP-Protocol-Version": VERSION},
        routed("other", **{"Mcp-Name": "echo", "Mcp-Param-Region": "eu"}),
        routed("tools/call", **{"Mcp-Param-Region": "eu"}),
        routed("tools/call", **{"Mcp-Name": "=?base64?!?=", "Mcp-Param-Region": "eu"}),
        routed("tools/call", **{"Mcp-Name": "echo", "Mcp-Param-Region": "us"}),
        routed("tools/call", **{"Mcp-Name": "echo"}),
    ],
)
async def test_routing_headers_that_differ_from_the_body_are_refused(client: httpx2.AsyncClient, headers: dict[str, str]) -> None:
    answer = await client.post("/mcp", json=stateless("tools/call", name="echo", arguments={"region": "eu"}), headers=headers)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, -32020)


async def test_routing_headers_may_be_base64(client: httpx2.AsyncClient) -> None:
    headers = routed("tools/call", **{"Mcp-Name": "=?base64?ZWNobw==?=", "Mcp-Param-Region": "eu"})
    body = stateless("tools/call", name="echo", arguments={"region": "eu"})
    assert (await client.post("/mcp", json=body, headers=headers)).status_code == 200


@pytest.mark.parametrize("name", REFUSED)
async def test_a_refused_body_is_answered_under_its_id(client: httpx2.AsyncClient, name: str) -> None:
    body, number, code = REFUSED[name]
    answer = await client.post("/mcp", content=body, headers={"content-type": "application/json"})
    assert (answer.status_code, answer.json()["id"], answer.json()["error"]["code"]) == (400, number, code)


async def test_the_refusal_of_a_batch_names_the_one_revision_that_has_batches(client: httpx2.AsyncClient) -> None:
    answer = await client.post("/mcp", json=[request("echo")])
    assert "a batch of JSON-RPC, which only revision 2025-03-26 of MCP has" in answer.json()["error"]["message"]


async def test_an_unknown_stateless_method_is_404(client: httpx2.AsyncClient) -> None:
    answer = await client.post("/mcp", json=stateless("nothing"), headers=routed("nothing"))
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, -32601)


async def test_an_unsupported_version_is_refused_with_the_supported_ones_of_both_eras(client: httpx2.AsyncClient) -> None:
    answer = await client.post("/mcp", json=request("echo"), headers={"MCP-Protocol-Version": "1999-01-01"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, -32022)
    supported = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"]
    assert answer.json()["error"]["data"] == {"supported": supported, "requested": "1999-01-01"}


async def test_a_message_before_the_response_makes_an_event_stream(client: httpx2.AsyncClient) -> None:
    answer = await client.post("/mcp", json=stateless("talk"), headers=routed("talk"))
    assert answer.headers["content-type"] == "text/event-stream"
    assert answer.headers["x-accel-buffering"] == "no"
    assert answer.text.index("notifications/message") < answer.text.index('"result"')


async def test_a_client_that_leaves_cancels_its_stateless_request(client: httpx2.AsyncClient, fronts: EchoFronts) -> None:
    leaving = asyncio.create_task(client.post("/mcp", json=stateless("wait"), headers=routed("wait")))
    await fronts.front.started.wait()
    leaving.cancel()
    await asyncio.wait_for(fronts.front.cancelled.wait(), 10)


async def test_a_handshake_session_answers_and_ends(client: httpx2.AsyncClient, fronts: EchoFronts) -> None:
    session = await opened(client)
    assert (await client.post("/mcp", json=request("echo", a=1), headers=session)).json()["result"] == {"params": {"a": 1}}
    noted = await client.post("/mcp", json={"jsonrpc": "2.0", "method": "notifications/initialized"}, headers=session)
    assert (noted.status_code, fronts.seen) == (202, ["notifications/initialized"])
    assert (await client.delete("/mcp", headers=session)).status_code == 200
    assert (await client.post("/mcp", json=request("echo"), headers=session)).status_code == 404


async def test_a_session_belongs_to_its_principal(client: httpx2.AsyncClient) -> None:
    headers = {**await opened(client), "Authorization": f"Bearer {OTHER_TOKEN}"}
    assert (await client.post("/mcp", json=request("echo"), headers=headers)).status_code == 404


async def test_a_request_without_a_session_is_refused(client: httpx2.AsyncClient) -> None:
    assert (await client.post("/mcp", json=request("echo"))).status_code == 400
    assert (await client.get("/mcp")).status_code == 405


async def test_a_principal_has_a_bounded_number_of_sessions(client: httpx2.AsyncClient) -> None:
    await opened(client)
    await opened(client)
    assert (await client.post("/mcp", json=request("initialize"))).status_code == 429


def told(number: int) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": "notifications/message", "params": {"number": number}}


async def number_in(chunks: AsyncIterator[str]) -> int:
    """Return the number in the next message of a standing stream."""
    data = ""
    while '"number":' not in data:
        data += await asyncio.wait_for(anext(chunks), PATIENCE_S)
    (found,) = (json.loads(line[6:])["params"]["number"] for line in data.splitlines() if line.startswith("data: "))
    return int(found)


async def until_one_is_left(events: Exchange) -> None:
    """Wait until the server has seen the end of the other standing streams."""
    assert isinstance(events, StandingStreams)
    assert await soon(lambda: len(events) == 1)


async def test_a_session_may_have_several_standing_streams_and_each_message_is_sent_on_the_newest_that_is_open(
    client: httpx2.AsyncClient, fronts: EchoFronts
) -> None:
    session = await opened(client)
    (events,) = fronts.events
    async with client.stream("GET", "/mcp", headers=session) as first:
        in_first = first.aiter_text()
        await anext(in_first)
        async with client.stream("GET", "/mcp", headers=session) as second:
            assert second.status_code == 200
            in_second = second.aiter_text()
            await anext(in_second)
            assert events.send(told(1))
            assert await number_in(in_second) == 1
        await until_one_is_left(events)
        assert events.send(told(2))
        assert await number_in(in_first) == 2
        await client.delete("/mcp", headers=session)
        assert not events.send(told(3))


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 421),
        ({"Host": "127.0.0.1"}, 421),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Authorization": "Bearer wrong"}, 401),
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Encoding": "gzip"}, 415),
        ({"Accept": "text/html"}, 406),
    ],
)
async def test_a_request_that_is_not_let_in(client: httpx2.AsyncClient, headers: dict[str, str], status: int) -> None:
    answer = await client.post("/mcp", json=request("initialize"), headers=headers)
    assert (answer.status_code, answer.json()["id"]) == (status, None)


@pytest.fixture
async def named_server(fronts: EchoFronts) -> AsyncIterator[HttpServer]:
    app = HttpApp(
        fronts,
        StaticTokens({TOKEN: Principal(name="alice")}),
        hosts=["gate.example", "other.example:443", "third.example:9000", "[2001:db8::1]"],
    )
    async with HttpServer(app) as running:
        yield running


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("gate.example", 200),
        ("GATE.example:443", 200),
        ("gate.example:80", 200),
        ("gate.example:8080", 421),
        ("other.example", 200),
        ("other.example:443", 200),
        ("other.example:80", 421),
        ("third.example:9000", 200),
        ("third.example", 421),
        ("third.example:443", 421),
        ("[2001:db8::1]", 200),
        ("[2001:db8::1]:443", 200),
        ("evil.example:443", 421),
    ],
)
async def test_a_host_is_the_same_with_the_default_port_and_without_it(named_server: HttpServer, host: str, status: int) -> None:
    async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{named_server.port}") as client:
        assert (await client.get("/health", headers={"Host": host})).status_code == status


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("https://gate.example", 200),
        ("http://gate.example", 200),
        ("https://other.example", 200),
        ("http://other.example", 403),
        ("http://gate.example:443", 403),
        ("https://gate.example:80", 403),
        ("https://third.example", 403),
        ("https://third.example:9000", 200),
    ],
)
async def test_a_page_of_an_allowed_host_may_use_the_gateway(named_server: HttpServer, origin: str, status: int) -> None:
    async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{named_server.port}") as client:
        assert (await client.get("/health", headers={"Host": "gate.example", "Origin": origin})).status_code == status


@pytest.mark.parametrize(
    ("target", "host", "status"),
    [
        ("http://gate.example/health", "gate.example", b"200"),
        ("HTTPS://gate.example:443/%68ealth?a=b", "gate.example", b"200"),
        ("http://gate.example/health", "evil.example", b"200"),  # a server must ignore the header then
        ("http://evil.example/health", "gate.example", b"421"),
        ("http://evil@gate.example/health", "gate.example", b"421"),
        ("http://gate.example", "gate.example", b"404"),
        ("http://gate.example?/health", "gate.example", b"404"),
        ("ftp://gate.example/health", "gate.example", b"404"),
        ("gate.example:443", "gate.example", b"404"),
    ],
)
async def test_a_whole_url_as_target_is_served_if_its_host_is_allowed(
    named_server: HttpServer, target: str, host: str, status: bytes
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", named_server.port)
    writer.write(f"GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
    assert (await asyncio.wait_for(reader.read(), HANGS_S)).split(b" ")[1] == status
    writer.close()


async def test_a_body_that_is_too_large_is_refused_before_it_is_read(server: HttpServer) -> None:
    head = f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: 4194305\r\n\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(head.encode())
    assert (await reader.readline()).startswith(b"HTTP/1.1 413")
    writer.close()


async def test_health_needs_no_token_and_metrics_do(client: httpx2.AsyncClient) -> None:
    assert (await client.get("/health", headers={"Authorization": ""})).json() == {"status": "ok"}
    assert (await client.get("/metrics", headers={"Authorization": ""})).status_code == 401
    assert (await client.get("/metrics")).text == "calls 1\n"
    assert (await client.get("/other")).status_code == 404


async def test_metrics_are_for_the_principals_that_may_read_them(fronts: EchoFronts) -> None:
    tokens = StaticTokens({TOKEN: Principal(name="alice"), OTHER_TOKEN: Principal(name="prometheus-1")})
    app = HttpApp(fronts, tokens, metrics_readers=("prometheus*",))
    async with HttpServer(app) as server, httpx2.AsyncClient(base_url=f"http://127.0.0.1:{server.port}") as client:
        refused = await client.get("/metrics", headers={"Authorization": f"Bearer {TOKEN}"})
        assert (refused.status_code, refused.json()["error"]["message"].partition(".")[0]) == (403, "alice may not read the metrics")
        assert (await client.get("/metrics", headers={"Authorization": f"Bearer {OTHER_TOKEN}"})).text == "calls 1\n"
