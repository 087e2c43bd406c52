"""Servers that want an access token. What the protocol demands of a client is shown by the conformance suite, in `tests/conformance`."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2
import pytest

from callgate import Engine, UsageError
from callgate.mcp import McpServer, OAuth, mcp
from callgate.mcp._oauth_addresses import AllowedAddresses, Untrusted
from callgate.mcp._oauth_http import OAuthHttp
from tests.engine_calls import call, said
from tests.mcp.http.oauth_server import OAuthServer
from tests.waiting import PATIENCE_S

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
    assert (len(server.asked), server.renewals) == (1, 0)


async def test_a_token_that_expires_is_renewed_without_the_user() -> None:
    with OAuthServer(lasts_s=1) as server:
        async with Engine(servers=[guarded(server)]) as engine:
            assert (await said(engine, call("look"))).text == "seen"
    assert len(server.asked) == 1
    assert server.renewals > 0


async def test_a_token_that_nothing_renews_is_sent_until_the_server_refuses_it() -> None:
    with OAuthServer(lasts_s=10, refreshes=False) as server:
        async with Engine(servers=[guarded(server)]) as engine:
            assert (await said(engine, call("look"))).text == "seen"
    assert len(server.asked) == 1


async def test_a_call_that_is_cancelled_does_not_lose_the_token_that_is_just_renewed() -> None:
    """The authorization server takes each refresh token once, so that a lost answer would cost the user's authorization."""
    with OAuthServer(lasts_s=1) as server:
        async with Engine(servers=[guarded(server)]) as engine:
            assert (await said(engine, call("look"))).text == "seen"
            server.renewing.clear()
            server.may_renew.clear()
            calling = asyncio.create_task(said(engine, call("look", times=2)))
            assert await asyncio.to_thread(server.renewing.wait, PATIENCE_S)
            calling.cancel()
            await asyncio.wait({calling})
            server.may_renew.set()
            assert (await said(engine, call("look", times=3))).text == "seen"
    assert len(server.asked) == 1


async def test_a_user_is_asked_once_more_when_the_server_accepts_a_token_no_longer() -> None:
    """However many calls find that out at the same time."""
    with OAuthServer(renews=False) as server:
        async with Engine(servers=[guarded(server)]) as engine:
            assert (await said(engine, call("look"))).text == "seen"
            server.forget_tokens()
            results = await asyncio.gather(*(said(engine, call("look", times=times)) for times in range(5)))
            assert {result.text for result in results} == {"seen"}
    assert len(server.asked) == 2


async def test_a_token_that_the_server_accepts_no_longer_is_renewed_once_and_without_the_user() -> None:
    with OAuthServer() as server:
        async with Engine(servers=[guarded(server)]) as engine:
            assert (await said(engine, call("look"))).text == "seen"
            server.forget_tokens()
            results = await asyncio.gather(*(said(engine, call("look", times=times)) for times in range(5)))
            assert {result.text for result in results} == {"seen"}
    assert (len(server.asked), server.renewals) == (1, 1)


async def test_an_authorization_server_that_is_down_is_reported_and_the_user_is_not_asked() -> None:
    with OAuthServer() as server:
        async with Engine(servers=[guarded(server)]) as engine:
            assert (await said(engine, call("look"))).text == "seen"
            server.is_down = True
            server.forget_tokens()
            result = await said(engine, call("look"))
            assert not result.success
            assert "/token answered 503" in result.text
    assert len(server.asked) == 1


async def test_a_login_is_begun_once_however_often_the_server_is_started_meanwhile() -> None:
    agreed, asked = asyncio.Event(), list[str]()

    async def later(address: str) -> str:
        asked.append(address)
        await agreed.wait()
        return await agree(address)

    with OAuthServer() as server:
        configured = guarded(server, later)
        waiting = McpServer(name="guarded", url=server.url, auth=configured.auth, tools=("look",), start_timeout_s=2)
        async with Engine(servers=[waiting]) as engine:
            refused = await said(engine, call("look", times=2))
            assert "waits for the user's authorization" in refused.text
            agreed.set()
            async with asyncio.timeout(PATIENCE_S):
                while (await said(engine, call("look"))).text != "seen":
                    await asyncio.sleep(0)
    assert len(asked) == 1


async def test_an_engine_that_is_closed_waits_for_no_user() -> None:
    ended = asyncio.Event()

    async def never(address: str) -> str:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return ""

    with OAuthServer() as server:
        waiting = McpServer(name="guarded", url=server.url, auth=guarded(server, never).auth, start_timeout_s=2)
        async with Engine(servers=[waiting]):
            pass
    assert ended.is_set()


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
    assert len(server.asked) == 1


async def test_an_answer_for_another_request_is_refused() -> None:
    async def other(address: str) -> str:
        return f"{REDIRECT}?code=stolen&state=other"

    with OAuthServer() as server:
        async with Engine(servers=[McpServer(name="guarded", url=server.url, auth=guarded(server, other).auth, tools=("look",))]) as engine:
            assert "another authorization request" in (await said(engine, call("look"))).text


async def test_a_server_elsewhere_cannot_lead_the_client_to_this_machine() -> None:
    with OAuthServer() as server:
        async with OAuthHttp(AllowedAddresses("https://host.example/mcp")) as http:
            with pytest.raises(Untrusted, match="which is on this machine"):
                await http.first_document([server.url])


async def test_an_answer_with_a_parameter_twice_is_refused() -> None:
    async def twice(address: str) -> str:
        return f"{await agree(address)}&code=other"

    with OAuthServer() as server:
        async with Engine(servers=[McpServer(name="guarded", url=server.url, auth=guarded(server, twice).auth, tools=("look",))]) as engine:
            assert "a parameter twice" in (await said(engine, call("look"))).text


async def test_the_code_is_not_in_the_error_of_a_function_that_fails() -> None:
    async def failing(address: str) -> str:
        raise ValueError(f"cannot read {REDIRECT}?code=SECRET-CODE&state=SECRET-STATE")

    with OAuthServer() as server:
        async with Engine(
            servers=[McpServer(name="guarded", url=server.url, auth=guarded(server, failing).auth, tools=("look",))]
        ) as engine:
            text = (await said(engine, call("look"))).text
    assert "the user could not be asked (ValueError: cannot read" in text
    assert "SECRET" not in text


def test_one_authorization_is_not_used_for_two_servers() -> None:
    auth = OAuth(open_page=agree, redirect_uri=REDIRECT)
    mcp("https://host.example/mcp", auth=auth)
    mcp("https://host.example/mcp", auth=auth)
    with pytest.raises(UsageError, match="Make an OAuth for each server"):
        mcp("https://other.example/mcp", auth=auth)


@pytest.mark.parametrize("url", ["http://host.example/mcp", "https://user:password@host.example/mcp", "http://10.0.0.1/mcp"])
def test_a_token_is_not_sent_where_others_can_read_it(url: str) -> None:
    with pytest.raises(UsageError, match="must begin with https") as caught:
        mcp(url, name="guarded", auth=OAuth(open_page=agree, redirect_uri=REDIRECT))
    assert "password" not in str(caught.value)


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
