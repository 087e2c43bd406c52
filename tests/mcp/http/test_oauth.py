"""Servers that want an access token. What the protocol demands of a client is shown by the conformance suite, in `tests/conformance`."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2
import pytest

from callgate import Engine, UsageError
from callgate.mcp import McpServer, OAuth, mcp
from callgate.mcp._oauth_http import OAuthHttp
from callgate.mcp._oauth_metadata import Untrusted
from tests.engine_calls import call, said
from tests.mcp.http.oauth_server import OAuthServer

REDIRECT = "http://127.0.0.1:8400/callback"


async def agree(address: str) -> str:
    """Return where the authorization server sends a user who agrees."""
    async with httpx2.AsyncClient() as browser:
        return str((await browser.get(address)).headers["location"])


class Refusing:
    """A user who refuses."""

    def __init__(self) -> None:
        self.asked = 0

    async def __call__(self, address: str) -> str:
        self.asked += 1
        state = httpx2.URL(address).params["state"]
        return f"{REDIRECT}?error=access_denied&error_description=no&state={state}"


def guarded(server: OAuthServer, open_page: Any = agree, **options: Any) -> McpServer:
    return mcp(server.url, name="guarded", effects={"look": "none"}, auth=OAuth(open_page=open_page, redirect_uri=REDIRECT, **options))


async def test_a_user_is_asked_once_and_all_calls_are_authorized() -> None:
    with OAuthServer() as server:
        async with Engine(servers=[guarded(server)]) as engine:
            assert (await said(engine, call("look"))).text == "seen"
            assert (await said(engine, call("look"))).text == "seen"
    assert (server.authorizations, server.renewals) == (1, 0)


async def test_a_token_that_expires_is_renewed_without_the_user() -> None:
    with OAuthServer(lasts_s=1) as server:
        async with Engine(servers=[guarded(server)]) as engine:
            assert (await said(engine, call("look"))).text == "seen"
    assert server.authorizations == 1
    assert server.renewals > 0


async def test_a_user_is_asked_once_more_when_the_server_accepts_a_token_no_longer() -> None:
    """However many calls find that out at the same time."""
    with OAuthServer() as server:
        async with Engine(servers=[guarded(server)]) as engine:
            assert (await said(engine, call("look"))).text == "seen"
            server.forget_tokens()
            results = await asyncio.gather(*(said(engine, call("look", times=times)) for times in range(5)))
            assert {result.text for result in results} == {"seen"}
    assert server.authorizations == 2


async def test_a_user_who_refuses_is_not_asked_again_and_the_calls_say_so() -> None:
    refusing = Refusing()
    with OAuthServer() as server:
        configured = guarded(server, refusing)
        for _ in range(2):
            async with Engine(servers=[McpServer(name="guarded", url=server.url, auth=configured.auth, tools=("look",))]) as engine:
                result = await said(engine, call("look"))
                assert not result.success
                assert "refused it: access_denied: no" in result.text
    assert refusing.asked == 1


async def test_a_server_that_accepts_no_token_does_not_make_the_user_authorize_again() -> None:
    with OAuthServer(refuses=True) as server:
        configured = guarded(server)
        for _ in range(2):
            async with Engine(servers=[McpServer(name="guarded", url=server.url, auth=configured.auth, tools=("look",))]) as engine:
                result = await said(engine, call("look"))
                assert "not valid: Bearer ***" in result.text
                assert "does not accept the access token" in result.text
    assert server.authorizations == 1


async def test_an_answer_for_another_request_is_refused() -> None:
    async def other(address: str) -> str:
        return f"{REDIRECT}?code=stolen&state=other"

    with OAuthServer() as server:
        async with Engine(servers=[McpServer(name="guarded", url=server.url, auth=guarded(server, other).auth, tools=("look",))]) as engine:
            assert "another authorization request" in (await said(engine, call("look"))).text


async def test_a_server_elsewhere_cannot_lead_the_client_to_this_machine() -> None:
    with OAuthServer() as server:
        async with OAuthHttp(local=False) as http:
            with pytest.raises(Untrusted, match="which is on this machine"):
                await http.first_document([server.url])


async def test_no_secret_is_in_the_representations() -> None:
    auth = OAuth(open_page=agree, redirect_uri=REDIRECT, client_id="me", client_secret="SECRET-1", issuer="https://issuer.example")
    assert "SECRET-1" not in repr(auth) + repr(mcp("https://host.example/mcp", auth=auth))


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"redirect_uri": "callback"}, "must be an address"),
        ({"open_page": None}, "must be an async function"),
        ({"client_id": "me", "client_secret": "s"}, "needs the client_id, and the issuer"),
    ],
    ids=["no address", "no function", "a secret for anybody"],
)
def test_wrong_options_are_refused(options: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        OAuth(**{"open_page": agree, "redirect_uri": REDIRECT, **options})


@pytest.mark.parametrize("options", [{"headers": {"authorization": "Bearer t"}}, {"auth": "token"}], ids=["two credentials", "a text"])
def test_a_server_takes_one_way_of_authorization(options: dict[str, Any]) -> None:
    auth = OAuth(open_page=agree, redirect_uri=REDIRECT)
    with pytest.raises(UsageError, match="auth"):
        mcp("https://host.example/mcp", **{"auth": auth} | options)


def test_a_command_has_no_authorization() -> None:
    with pytest.raises(UsageError, match="a command has none"):
        mcp("uvx mcp-server-git", auth=OAuth(open_page=agree, redirect_uri=REDIRECT))
