"""What a caller is told when a server refuses a request over HTTP: who must act, and no secrets."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from callgate.errors import UsageError
from callgate.mcp import NotSent, ProtocolError, mcp
from tests.mcp.http.clients import connected, handshaken
from tests.mcp.http.fake_server import FakeServer, Reply, Sent, result_of
from tests.mcp.http.test_failures import answer, failure_of, failure_with

KEY = "Bearer s3cr3t-t0k3n"


def refusing(status: int, body: object = None, **headers: str) -> Any:
    async def refuse(sent: Sent, reply: Reply) -> None:
        if body is None:
            await reply.send(status, "text/plain", b"no s3cr3t-t0k3n", **headers)
        else:
            await reply.json(body, status, **headers)

    return refuse


@pytest.mark.parametrize(
    ("status", "says"),
    [
        (
            401,
            "answered 401 Unauthorized at {url}. It wants credentials. Give them in `headers` of the server, such as",
        ),
        (403, "answered 403 Forbidden at {url}. It wants credentials."),
        (404, "answered 404 Not Found at {url}. It does not speak MCP there. Check the path of the address"),
        (405, "answered 405 Method Not Allowed at {url}. It does not speak MCP there."),
        (413, "answered 413"),
        (429, "answered 429 Too Many Requests at {url}. It is asked too often. Ask again after 7 s."),
    ],
)
async def test_a_refused_request_was_not_acted_on(status: int, says: str) -> None:
    async with FakeServer(refusing(status, retry_after="7")) as server:
        error = await failure_of(server.url)
    assert isinstance(error, NotSent)
    assert says.format(url=server.url) in str(error)
    assert error.details == {"http_status": status}


async def test_a_server_that_logs_users_in_with_oauth_is_said_to() -> None:
    error = await failure_with(refusing(401, www_authenticate='Bearer resource_metadata="http://127.0.0.1/meta"'))
    assert "It logs its users in with OAuth: use it in a program, with `auth`, or give a token of yours in `headers`" in str(error)


@pytest.mark.parametrize("status", [408, 500, 503])
async def test_a_status_that_may_come_after_the_request_was_passed_on_leaves_the_outcome_open(status: int) -> None:
    assert isinstance(await failure_with(refusing(status)), ProtocolError)


@pytest.mark.parametrize("status", [401, 403])
async def test_credentials_that_are_not_accepted_are_named_by_their_header(status: int) -> None:
    error = await failure_with(refusing(status), headers={"Authorization": KEY, "X-Tenant": "acme-corp"})
    assert "the headers that it is sent: 'Authorization', 'X-Tenant'. Correct their values in `headers` of the server" in str(error)
    assert "s3cr3t" not in str(error)
    assert "acme-corp" not in str(error)


@pytest.mark.parametrize("status", [400, 404, 500])
async def test_a_json_rpc_error_is_the_answer_at_any_status(status: int) -> None:
    async def refuse(sent: Sent, reply: Reply) -> None:
        await reply.json({"jsonrpc": "2.0", "id": sent.message["id"], "error": {"code": -32601, "message": "no such method"}}, status)

    async with FakeServer(refuse) as server, connected(server.url) as client:
        assert await client.call("pay") == {"code": -32601, "message": "no such method"}


async def test_a_result_with_the_status_of_a_refusal_leaves_open_whether_the_server_has_acted() -> None:
    async def work(sent: Sent, reply: Reply) -> None:
        await reply.json({"jsonrpc": "2.0", "id": sent.message["id"], "result": {"content": []}}, 400)

    assert isinstance(await failure_with(work), ProtocolError)


async def test_an_error_about_the_headers_is_the_answer_without_an_id() -> None:
    error = {"code": -32020, "message": "Mcp-Name does not match"}
    async with FakeServer(refusing(400, {"jsonrpc": "2.0", "id": None, "error": error})) as server, connected(server.url) as client:
        assert await client.call("pay") == error


async def test_an_error_for_no_request_is_a_refusal_with_the_servers_reason() -> None:
    body = {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": f"{KEY} is too old"}}
    error = await failure_with(refusing(400, body), headers={"Authorization": KEY})
    assert isinstance(error, NotSent)
    assert "answered 400 Bad Request" in str(error)
    assert "and says '*** is too old'. It did nothing." in str(error)


async def test_a_redirect_on_the_same_origin_is_followed() -> None:
    async def redirect(sent: Sent, reply: Reply) -> None:
        if sent.path == "/mcp":
            await reply.send(307, "text/plain", location="/mcp/")
        else:
            await answer(sent, reply)

    async with FakeServer(redirect) as server, connected(server.url, headers={"Authorization": KEY}) as client:
        assert await client.call("pay") == "done"
    assert [(sent.method, sent.path, sent.headers["authorization"]) for sent in server.sent] == [
        ("POST", "/mcp", KEY),
        ("POST", "/mcp/", KEY),
    ]
    assert server.sent[0].body == server.sent[1].body


async def test_a_redirect_to_another_origin_is_not_followed() -> None:
    async with FakeServer(answer) as other:
        error = await failure_with(refusing(307, location=f"{other.url}?token=s3cr3t"), headers={"Authorization": KEY})
    assert isinstance(error, NotSent)
    assert f"redirects to {other.url}. That is another origin" in str(error)
    assert "s3cr3t" not in str(error)
    assert other.sent == []


@pytest.mark.parametrize(
    "location", ["http://[::1", "http://127.0.0.1:99999/", "https://user:s3cr3t@127.0.0.1/mcp", "//other.example/", "ftp:x"]
)
async def test_an_address_that_is_not_of_the_origin_is_not_followed(location: str) -> None:
    error = await failure_with(refusing(308, location=location))
    assert isinstance(error, NotSent)
    assert "s3cr3t" not in str(error)


async def test_a_redirect_that_would_lose_the_request_is_not_followed() -> None:
    error = await failure_with(refusing(301, location="/new"))
    assert isinstance(error, NotSent)
    assert "/new. If that is right, give it as the url." in str(error)


async def test_a_redirect_to_itself_ends() -> None:
    async with FakeServer(refusing(308, location="/mcp")) as server:
        error = await failure_of(server.url)
    assert isinstance(error, NotSent)
    assert len(server.sent) == 3


async def test_the_old_transport_is_named() -> None:
    async def old(sent: Sent, reply: Reply) -> None:
        if sent.method == "GET":
            await reply.stream(b"event: endpoint\ndata: /messages?session_id=1\n\n")
        else:
            await reply.send(405, "text/plain")

    async with FakeServer(old) as server:
        with pytest.raises(NotSent, match=r"has the transport of revision 2024-11-05 \(HTTP\+SSE\), which callgate does not speak"):
            async with handshaken(server.url):
                pass


async def test_no_error_and_no_log_shows_a_secret(caplog: pytest.LogCaptureFixture) -> None:
    """At the level DEBUG of all libraries, for an address with a user and a key."""
    caplog.set_level(logging.DEBUG)

    async def with_secrets(sent: Sent, reply: Reply) -> None:
        await reply.send(401, "text/plain", b"no s3cr3t", x_echo=sent.headers["x-key"])

    async with FakeServer(with_secrets) as server:
        url = server.url.replace("127", "user:s3cr3t-pass@127") + "?key=s3cr3t-query"
        error = await failure_of(url, headers={"X-Key": "s3cr3t-value"})
        async with FakeServer(answer) as other:
            server.answer = refusing(302, location=f"{other.url}?key=s3cr3t-query")
            redirected = await failure_of(url, headers={"X-Key": "s3cr3t-value"})
    server.sent[0].headers["authorization"].index("Basic ")
    shown = [str(error), repr(error), str(redirected), *(record.getMessage() for record in caplog.records if "callgate" in record.name)]
    shown += [record.getMessage() for record in caplog.records if record.levelno >= logging.INFO]
    assert not [text for text in shown if "s3cr3t" in text]


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": "s3cr3t\n"},
        {"Authorization": "s3cr3t "},
        {"Authorization": "s3cr3té"},
        {"A b": "s3cr3t"},
        {"Content-Length": "s3cr3t"},
        {"transfer-encoding": "s3cr3t"},
    ],
)
def test_a_header_that_http_does_not_allow_is_refused_without_its_value(headers: dict[str, str]) -> None:
    with pytest.raises(UsageError) as caught:
        mcp("http://127.0.0.1/mcp", headers=headers)
    assert "s3cr3t" not in str(caught.value)


async def test_a_proxy_from_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async with FakeServer(answer) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url.removesuffix("/mcp"))
        async with connected("http://mcp.example/mcp") as client:
            assert await client.call("pay") == "done"
    assert proxy.sent[0].path == "http://mcp.example/mcp"


@pytest.mark.parametrize(("name", "url"), [("HTTP_PROXY", "http://mcp.example/mcp"), ("HTTPS_PROXY", "https://mcp.example/mcp")])
async def test_a_proxy_that_cannot_be_reached_is_not_taken_for_the_server(
    monkeypatch: pytest.MonkeyPatch, unused_tcp_port: int, name: str, url: str
) -> None:
    monkeypatch.setenv(name, f"http://user:s3cr3t@127.0.0.1:{unused_tcp_port}")
    with pytest.raises(NotSent, match="through the proxy that HTTP_PROXY, HTTPS_PROXY or ALL_PROXY names") as caught:
        async with connected(url) as client:
            await client.call("pay")
    assert "Check the proxy, the address, and whether the server runs." in str(caught.value)
    assert "s3cr3t" not in str(caught.value)


async def test_a_proxy_that_wants_credentials_is_not_taken_for_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(sent: Sent, reply: Reply) -> None:
        await reply.send(407, "text/plain")

    async with FakeServer(refuse) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url.removesuffix("/mcp"))
        with pytest.raises(NotSent, match=r"407 .* A proxy wants credentials: give them in its address, as in HTTP_PROXY="):
            async with connected("http://mcp.example/mcp") as client:
                await client.call("pay")


async def test_a_proxy_that_cannot_be_used_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "nonsense://127.0.0.1")
    with pytest.raises(NotSent, match=r"HTTP_PROXY='nonsense://127.0.0.1'"):
        async with connected("http://mcp.example/mcp"):
            pass


async def test_arguments_and_results_are_passed_on_unchanged() -> None:
    result = {"content": [{"type": "text", "text": "done", "x": [1.0, 10**30, None]}], "_meta": {"a/b": "ü😀"}}

    async def echo(sent: Sent, reply: Reply) -> None:
        await reply.json({**result_of(sent, **result), "vendor": True})

    async with FakeServer(echo) as server, connected(server.url) as client:
        found = await client.ask("tools/call", {"name": "t", "arguments": {"ü": [1.0, "😀"]}})
    assert json.dumps(found["result"]) == json.dumps(result)
    assert found["vendor"] is True
    assert server.sent[0].message["params"]["arguments"] == {"ü": [1.0, "😀"]}
