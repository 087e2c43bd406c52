"""Servers that use their metadata, challenges and redirects to make the client ask, send or open what it must not."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Self

import pytest

from callgate import Engine
from callgate.mcp import McpServer, OAuth
from callgate.mcp._oauth_addresses import AllowedAddresses, Untrusted, checked_address
from callgate.mcp._oauth_http import AuthorizationRefused, OAuthHttp
from callgate.mcp._oauth_metadata import authorization_server, challenge_of
from tests.app_thread import AppThread
from tests.engine_calls import call, said

REDIRECT = "http://127.0.0.1:8400/callback"
Answer = tuple[int, Mapping[str, str], bytes]


class HostileServer:
    """Answers every request with what a function returns for its path, and notes the requests."""

    def __init__(self, answer: Callable[[HostileServer, str], Answer]) -> None:
        self.requests: list[tuple[str, str, str]] = []
        """Method, path and `Authorization` of each request."""
        self._answer = answer
        self._thread = AppThread(self._app)
        self.origin = f"http://127.0.0.1:{self._thread.port}"
        self.url = f"{self.origin}/mcp"

    def __enter__(self) -> Self:
        self._thread.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.__exit__()

    def metadata(self, path: str, **changed: Any) -> Answer | None:
        """Return the valid answers to a client's questions about authorization, with some values changed."""
        server = {
            "issuer": self.origin,
            "authorization_endpoint": f"{self.origin}/authorize",
            "token_endpoint": f"{self.origin}/token",
            "registration_endpoint": f"{self.origin}/register",
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["none"],
        }
        known = {
            "/.well-known/oauth-protected-resource/mcp": {"resource": self.url, "authorization_servers": [self.origin]},
            "/.well-known/oauth-authorization-server": server | changed,
            "/register": {"client_id": "me"},
            "/token": {"access_token": "TOKEN-1234", "token_type": "Bearer"},
        }
        return (200, {"content-type": "application/json"}, json.dumps(known[path]).encode()) if path in known else None

    async def _app(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            for step in ("startup", "shutdown"):
                await receive()
                await send({"type": f"lifespan.{step}.complete"})
            return
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        self.requests.append((scope["method"], scope["path"], headers.get("authorization", "")))
        status, answered, body = self._answer(self, scope["path"])
        raw = [(name.encode(), value.encode()) for name, value in answered.items()]
        await send({"type": "http.response.start", "status": status, "headers": raw})
        await send({"type": "http.response.body", "body": body})


async def agree(address: str) -> str:
    state = address.partition("state=")[2].partition("&")[0]
    return f"{REDIRECT}?code=CODE-1234&state={state}"


async def problem(server: HostileServer, open_page: Any = agree) -> str:
    """Return what a call of the server's tool is told."""
    configured = McpServer(name="hostile", url=server.url, auth=OAuth(open_page=open_page, redirect_uri=REDIRECT), tools=("look",))
    async with Engine(servers=[configured]) as engine:
        result = await said(engine, call("look"))
        assert not result.success
        return result.text


async def test_a_token_does_not_follow_a_redirect_to_another_origin() -> None:
    with HostileServer(lambda _, __: (404, {}, b"")) as other:

        def answer(server: HostileServer, path: str) -> Answer:
            if found := server.metadata(path):
                return found
            authorized = any(header for _, _, header in server.requests)
            return (307, {"location": other.url}, b"") if authorized else (401, {"www-authenticate": "Bearer"}, b"")

        with HostileServer(answer) as server:
            assert "another origin" in await problem(server)
            assert any(header == "Bearer TOKEN-1234" for _, _, header in server.requests)
            assert not any(header for _, path, header in server.requests if path != "/mcp")
    assert other.requests == []


async def test_a_redirect_of_metadata_is_not_followed() -> None:
    with HostileServer(lambda _, __: (200, {}, b'{"resource": "x"}')) as other:

        def answer(server: HostileServer, path: str) -> Answer:
            return (401, {"www-authenticate": "Bearer"}, b"") if path == "/mcp" else (302, {"location": f"{other.origin}/inside"}, b"")

        with HostileServer(answer) as server:
            assert "there are no metadata at" in await problem(server)
    assert other.requests == []


@pytest.mark.parametrize(
    "answered",
    [
        (200, {}, b"[" * 900_000),
        (200, {}, b" " * 1_100_000),
        (200, {"content-encoding": "gzip"}, b"\x1f\x8b" + bytes(100)),
        (200, {}, b"\xff"),
    ],
    ids=["nested", "large", "compressed", "no text"],
)
async def test_metadata_that_cannot_be_read_are_an_error(answered: Answer) -> None:
    def answer(_: HostileServer, path: str) -> Answer:
        return (401, {"www-authenticate": "Bearer"}, b"") if path == "/mcp" else answered

    with HostileServer(answer) as server:
        assert "its authorization has failed" in await problem(server)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"authorization_endpoint": "javascript:alert(1)"}, "is not a plain https address"),
        ({"authorization_endpoint": "file:///etc/passwd"}, "is not a plain https address"),
        ({"authorization_endpoint": "https://honest.example/authorize?client_id=other"}, "contains parameters of the request"),
        ({"authorization_endpoint": "https://honest.example/authorize#"}, "is not a plain https address"),
        ({"token_endpoint": "http://honest.example/token"}, "is not a plain https address"),
        ({"token_endpoint": "https://honest.example\\@other.example/token"}, "is not a plain https address"),
        ({"token_endpoint": "https://user@honest.example/token"}, "is not a plain https address"),
        ({"code_challenge_methods_supported": ["plain"]}, "does not support PKCE with S256"),
        ({"issuer": "https://honest.example"}, "are those of the authorization server"),
    ],
)
async def test_an_authorization_server_with_wrong_metadata_is_refused(changed: dict[str, Any], told: str) -> None:
    asked = list[str]()

    async def note(address: str) -> str:
        asked.append(address)
        return await agree(address)

    def answer(server: HostileServer, path: str) -> Answer:
        return server.metadata(path, **changed) or (401, {"www-authenticate": "Bearer"}, b"")

    with HostileServer(answer) as server:
        assert told in await problem(server, note)
    assert asked == []


@pytest.mark.parametrize("lasts", [10**400, -5, True, "soon", None])
async def test_a_lifetime_that_makes_no_sense_does_no_harm(lasts: object) -> None:
    def answer(server: HostileServer, path: str) -> Answer:
        if path == "/token":
            return 200, {}, json.dumps({"access_token": "TOKEN-1234", "token_type": "bearer", "expires_in": lasts}).encode()
        return server.metadata(path) or (401, {"www-authenticate": "Bearer"}, b"")

    with HostileServer(answer) as server:
        assert "does not accept the access token" in await problem(server)


async def test_an_authorization_server_that_repeats_what_it_was_sent_does_not_bring_it_into_an_error() -> None:
    said_again = json.dumps({"error": "invalid_grant", "error_description": "\x1b[2J no CODE-1234 SECRET-1234"}).encode()
    with HostileServer(lambda _, __: (400, {}, said_again)) as server:
        async with OAuthHttp(AllowedAddresses(server.url)) as http:
            with pytest.raises(AuthorizationRefused) as caught:
                await http.post_form(server.url, {"code": "CODE-1234", "client_secret": "SECRET-1234"}, {})
    assert "no *** ***" in str(caught.value)
    assert "\x1b" not in str(caught.value)


@pytest.mark.parametrize(
    ("server", "target"),
    [
        ("https://host.example/mcp", "https://127.0.0.1/"),
        ("https://host.example/mcp", "http://localhost:8080/"),
        ("https://host.example/mcp", "https://[::1]/"),
        ("https://host.example/mcp", "https://[::ffff:10.0.0.1]/"),
        ("https://host.example/mcp", "https://10.0.0.1/"),
        ("https://host.example/mcp", "https://metadata.internal/"),
        ("https://host.example/mcp", "https://169.254.169.254/"),
        ("https://10.0.0.1/mcp", "https://169.254.169.254/"),
        ("https://10.0.0.1/mcp", "https://127.0.0.1/"),
        ("http://127.0.0.1:80/mcp", "https://169.254.169.254/"),
    ],
)
async def test_a_server_leads_to_no_network_but_its_own_and_the_public_one(server: str, target: str) -> None:
    allowed = AllowedAddresses(server)
    with pytest.raises(Untrusted, match="it leads to"):
        allowed.check(target)
    async with OAuthHttp(allowed) as http:
        with pytest.raises(Untrusted, match="it leads to"):
            await http.first_document([target])


async def test_a_name_is_checked_by_its_addresses() -> None:
    with pytest.raises(Untrusted, match="on this machine"):
        await AllowedAddresses("https://10.0.0.1/mcp").addresses("https://localhost/")


def test_an_authorization_server_that_the_operator_has_named_may_be_anywhere() -> None:
    AllowedAddresses("https://host.example/mcp", "https://10.0.0.1/tenant").check("https://10.0.0.1/token")
    with pytest.raises(Untrusted):
        AllowedAddresses("https://host.example/mcp", "https://10.0.0.1/tenant").check("https://10.0.0.1:8443/token")


@pytest.mark.parametrize(
    "url", ["https://0x7f.1/", "https://127.1/", "https://2130706433/", "https://ⓔxample.com/", "https://h.example/\n", 5]
)
def test_an_address_that_can_be_read_in_two_ways_is_refused(url: object) -> None:
    with pytest.raises(Untrusted):
        checked_address(url, "issuer")


@pytest.mark.parametrize(
    "text", ["a" * 200_000, 'a="' + '\\"' * 100_000, "a =" * 60_000, " " * 200_000], ids=["name", "quoted", "pairs", "blank"]
)
def test_a_challenge_is_read_in_linear_time(text: str) -> None:
    challenge = challenge_of(401, f"Bearer {text}")
    assert challenge is not None
    assert challenge.metadata_url == ""


def test_a_challenge_after_others_is_found() -> None:
    header = 'Basic realm="x, y", Bearer error="invalid_token", resource_metadata="https://host.example/meta", scope="a b"'
    challenge = challenge_of(401, header)
    assert challenge is not None
    assert (challenge.metadata_url, challenge.scopes) == ("https://host.example/meta", ("a", "b"))


def test_metadata_without_an_endpoint_are_refused() -> None:
    with pytest.raises(Untrusted, match="authorization_endpoint"):
        authorization_server({"issuer": "https://a.example", "code_challenge_methods_supported": ["S256"]}, "https://a.example")
