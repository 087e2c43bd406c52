"""`callgate serve` as a protected resource of OAuth: clients find its authorization server, and use the gateway with a token of it."""

from __future__ import annotations

import asyncio
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp.client.auth import OAuthClientProvider, TokenStorage
from mcp.client.streamable_http import streamable_http_client
from mcp.server.mcpserver import MCPServer
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthClientMetadata, OAuthToken
from pydantic import AnyUrl

from callgate import Engine, EventQuery, SqliteJournal
from callgate._run_state.event_bodies import decode_received
from callgate.gateway.config_file import token_digest
from callgate.mcp import OAuth
from callgate.mcp import mcp as mcp_server
from mcp import Client
from tests.app_thread import AppThread
from tests.cli.command_process import start_command
from tests.cli.test_serve import ERAS, text_of
from tests.engine_calls import call, said
from tests.gateway.http.gateway_process import ACCEPT, VERSION
from tests.gateway.http.test_replicas import free_port
from tests.gateway.http.token_issuer import TokenIssuer
from tests.waiting import COMMAND_S

pytestmark = pytest.mark.process

REDIRECT = "http://127.0.0.1:8400/callback"
SCOPES = "shop:read shop:write"
_METHODS = (
    *("server/discover", "tools/list", "tools/call", "resources/list", "resources/templates/list", "resources/read"),
    *("prompts/list", "prompts/get", "completion/complete", "subscriptions/listen", "tasks/get", "tasks/update", "tasks/cancel"),
)
TOOLS = '''
from callgate import tool

@tool(effect="none")
def look() -> str:
    """Look."""
    return "seen"

@tool(effect="once", aliases=["buy"])
def order(article: str) -> str:
    """Order an article."""
    return f"ordered {article}"
'''


class Served:
    """A running gateway."""

    def __init__(self, folder: Path, port: int) -> None:
        self.journal = folder / "journal.db"
        self.origin = f"http://127.0.0.1:{port}"
        self.url = f"{self.origin}/mcp"

    async def principals(self) -> set[str]:
        """Return on whose behalf calls were made."""
        journal = SqliteJournal(self.journal)
        received = [decode_received(event.body) for event in journal.find(EventQuery(kinds=("call.received",)))]
        await journal.close()
        return {str((one.scope or {})["principal"]) for one in received}


@pytest.fixture
def issuer() -> Iterator[TokenIssuer]:
    with TokenIssuer(scopes=SCOPES) as running:
        yield running


@asynccontextmanager
async def served(folder: Path, issuer: TokenIssuer, more: str = "") -> AsyncIterator[Served]:
    """Run the gateway, and end it."""
    gateway = Served(folder, free_port())
    (folder / "own.py").write_text(TOOLS, encoding="utf-8")
    (folder / "gate.toml").write_text(
        f'name = "shop"\ntools = "own.py"\njournal = "journal.db"\n{more}\n[http]\nlisten = "{gateway.origin.removeprefix("http://")}"\n'
        f'[jwt]\nissuer = "{issuer.url}"\nalgorithms = "ES256"\nresource = "{gateway.url}"\nscopes = "shop:read"\n'
        f'[jwt.tool_scopes]\n"ord*" = "shop:write"\n',
        encoding="utf-8",
    )
    process = await start_command(folder, "serve", "--config", "gate.toml", "--http", stdin=PIPE)
    assert process.stderr is not None
    try:
        while b" tools, " not in (line := await asyncio.wait_for(process.stderr.readline(), COMMAND_S)):
            assert line, "the command has ended"
        yield gateway
    finally:
        process.terminate()
        await asyncio.wait_for(process.communicate(), COMMAND_S)


async def agree(address: str) -> str:
    """Return where the authorization server sends a user who agrees."""
    async with httpx2.AsyncClient() as browser:
        return str((await browser.get(address)).headers["location"])


# Clients


class Kept(TokenStorage):
    """Keeps tokens in memory."""

    tokens: OAuthToken | None = None
    client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


def sdk_authorization(url: str) -> OAuthClientProvider:
    """Return the authorization of the official SDK for a server, with a user who agrees."""
    redirected: list[httpx2.URL] = []

    async def open_page(address: str) -> None:
        redirected.append(httpx2.URL(await agree(address)))

    async def answer() -> AuthorizationCodeResult:
        params = redirected[-1].params
        return AuthorizationCodeResult(code=params["code"], state=params["state"], iss=params.get("iss"))

    about = OAuthClientMetadata(redirect_uris=[AnyUrl(REDIRECT)], client_name="test", token_endpoint_auth_method="none")
    return OAuthClientProvider(url, about, Kept(), open_page, answer)


@ERAS
async def test_a_client_of_the_official_sdk_finds_its_way_and_asks_for_more_when_a_tool_needs_it(
    tmp_path: Path, issuer: TokenIssuer, mode: str
) -> None:
    async with served(tmp_path, issuer) as gateway:
        async with (
            httpx2.AsyncClient(auth=sdk_authorization(gateway.url)) as http,
            Client(streamable_http_client(gateway.url, http_client=http), mode=mode) as client,
        ):
            assert text_of(await client.call_tool("look", {})) == "seen"
            assert [asked.scopes for asked in issuer.asked] == [["shop:read"]]
            assert text_of(await client.call_tool("order", {"article": "bolt"})) == "ordered bolt"
        assert [(set(asked.scopes or ()), asked.resource) for asked in issuer.asked] == [
            ({"shop:read"}, gateway.url),
            ({"shop:read", "shop:write"}, gateway.url),
        ]
    assert await gateway.principals() == {"ann"}


async def test_callgates_own_client_finds_its_way_and_asks_for_more_when_a_tool_needs_it(tmp_path: Path, issuer: TokenIssuer) -> None:
    async with served(tmp_path, issuer) as gateway:
        server = mcp_server(gateway.url, name="shop", auth=OAuth(open_page=agree, redirect_uri=REDIRECT), effects={"look": "none"})
        async with Engine(servers=[server]) as engine:
            assert (await said(engine, call("look"))).text == "seen"
            assert (await said(engine, call("order", article="bolt"))).text == "ordered bolt"
    assert [set(asked.scopes or ()) for asked in issuer.asked] == [{"shop:read"}, {"shop:read", "shop:write"}]


# What clients are told


@pytest.mark.parametrize("path", ["/.well-known/oauth-protected-resource/mcp", "/.well-known/oauth-protected-resource"])
async def test_the_metadata_name_the_gateway_and_its_issuer(tmp_path: Path, issuer: TokenIssuer, path: str) -> None:
    async with served(tmp_path, issuer) as gateway, httpx2.AsyncClient(base_url=gateway.origin) as client:
        answer = await client.get(path)
        assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
        assert answer.json() == {
            "resource": gateway.url,
            "authorization_servers": [issuer.url],
            "scopes_supported": ["shop:read"],
            "bearer_methods_supported": ["header"],
            "resource_name": "shop",
        }
        head = await client.head(path)
        assert (head.status_code, head.content, head.headers["content-length"]) == (200, b"", answer.headers["content-length"])
        assert (await client.post(path, json={})).status_code == 405
        assert (await client.get(path, headers={"Host": "evil.example"})).status_code == 421
        assert (await client.get(path, headers={"Origin": "http://evil.example"})).status_code == 403


async def test_a_refused_request_is_told_where_tokens_come_from_and_what_they_need(tmp_path: Path, issuer: TokenIssuer) -> None:
    async with served(tmp_path, issuer) as gateway, httpx2.AsyncClient() as client:
        where = f'resource_metadata="{gateway.origin}/.well-known/oauth-protected-resource/mcp"'
        cases: dict[str, tuple[int, str]] = {
            "": (401, f'Bearer scope="shop:read", {where}'),
            "no-token": (401, f'Bearer error="invalid_token", scope="shop:read", {where}'),
            issuer.token(f"{gateway.origin}/other", SCOPES): (401, f'Bearer error="invalid_token", scope="shop:read", {where}'),
            issuer.token(gateway.url, "shop:write"): (403, f'Bearer error="insufficient_scope", scope="shop:read", {where}'),
        }
        for token, told in cases.items():
            answer = await client.post(gateway.url, json={}, headers={"Authorization": f"Bearer {token}"} if token else {})
            assert (answer.status_code, answer.headers["www-authenticate"]) == told
        metrics = await client.get(
            f"{gateway.origin}/metrics", headers={"Authorization": f"Bearer {issuer.token(gateway.url, 'shop:read')}"}
        )
        assert 'callgate_requests_refused_total{reason="scope"} 1.0' in metrics.text


async def test_every_request_needs_the_scopes_of_every_request(tmp_path: Path, issuer: TokenIssuer) -> None:
    """Not only calls of tools; a scope of a tool is not enough."""
    meta = {"io.modelcontextprotocol/protocolVersion": VERSION, "io.modelcontextprotocol/clientCapabilities": {}}
    async with served(tmp_path, issuer) as gateway, httpx2.AsyncClient(headers={"Accept": ACCEPT}) as client:
        client.headers["Authorization"] = f"Bearer {issuer.token(gateway.url, 'shop:write')}"
        for method in ("initialize", *_METHODS):
            message = {"jsonrpc": "2.0", "id": 7, "method": method, "params": {} if method == "initialize" else {"_meta": meta}}
            head = {} if method == "initialize" else {"MCP-Protocol-Version": VERSION, "Mcp-Method": method}
            answer = await client.post(gateway.url, json=message, headers=head)
            assert answer.status_code == 403
            assert 'error="insufficient_scope", scope="shop:read"' in answer.headers["www-authenticate"]


def tool_call(name: str) -> dict[str, Any]:
    meta = {"io.modelcontextprotocol/protocolVersion": VERSION, "io.modelcontextprotocol/clientCapabilities": {}}
    return {
        "jsonrpc": "2.0",
        "id": 7,
        "method": "tools/call",
        "params": {"name": name, "arguments": {"article": "bolt"} if name != "act" else {}, "_meta": meta},
    }


async def called(client: httpx2.AsyncClient, url: str, name: str, token: str) -> httpx2.Response:
    headers = {"Authorization": f"Bearer {token}", "Accept": ACCEPT}
    headers |= {"MCP-Protocol-Version": VERSION, "Mcp-Method": "tools/call", "Mcp-Name": name}
    return await client.post(url, json=tool_call(name), headers=headers)


async def test_a_tool_is_called_with_its_scope_only_whatever_it_is_called(tmp_path: Path, issuer: TokenIssuer) -> None:
    async with served(tmp_path, issuer) as gateway, httpx2.AsyncClient() as client:
        reader, writer = issuer.token(gateway.url, "shop:read"), issuer.token(gateway.url, scp=SCOPES.split())
        for name in ("order", "buy", "Order", "ord_er"):
            refused = await called(client, gateway.url, name, reader)
            assert (refused.status_code, refused.json()["id"]) == (403, 7)
            assert 'error="insufficient_scope", scope="shop:read shop:write"' in refused.headers["www-authenticate"]
        assert (await called(client, gateway.url, "order", writer)).json()["result"]["content"][0]["text"] == "ordered bolt"


class Recording:
    """An MCP server over HTTP that keeps the heads of the requests it gets."""

    def __init__(self) -> None:
        self.seen: list[dict[bytes, bytes]] = []
        server = MCPServer("upstream", log_level="CRITICAL")

        @server.tool()
        async def act() -> str:
            """Act."""
            return "done"

        self._app = server.streamable_http_app()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.seen.append(dict(scope.get("headers", ())))
        await self._app(scope, receive, send)


async def test_no_server_gets_the_token_of_a_client(tmp_path: Path, issuer: TokenIssuer) -> None:
    upstream = Recording()
    with AppThread(upstream) as thread:
        more = f'[servers.up]\nurl = "http://127.0.0.1:{thread.port}/mcp"\nheaders = {{ Authorization = "Bearer own-token-of-gate" }}'
        async with served(tmp_path, issuer, more) as gateway, httpx2.AsyncClient() as client:
            token = issuer.token(gateway.url, SCOPES)
            assert (await called(client, gateway.url, "act", token)).json()["result"]["content"][0]["text"] == "done"
    heads = [head for head in upstream.seen if head]
    assert {head[b"authorization"] for head in heads} == {b"Bearer own-token-of-gate"}
    assert not any(token.encode() in value for head in heads for value in head.values())


async def test_a_token_of_the_configuration_needs_no_scopes(tmp_path: Path, issuer: TokenIssuer) -> None:
    more = f'[principals.robot]\ntoken_sha256 = "{token_digest("token-of-the-robot")}"'
    async with served(tmp_path, issuer, more) as gateway, httpx2.AsyncClient() as client:
        assert (await called(client, gateway.url, "order", "token-of-the-robot")).status_code == 200
